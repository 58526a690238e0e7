"""Intervals of time, for pictures of when engines work."""

from __future__ import annotations

from collections.abc import Sequence


def merged(intervals: Sequence[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """Sorts intervals, and merges those that touch or are at most `gap` apart: a plot cannot show them apart."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if found and start - found[-1][1] <= gap:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found
