"""More tensors stay in ACT, where exact cycles say that it pays.

Residency is first decided by counting: short lives first, up to a share of ACT, because nobody knows yet what room the
tiles of other layers are worth. Here each tensor that still goes through memory is tried: those that do not find room
beside it go, and the units in which any of them lives are measured with it and without.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import replace

from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule.decisions import decisions_of
from tilewright.compiler.npu.schedule.residency import Stay, place_residents, resident_candidates
from tilewright.compiler.npu.schedule.search import GAIN, Budget, Measure, Schedule, measure_schedule, work_of
from tilewright.isa.config import NpuConfig

#: Instructions that may be measured.
INSTRUCTIONS = 60_000
#: Part of ACT that is left for tiles at least: whether they fit is seen when they are measured.
SPARE = 32
#: A step whose bus works less than this share of the time that GEMM or VECTOR works has next to nothing to gain.
BUS = 0.5
#: Layers that a tensor waits for its last reader at most, to be tried among the first, the largest ones.
SHORT = 8


def restay(
    config: NpuConfig,
    layers: list[Layer],
    outside: set[str],
    schedule: Schedule,
    whole: float,
    measure: Measure,
    plans: TilePlans,
    progress: Callable[[float], None] = lambda done: None,
) -> tuple[Schedule, float]:
    """The schedule, with other tensors on the chip if that is better in all; and its cost.

    Args:
        outside: buffers read after the step.
        whole: cost of the schedule.
        measure: cost function.
        progress: called with the fraction done.
    """
    if len(layers) < 2 or whole == math.inf:
        return schedule, whole
    computing, moving = work_of(config, layers, schedule, plans)
    if moving < BUS * computing:
        return schedule, whole
    budget = Budget(measure, INSTRUCTIONS, progress)
    between = {tensor.view.buffer for unit in schedule.units for tensor in unit.between}
    able = [stay for stay in resident_candidates(layers, outside) if stay.view.buffer not in between]
    starts = decisions_of(schedule).starts()
    best = schedule
    for candidate in sorted(able, key=lambda stay: (stay.last - stay.first >= SHORT, -stay.view.nbytes)):
        if budget.left <= 0:
            break
        if candidate.first in {stay.first for stay in best.stays}:
            continue
        stays = place_residents(config.act_rows, [replace(stay) for stay in (*best.stays, candidate)], SPARE)
        if candidate.first not in {stay.first for stay in stays}:
            continue
        tried, changed = replace(best, stays=stays), _changed(best.stays, stays)
        first, last = min(stay.first for stay in changed), max(stay.last for stay in changed)
        units = bisect.bisect(starts, first) - 1, bisect.bisect(starts, last)
        before, after = (measure_schedule(config, layers, s, budget, plans, units) for s in (best, tried))
        if after < before:
            best = tried
    if best is schedule or not (found := measure_schedule(config, layers, best, measure, plans)) < GAIN * whole:
        return schedule, whole
    return best, found


def _changed(before: list[Stay], after: list[Stay]) -> list[Stay]:
    """Those that are only in one."""
    firsts = [{stay.first for stay in stays} for stays in (before, after)]
    return [stay for stay in (*before, *after) if (stay.first in firsts[0]) != (stay.first in firsts[1])]
