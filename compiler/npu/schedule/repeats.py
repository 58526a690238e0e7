"""Repeats: layers of a network that follow each other many times, as those of a language model do.

A search does not look at most of them. They take the decisions of the layers before the place where they were left out:

    ... | 0 | 1 | 2 | ... | 28 | 29 | ...   =>   ... | 0 | 29 | ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from dataclasses import replace as replaced
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct, structs

from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule.decisions import Decisions
from tilewright.compiler.npu.schedule.problem import StepProblem
from tilewright.compiler.npu.schedule.shape import BUFFERS, LayerShape

#: The least number of repeats of which some are left out: the search of fewer takes a minute at most, and may find
#: more.
LEAST = 13

_T = TypeVar("_T")


class Repeats(Struct, frozen=True):
    """Layers of equal shapes that follow each other several times.

    Attributes:
        first: number of the first layer.
        period: number of layers that are repeated.
        count: how many of the repeats are left out.
        room: layers that are there once more than the repeats that are left, at least. So one place of `room` can be
            chosen that is in them twice.
    """

    first: int
    period: int
    count: int
    room: int

    @staticmethod
    def of(problem: StepProblem, room: int = 0) -> Repeats | None:
        """Returns the repeats of the shortest period of which most layers can be left out, None if there are few.

        Args:
            problem: the step.
            room: as that of the repeats before, where some are left out already; 0 for the period that has most of the
                step, if it is there at least `LEAST` times. Layers of another shape may be between them, as where the
                sum of one layer needs another form.
        """
        pattern = _Pattern(problem)
        if not room:
            periods = range(1, len(pattern.row) // LEAST + 1)
            covered = [sum(length for _, length in pattern.runs(period, period)) for period in periods]
            if not covered or not max(covered):
                return None
            room = periods[int(np.argmax(covered))]
            if sum(1 + length // room for _, length in pattern.runs(room, room, names=True)) < LEAST:
                return None

        def left_out(period: int, names: bool = False) -> tuple[int, int, int]:
            runs = ((length, first) for first, length in pattern.runs(period, period + room, names))
            length, first = max(runs, default=(room, 0))
            return (length - room) // period * period, first, period

        size, first, period = left_out(room, names=True)
        if not size:  # several of them together, with the layers between them
            longer = range(room + 1, len(pattern.row) - 2 * room)
            size, first, period = left_out(max(map(left_out, longer), default=(0, 0, room))[2], names=True)
        return Repeats(first, period, size // period, room) if size else None

    @property
    def left_out(self) -> int:
        """Number of layers that a search does not look at."""
        return self.count * self.period

    def shortened(self, problem: StepProblem) -> StepProblem:
        """Returns the step without the layers that are left out. Those behind them read what the ones before write."""
        cut = self.first + self.room
        layers, behind = problem.layers, cut + self.left_out
        names = {
            layers[number].output.buffer: layers[number - self.left_out].output.buffer
            for number in range(behind - self.room, behind)
        }
        kept = [*layers[:cut], *(_renamed(layer, names) for layer in layers[behind:])]
        return replaced(problem, layers=kept)

    def expanded(self, short: StepProblem, decisions: Decisions) -> Decisions | None:
        """Returns the decisions for all layers from those for the shortened step.

        None if there are no two layers a period apart between groups, with the same tensors in ACT.
        """
        starts = {*decisions.starts()}
        for end in range(self.first + self.period + self.room, self.first + self.period - 1, -1):
            ends = end - self.period, end
            if starts.issuperset(ends) and len({self._alive(short, decisions, at) for at in ends}) == 1:
                return self._inserted(decisions, end)
        return None

    def _alive(self, problem: StepProblem, decisions: Decisions, at: int) -> frozenset[tuple[int, int, int]]:
        """Returns the tensors in ACT before layer `at`: their first rows, and their lives as numbers behind it.

        Those from before all repeats count as if they were made and read at the same distance everywhere.
        """
        stays = ((first, problem.able[first].last, row) for first, row in decisions.stays)
        return frozenset(
            (first, 0, row) if first < self.first else (first - at, last - at, row)
            for first, last, row in stays
            if first < at <= last
        )

    def _inserted(self, decisions: Decisions, end: int) -> Decisions:
        """Returns the decisions with copies of those for the `period` layers before `end`, behind these."""
        at = decisions.starts()
        first, behind = at.index(end - self.period), at.index(end)
        units = decisions.units
        repeated = units[first:behind] * self.count
        return Decisions(
            tuple(self._copies(decisions.stays, end)),
            (*units[:behind], *repeated, *units[behind:]),
            tuple(self._copies(decisions.tiles, end)),
        )

    def _copies(self, items: tuple[tuple[int, _T], ...], end: int) -> Iterator[tuple[int, _T]]:
        """Yields decisions by layer, with copies for the layers that were left out, in order."""
        yield from (item for item in items if item[0] < end)
        for more in range(self.period, self.left_out + 1, self.period):
            yield from ((layer + more, what) for layer, what in items if end - self.period <= layer < end)
        yield from ((layer + self.left_out, what) for layer, what in items if layer >= end)


class _Pattern:
    """The layers of a step by shapes: which are alike some layers apart.

    Attributes:
        row: numbers for the layers, equal where their shapes are, int64 [layers].
    """

    def __init__(self, problem: StepProblem) -> None:
        self._problem, self._written = problem, _writers(problem.layers)
        self._shapes = [LayerShape.of(layer, zeros=False) for layer in problem.layers]
        codes: dict[str, int] = {}
        self.row = np.array([codes.setdefault(shape.text, len(codes)) for shape in self._shapes])

    def runs(self, period: int, least: int, names: bool = False) -> list[tuple[int, int]]:
        """Returns the first layer and the number of at least `least` layers in a row that are as those `period` behind.

        Args:
            names: True if they must also read and write as those do.
        """
        alike = self.row[:-period] == self.row[period:]
        for at in np.flatnonzero(alike) if names else ():
            pairs = zip(self._shapes[at].names, self._shapes[at + period].names, strict=True)
            alike[at] = all(_alike(self._problem, *pair, self._written, period) for pair in pairs)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], alike, [False]]).astype(np.int8)))
        return [(first, end - first) for first, end in edges.reshape(-1, 2).tolist() if end - first >= least]


def _writers(layers: list[Layer]) -> dict[Any, int]:
    """Returns the number of the first layer that writes each buffer."""
    found: dict[Any, int] = {}
    for number, layer in enumerate(layers):
        found.setdefault(layer.output.buffer, number)
    return found


def _alike(problem: StepProblem, one: Any, other: Any, written: dict[Any, int], period: int) -> bool:
    """Returns True if two names are no buffers, or the same, or of what is written a period apart or not at all."""
    if one == other or not isinstance(one, str):
        return True
    if (one in problem.outside) != (other in problem.outside) or (one in written) != (other in written):
        return False
    return one not in written or written[other] - written[one] == period


def _renamed(layer: Layer, names: dict[str, str]) -> Layer:
    """Returns a layer that reads and writes other buffers; the same where it has none of those names."""

    def new(value: Any, key: str = "") -> Any:
        if isinstance(value, str):
            return names.get(value, value) if key in BUFFERS else value
        if isinstance(value, list):
            found = [new(one, key) for one in value]
            return found if any(a is not b for a, b in zip(found, value)) else value
        change: Callable[..., Any] = structs.replace if isinstance(value, Struct) else replaced
        if isinstance(value, Struct):
            own: Any = value.__struct_fields__
        elif is_dataclass(value):
            own = [f.name for f in fields(value)]
        else:
            return value
        changed = {n: made for n in own if (made := new(was := getattr(value, n), n)) is not was}
        return change(value, **changed) if changed else value

    renamed: Layer = new(layer)
    return renamed
