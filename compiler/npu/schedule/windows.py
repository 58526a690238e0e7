"""Windows: the layers in which two schedules of a step differ, and those beside them whose costs differ too.

Beside other groups and tiles these are a unit on either side. Beside the layers of a tensor's life in ACT there are
none: those before and behind find ACT as it was.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from tilewright.compiler.npu.schedule.decisions import Decisions
from tilewright.compiler.npu.schedule.problem import StepProblem

#: Share of a step's layers in a window, above which it has all of them: the cost of the whole is asked for anyway.
WIDE = 0.75


class Window(NamedTuple):
    """Layers first..end-1, with a boundary between units of both schedules at either end."""

    first: int
    end: int


def windows(problem: StepProblem, one: Decisions, other: Decisions) -> list[Window]:
    """Returns the windows in which two schedules differ, in order; none of them touch."""
    bounds = sorted({*one.starts()} & {*other.starts()})
    found: list[Window] = []
    for first, end, beside in sorted(_differences(problem, one, other)):
        before, behind = bisect_right(bounds, first) - 1 - beside, bisect_left(bounds, end) + beside
        window = Window(bounds[max(0, before)], bounds[min(behind, len(bounds) - 1)])
        if found and window.first <= found[-1].end:
            window = Window(found[-1].first, max(found.pop().end, window.end))
        found.append(window)
    count = len(problem.layers)
    return [Window(0, count)] if any(w.end - w.first > WIDE * count for w in found) else found


def _differences(problem: StepProblem, one: Decisions, other: Decisions) -> Iterator[tuple[int, int, int]]:
    """Yields layers (first, end) whose units, tilings or tensors in ACT are different, and the units beside them."""
    for at, (count, _) in {*zip(one.starts(), one.units)} ^ {*zip(other.starts(), other.units)}:
        yield at, at + count, 1
    for layer, _ in {*one.tiles} ^ {*other.tiles}:
        yield layer, layer + 1, 1
    for first, _ in {*one.stays} ^ {*other.stays}:
        yield first, problem.able[first].last + 1, 0
