"""The source files of the RTL."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def rtl_sources() -> list[Path]:
    """Returns the Python sources that the RTL is made of: those of `hw` but its simulation, and the tables of `isa`."""
    design = (path for path in (_ROOT / "hw").rglob("*.py") if path.parent.name != "sim")
    return sorted([*design, *(_ROOT / "isa").glob("*.py")])
