"""The cost of a schedule from that of another one: only the units that differ are measured."""

from __future__ import annotations

import math
from collections.abc import Hashable
from itertools import pairwise
from typing import NamedTuple

from tilewright.compiler.npu.schedule.problem import Costed, Schedule, StepProblem

#: Largest share of layers in windows; with more, the whole step is measured.
_MOST = 0.7
#: Largest number of layers of a step that is measured as a whole: the overlap at units' ends matters there.
_FEW = 24


class _Window(NamedTuple):
    """Layers first..end-1, with a boundary between units of both schedules at either end."""

    first: int
    end: int


def compared(problem: StepProblem, before: Costed, after: Schedule) -> Costed:
    """Returns a schedule with its cost, found from that of another one by measuring both where they differ.

    A unit before and behind is measured too. Short steps, and those that differ widely, are measured as a whole.
    """
    windows = _windows(before.schedule, after, len(problem.layers))
    few = len(problem.layers) <= _FEW
    if few or before.cost == math.inf or sum(end - first for first, end in windows) > _MOST * len(problem.layers):
        return Costed(after, problem.cost(after))
    cost = before.cost
    for window in windows:
        old, new = (problem.cost(each, _units(each, window)) for each in (before.schedule, after))
        cost += new - old
    return Costed(after, cost)


def _windows(one: Schedule, other: Schedule, layers: int) -> list[_Window]:
    """Returns the windows in which two schedules of so many layers differ."""
    bounds = sorted({*one.starts()} & {*other.starts()})
    parts = [_Window(first, end) for first, end in pairwise(bounds)]
    different = [_contents(one, part) != _contents(other, part) for part in parts]
    near = [any(different[max(0, i - 1) : i + 2]) for i in range(len(parts))]
    windows: list[_Window] = []
    for part, wanted in zip(parts, near, strict=True):
        if not wanted:
            continue
        if windows and windows[-1].end == part.first:
            windows[-1] = _Window(windows[-1].first, part.end)
        else:
            windows.append(part)
    return windows


def _contents(schedule: Schedule, part: _Window) -> Hashable:
    """Returns the decisions that determine the cost of a window's layers: units, tilings and tensors in ACT."""
    first, end = _units(schedule, part)
    units = tuple((len(unit.layers), unit.step) for unit in schedule.units[first:end])
    tiles = tuple(sorted((n, tile) for n, tile in schedule.tiles.items() if part.first <= n < part.end))
    stays = [stay for stay in schedule.stays if stay.first < part.end and stay.last >= part.first]
    return units, tiles, frozenset((stay.first, stay.last, stay.start) for stay in stays)


def _units(schedule: Schedule, window: _Window) -> tuple[int, int]:
    """Returns the numbers of the first unit of a window, and of the unit behind its last."""
    starts = schedule.starts()
    return starts.index(window.first), starts.index(window.end)
