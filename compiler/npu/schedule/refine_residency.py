"""Residency refined by exact cycles: more tensors stay in ACT where that pays.

Residency is first decided by an estimate: short lives first, up to a share of ACT, because the value of room for other
layers' tiles is not known yet. Here each tensor that still goes through memory is tried: tensors that no longer fit
beside it leave ACT, and the units in which any of them lives are measured before and after.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import replace

from tilewright.compiler.npu.schedule.comparison import compared
from tilewright.compiler.npu.schedule.problem import GAIN, Costed, StepProblem
from tilewright.compiler.npu.schedule.residency import Stay, place_residents, resident_candidates

#: Instructions that may be measured.
INSTRUCTIONS = 60_000
#: Divisor of ACT: at least this part is left for tiles; the measurement shows whether they fit.
SPARE = 32
#: Ratio of bus time to time of GEMM or VECTOR, below which a step has next to nothing to gain.
BUS = 0.5
#: Layers until a tensor's last reader: tensors with fewer are tried first, the largest ones first.
SHORT = 8


def refine_residency(
    problem: StepProblem, start: Costed, progress: Callable[[float], None] = lambda done: None
) -> Costed:
    """Returns the schedule with other tensors in ACT, if the whole step is cheaper with them.

    Args:
        problem: the step.
        start: the schedule and its cost.
        progress: called with the fraction done.
    """
    schedule, cost = start
    if len(problem.layers) < 2 or cost == math.inf:
        return start
    computing, moving = problem.busy_cycles(schedule)
    if moving < BUS * computing:
        return start
    budgeted, budget = problem.budgeted(INSTRUCTIONS, progress)
    between = {tensor.view.buffer for unit in schedule.units for tensor in unit.between}
    able = [stay for stay in resident_candidates(problem.layers, problem.outside) if stay.view.buffer not in between]
    starts = schedule.starts()
    best = schedule
    for candidate in sorted(able, key=lambda stay: (stay.last - stay.first >= SHORT, -stay.view.nbytes)):
        if budget.left <= 0:
            break
        if candidate.first in {stay.first for stay in best.stays}:
            continue
        stays = place_residents(problem.config.act_rows, [replace(stay) for stay in (*best.stays, candidate)], SPARE)
        if candidate.first not in {stay.first for stay in stays}:
            continue
        tried, changed = replace(best, stays=stays), _changed(best.stays, stays)
        first, last = min(stay.first for stay in changed), max(stay.last for stay in changed)
        units = bisect.bisect(starts, first) - 1, bisect.bisect(starts, last)
        before, after = (budgeted.cost(either, units) for either in (best, tried))
        if after < before:
            best = tried
    if best is schedule:
        return start
    found = compared(problem, start, best)
    return found if found.cost < GAIN * cost else start


def _changed(before: list[Stay], after: list[Stay]) -> list[Stay]:
    """Returns the stays that are in one of the two lists only."""
    firsts = [{stay.first for stay in stays} for stays in (before, after)]
    return [stay for stay in (*before, *after) if (stay.first in firsts[0]) != (stay.first in firsts[1])]
