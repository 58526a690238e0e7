"""Groups chosen by exact cycles where estimates may be wrong.

A group's estimate adds up the work of its engines; how much of it overlaps, only the cycle simulator knows. So the
units of the cheapest way to divide the layers are measured, each alone; what is then the cheapest way, by measured
figures where there are some and estimates where not, is measured in its turn, until nothing of it is an estimate or
that brings nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable

from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule.bands import LayerGroup
from tilewright.compiler.npu.schedule.fusion import Candidate, candidates, cheapest, closer_estimate
from tilewright.compiler.npu.schedule.search import (
    GAIN,
    Budget,
    Measure,
    Schedule,
    dry_context,
    measure_schedule,
    measure_units,
    work_of,
)
from tilewright.isa.config import NpuConfig

#: Layers in a group at most.
LONGEST = 8
#: Instructions that may be measured.
INSTRUCTIONS = 80_000
#: How many times as many instructions, which take memory too, other groups may have.
LONGER = 1.25
#: What a look at other groups has to bring, for another one.
BETTER = 0.9995
#: Share of the time that GEMM or VECTOR works, from which on other groups bring next to nothing.
BUSY = 0.95
#: What an estimate is multiplied with: candidates that look a little dearer than they are are measured too.
HOPE = 0.95


def regroup(
    config: NpuConfig,
    layers: list[Layer],
    outside: set[str],
    schedule: Schedule,
    whole: float,
    measure: Measure,
    plans: TilePlans,
    progress: Callable[[float], None] = lambda done: None,
) -> tuple[Schedule, float]:
    """The schedule, with other groups if they are better in all; and its cost.

    Args:
        outside: buffers read after the step.
        whole: cost of the schedule.
        measure: cost function.
        progress: called with the fraction done.
    """
    if len(layers) < 2 or whole == math.inf:
        return schedule, whole
    budget = Budget(measure, INSTRUCTIONS, progress)
    starts = itertools.accumulate((len(unit.layers) for unit in schedule.units), initial=0)
    units = [_unit(first, unit) for first, unit in zip(starts, schedule.units)]
    known: dict[Hashable, float] = {}
    lengths: dict[Hashable, int] = {}

    def tiles(of: Candidate) -> dict[int, tuple[int, ...]]:
        """Those that its layers have in the schedule, by number: a group by channels, where the schedule has it."""
        if of.group.by_channel and _unit(of.first, of.group) not in units:
            return {}
        return {n: schedule.tiles[n] for n in of.group.tiled(of.first) if n in schedule.tiles}

    def key(of: Candidate) -> Hashable:
        return of.key, tuple((n - of.first, tile) for n, tile in tiles(of).items())

    def look(at: Candidate) -> float:
        if key(at) not in known:
            before = budget.left
            known[key(at)] = measure_units(config, layers, schedule, [at.group], at.first, budget, plans)
            lengths[key(at)] = before - budget.left
        return known[key(at)]

    every = candidates(dry_context(config, plans), layers, schedule.stays, outside, closer_estimate, LONGEST, True)
    numbered = {_unit(c.first, c.group): c for options in every for c in options}
    usual = [numbered[unit] for unit in units]
    estimate = sum(candidate.estimate for candidate in usual)
    if work_of(config, layers, schedule, plans)[0] > BUSY * whole:
        return schedule, whole
    alone = sum(look(candidate) for candidate in usual if budget.left > 0)
    if budget.left <= 0:
        return schedule, whole
    scale = HOPE * alone / estimate
    shared = max(0.0, alone - whole) / max(1, len(usual) - 1)  # of a unit, with those beside it

    def cost(of: Candidate) -> float:
        return known.get(key(of), scale * of.estimate) - shared

    def measured() -> tuple[list[Candidate], float]:
        return cheapest(every, lambda candidate: known.get(key(candidate), math.inf) - shared)

    path, least = measured()
    while budget.left > 0:
        hoped, _ = cheapest(every, cost)
        unknown = [candidate for candidate in hoped if key(candidate) not in known]
        for candidate in sorted(unknown, key=lambda c: -c.estimate):
            if budget.left > 0:
                look(candidate)
        path, found = measured()
        if not unknown or found > BETTER * least:
            break
        least = found
    if _on_chip(c.group for c in path) < _on_chip(schedule.units):
        return schedule, whole  # tensors that were on the chip would need room in memory
    if sum(lengths[key(c)] for c in path) > LONGER * sum(lengths[key(c)] for c in usual):
        return schedule, whole
    kept = {number: tile for candidate in path for number, tile in tiles(candidate).items()}
    better = Schedule(schedule.stays, [candidate.group for candidate in path], kept)
    found = measure_schedule(config, layers, better, measure, plans)
    return (better, found) if found < GAIN * whole else (schedule, whole)


def _on_chip(units: Iterable[LayerGroup]) -> int:
    """Bytes of the tensors between fused layers."""
    return sum(tensor.view.nbytes for unit in units for tensor in unit.between)


def _unit(first: int, group: LayerGroup) -> tuple[int, int, int]:
    """Number of its first layer, of its layers, and its rows per band."""
    return first, len(group.layers), group.step
