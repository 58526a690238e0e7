"""Passes of VECTOR that find maxima over windows: a maximum of maxima takes fewer steps than a window at once.

A window of 5x5 is five rows, and then five columns of what they gave: 10 steps for each value in place of 25. A line of
13 taps is four, and then four of what they gave, three apart: 8 steps in place of 13.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

from tilewright.compiler.npu.layers.sliding_window import SlidingWindow

#: Cycles that a pass takes besides its steps: the next one waits for its last results.
_PASS = 24


@functools.lru_cache(maxsize=256)
def taps_of_passes(taps: int) -> tuple[tuple[int, int], ...]:
    """Returns (taps, distance of taps) of the passes with the fewest steps that together cover a line of taps.

    A pass of a line counts as one step more.
    """
    best: tuple[tuple[int, int], ...] = ((taps, 1),)
    fewest = taps + 1
    for first in range(2, taps):
        for second in range(-(-taps // first), taps):  # parts of `first` taps that meet or overlap
            apart, rest = divmod(taps - first, second - 1)
            if rest:
                continue
            more = taps_of_passes(second)
            count = first + 1 + sum(part + 1 for part, _ in more)
            if count < fewest:
                best, fewest = ((first, 1), *((part, apart * distance) for part, distance in more)), count
            break
    return best


@functools.lru_cache(maxsize=1024)
def passes_of(window: SlidingWindow, lines: int, columns: int) -> tuple[SlidingWindow, ...]:
    """Returns the passes that find the maxima over a window in the fewest cycles, in order: rows first.

    Args:
        window: the window.
        lines, columns: rows and columns of the layer's result: all its tiles are made alike.
    """
    return min(_ways(window), key=lambda passes: steps(passes, lines, columns) + _PASS * len(passes))


def steps(passes: Sequence[SlidingWindow], lines: int, columns: int) -> int:
    """Returns the steps of VECTOR for the passes to so many rows and columns of a channel block."""
    total = 0
    for window in reversed(passes):
        total += lines * columns * math.prod(window.kernel)
        lines, columns = window.extent(lines, columns)
    return total


def between(passes: Sequence[SlidingWindow], lines: int, columns: int) -> list[tuple[int, int]]:
    """Returns the rows and columns of what each pass but the last gives, for so many of the result."""
    found = []
    for window in reversed(passes[1:]):
        lines, columns = window.extent(lines, columns)
        found.append((lines, columns))
    return found[::-1]


def _ways(window: SlidingWindow) -> Iterator[tuple[SlidingWindow, ...]]:
    """Yields the window itself, and passes along rows and columns that find the same maxima."""
    yield (window._replace(pad=(0, 0)),)
    parts = [(axis, *part) for axis, taps in enumerate(window.kernel) if taps > 1 for part in taps_of_passes(taps)]
    if not parts:  # a window of one value
        return
    last = {axis: number for number, (axis, _, _) in enumerate(parts)}  # where the line's stride is
    yield tuple(
        SlidingWindow(
            (taps, 1) if axis == 0 else (1, taps),
            stride=(
                window.stride[0] if number == last.get(0, 0) else 1,
                window.stride[1] if number == last.get(1, 0) else 1,
            ),
            dilation=(distance * window.dilation[0], 1) if axis == 0 else (1, distance * window.dilation[1]),
        )
        for number, (axis, taps, distance) in enumerate(parts)
    )
