"""The source files of the RTL."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_WITHOUT_RTL = ("__pycache__", "sim")
#: Folders of the RTL's Python sources: `hw` and those in it, but its simulation.
RTL_FOLDERS = (
    "hw",
    *(
        f"hw/{path.name}"
        for path in sorted((_ROOT / "hw").iterdir())
        if path.is_dir() and path.name not in _WITHOUT_RTL
    ),
)


def rtl_sources() -> list[Path]:
    """Returns the Python sources that the RTL is made of: those of `RTL_FOLDERS`, and the tables of `isa`."""
    return sorted(path for folder in (*RTL_FOLDERS, "isa") for path in (_ROOT / folder).glob("*.py"))
