"""Decisions: a schedule as plain numbers, without the layers it was decided for.

A schedule that a long search has found is saved in this form, sent to others, and applied again to the same layers.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import astuple, dataclass, replace
from typing import Any

from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.layers.layer import readers
from tilewright.compiler.npu.schedule.bands import LayerGroup, group_of
from tilewright.compiler.npu.schedule.channels import channel_group
from tilewright.compiler.npu.schedule.problem import Schedule, StepProblem
from tilewright.compiler.npu.schedule.residency import Stay, resident_candidates
from tilewright.compiler.npu.schedule.shape import shape_of
from tilewright.isa.timing import DEFAULT_MEMORY


@dataclass(frozen=True)
class Decisions:
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
        found = [0]
        for count, _ in self.units:
            found.append(found[-1] + count)
        return found


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
    config, layers, outside = problem.config, problem.layers, problem.outside
    able = {stay.first: stay for stay in resident_candidates(layers, outside)}
    stays: list[Stay] = []
    for first, start in decisions.stays:
        if first not in able or not 0 <= start <= config.act_rows - able[first].rows:
            raise CompileError(f"layer {first} cannot leave its output in ACT from row {start}")
        stays.append(replace(able[first], start=start))
    held = {stay.view.buffer for stay in stays}
    read_by = readers(layers)
    units: list[LayerGroup] = []
    at = 0
    for count, step in decisions.units:
        part = layers[at : at + count]
        if count < 1 or len(part) < count:
            raise CompileError(f"the decisions are for other layers than these {len(layers)}")
        if count == 1:
            units.append(LayerGroup((part[0],)))
        else:
            make = group_of if step else functools.partial(channel_group, config)
            group = make(layers, at, count, read_by, outside)
            fits = group is not None and (step == 0 or (step > 0 and step in group.steps([step])))
            if group is None or not fits or any(p.output.buffer in held for p in part[:-1]):
                how = f"{step} rows at a time" if step else "by channels"
                raise CompileError(f"layers {at}..{at + count - 1} cannot run {how}")
            units.append(replace(group, step=step))
        at += count
    if at != len(layers) or any(not 0 <= layer < at for layer, _ in decisions.tiles):
        raise CompileError(f"the decisions are for other layers than these {len(layers)}")
    return Schedule(stays, units, dict(decisions.tiles))


def signature(problem: StepProblem) -> str:
    """Returns a digest that is equal for steps that can share decisions.

    They are for the same machine and memory, and their layers differ only in weights and names.
    """
    timing = [] if problem.memory == DEFAULT_MEMORY else [float(value) for value in astuple(problem.memory)]
    text = repr([problem.config.fingerprint, *timing, *shape_of(problem.layers, problem.outside)[0]])
    return hashlib.sha256(text.encode()).hexdigest()[:24]
