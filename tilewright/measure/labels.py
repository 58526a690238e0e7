"""Short texts for tables and plots: numbers of four characters, names that fit a column."""

from __future__ import annotations


def short(value: float) -> str:
    """Formats a number in at most four characters: 1234567 as 1.2M."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor * 0.9995:
            return f"{value / factor:.{1 if value < 9.95 * factor else 0}f}{letter}"
    return f"{value:g}" if value else ""


def short_name(name: str, width: int) -> str:
    """Cuts a name on the left, as its end tells layers apart. Of fused layers the first and the last one are named."""
    parts = name.split(" + ")
    if len(parts) > 2:
        name = f"{parts[0]} ..{len(parts)}.. {parts[-1]}"
    if len(name) > width and len(parts) > 1:
        name = f"{parts[0]} +{len(parts) - 1}"
    return name if len(name) <= width else "…" + name[len(name) - width + 1 :]
