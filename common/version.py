"""The version of Tilewright."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def tilewright_version() -> str:
    """The text "tilewright VERSION", or "tilewright" where it is not installed."""
    try:
        return f"tilewright {version('tilewright')}"
    except PackageNotFoundError:
        return "tilewright"
