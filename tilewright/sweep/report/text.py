"""Numbers of a report as text."""

from __future__ import annotations

from typing import Any


def number(value: Any) -> str:
    """Formats a number: whole from 100 on, with three digits below."""
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.3g}"
