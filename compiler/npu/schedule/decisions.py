"""Decisions: a schedule as plain numbers, without the layers it was decided for.

A search changes them one by one. A schedule that a long search has found is saved in this form, sent to others, and
applied again to the same layers.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.schedule.problem import Schedule, StepProblem
from tilewright.compiler.npu.schedule.shape import shape_of
from tilewright.isa.timing import DEFAULT_MEMORY


class Decisions(Struct, frozen=True):
    """The decisions of a schedule about the layers of a step, which are identified by number.

    Attributes:
        stays: (layer whose output stays in ACT, its first row), by layer.
        units: (number of layers, rows of the last output per band) of the groups; 0 rows for a single layer and for a
            group by channels.
        tiles: (layer, tiling as `TilePlan.numbers` returns it), by layer, where it is not the one the estimate prefers.
    """

    stays: tuple[tuple[int, int], ...]
    units: tuple[tuple[int, int], ...]
    tiles: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the decisions as lists of integers, by name, for JSON."""
        return {
            "stays": [list(s) for s in self.stays],
            "units": [list(u) for u in self.units],
            "tiles": [[layer, list(tile)] for layer, tile in self.tiles],
        }

    @staticmethod
    def from_dict(values: Any) -> Decisions:
        """Returns the decisions that `to_dict` wrote.

        Raises:
            CompileError: `values` is anything else.
        """
        try:
            tiles = tuple((int(layer), tuple(int(x) for x in tile)) for layer, tile in values["tiles"])
            stays, units = (tuple((int(a), int(b)) for a, b in values[key]) for key in ("stays", "units"))
        except (TypeError, KeyError, ValueError) as error:
            raise CompileError(f"not the decisions of a schedule: {error!r}") from None
        return Decisions(stays, units, tiles)

    def starts(self) -> list[int]:
        """Returns the number of each unit's first layer, and of the layer after the last."""
        return [*itertools.accumulate((count for count, _ in self.units), initial=0)]

    def tiled(self, layer: int, tile: tuple[int, ...] | None) -> Decisions:
        """Returns the decisions with another tiling of a layer, None for the one that the estimate prefers."""
        tiles = {number: kept for number, kept in self.tiles if number != layer}
        if tile is not None:
            tiles[layer] = tile
        return replace(self, tiles=tuple(sorted(tiles.items())))

    def regrouped(self, first: int, units: Sequence[tuple[int, int]]) -> Decisions | None:
        """Returns the decisions with other units from layer `first` on; None where other units begin or end.

        Layers of new groups have no tilings of their own, and tensors between them do not stay in ACT besides.
        """
        starts, end = self.starts(), first + sum(count for count, _ in units)
        if first not in starts or end not in starts:
            return None
        at, behind = starts.index(first), starts.index(end)
        old = {*zip(starts[at:behind], self.units[at:behind])}
        fused: set[int] = set()
        between: set[int] = set()
        for start, unit in zip(itertools.accumulate((count for count, _ in units), initial=first), units):
            if unit[0] > 1 and (start, unit) not in old:
                fused |= {*range(start, start + unit[0])}
            between |= {*range(start, start + unit[0] - 1)}
        return Decisions(
            tuple(stay for stay in self.stays if stay[0] not in between),
            (*self.units[:at], *units, *self.units[behind:]),
            tuple(tile for tile in self.tiles if tile[0] not in fused),
        )


def decisions_of(schedule: Schedule) -> Decisions:
    """Returns the decisions of a schedule."""
    units = tuple((len(unit.layers), unit.step) for unit in schedule.units)
    stays = tuple(sorted((stay.first, stay.start) for stay in schedule.stays))
    return Decisions(stays, units, tuple(sorted(schedule.tiles.items())))


def schedule_of(problem: StepProblem, decisions: Decisions) -> Schedule:
    """Returns the schedule that was decided, for the layers of a step.

    Raises:
        CompileError: the decisions are for other layers or another machine.
    """
    layers = len(problem.layers)
    stays = []
    for first, start in decisions.stays:
        stay = problem.able.get(first)
        if stay is None or not 0 <= start <= problem.config.act_rows - stay.rows:
            raise CompileError(f"layer {first} cannot leave its output in ACT from row {start}")
        stays.append(replace(stay, start=start))
    held = {first for first, _ in decisions.stays}
    units, at = [], 0
    for count, step in decisions.units:
        if count < 1 or at + count > layers:
            raise CompileError(f"the decisions are for other layers than these {layers}")
        unit = problem.unit(at, count, step)
        if unit is None or not held.isdisjoint(range(at, at + count - 1)):
            how = f"{step} rows at a time" if step else "by channels"
            raise CompileError(f"layers {at}..{at + count - 1} cannot run {how}")
        units.append(unit)
        at += count
    if at != layers or any(not 0 <= layer < at for layer, _ in decisions.tiles):
        raise CompileError(f"the decisions are for other layers than these {layers}")
    return Schedule(stays, units, dict(decisions.tiles))


def signature(problem: StepProblem) -> str:
    """Returns a digest that is equal for steps that can share decisions.

    They are for the same machine and memory, and their layers differ only in weights and names.
    """
    timing = [] if problem.memory == DEFAULT_MEMORY else [float(value) for value in astuple(problem.memory)]
    text = repr([problem.config.fingerprint, *timing, *shape_of(problem.layers, problem.outside)[0]])
    return hashlib.sha256(text.encode()).hexdigest()[:24]
