"""Schedule search over whole NPU steps, by exact cycles.

A policy sets the share of ACT for residents, the charge of a fused group for hand-overs, and the largest group;
residency and fusion follow from it by estimates. With effort 2 and 3 several policies are emitted and their cycles
measured by a cost function of the caller (the cycle-level simulator), in parallel.
"""

from __future__ import annotations

import itertools
import math
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.common.errors import TilewrightError
from tilewright.common.processes import Command, Outcome, processors, run_all
from tilewright.compiler.npu.emit.scratch import ScratchpadFull
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule.comparison import compared
from tilewright.compiler.npu.schedule.emission import emit_step
from tilewright.compiler.npu.schedule.fusion import choose_groups
from tilewright.compiler.npu.schedule.problem import Costed, Schedule, StepProblem
from tilewright.compiler.npu.schedule.residency import choose_residents
from tilewright.isa.config import NpuConfig

#: Up to this many policies are measured in-process; more go to workers.
_MOST_IN_PROCESS = 3
#: Cost that a policy with groups by channels may have over that of others at first: there are fewer tiles to choose
#: from later.
_CHANNELS_MARGIN = 0.99


@dataclass(frozen=True)
class Policy:
    """A policy, from which residency and fusion follow by estimates.

    Attributes:
        share: share of ACT rows that resident tensors may take.
        drain: share of a tile's drain that the next layer of a fused band is charged for.
        longest: largest number of layers in a fused group, 1 = no fusion.
        chunks: True to also run layers by channels where only exact cycles can tell whether that pays.
    """

    share: float = 0.6
    drain: float = 0.25
    longest: int = 8
    chunks: bool = False


def policies(effort: int) -> list[Policy]:
    """Returns the policies an effort tries; the first is the default."""
    if effort <= 0:
        return [Policy(longest=1)]
    found = [Policy(), Policy(chunks=True)]
    if effort >= 2:
        found += [Policy(share, drain) for share in (0.35, 0.6, 0.8) for drain in (0.0, 0.25, 1.0)]
        found.append(Policy(longest=1))
    if effort >= 3:
        grid = itertools.product((0.2, 0.45, 0.7, 0.9), (0.0, 0.12, 0.5), (3, 5, 8))
        found += [Policy(*values) for values in grid]
    return list(dict.fromkeys(found))


def misfits(config: NpuConfig, layers: list[Layer]) -> dict[str, str]:
    """Returns the layers that no tiling fits even with all of ACT to themselves: the reason, by the layer's source."""
    context = StepProblem(config, layers, set()).dry_context()
    found = {}
    for layer in layers:
        if not layer.fits(context, config.act_rows):
            found[layer.source] = f"does not fit the scratchpads of {config.name!r}: {layer.name}: no tile fits"
    return found


def make_schedule(problem: StepProblem, policy: Policy) -> Schedule:
    """Returns residency and fusion under a policy.

    If it does not fit, they follow policies with fewer residents, and then without fusion.
    """
    for tried in (policy, replace(policy, share=policy.share / 2), Policy(policy.share / 2, longest=1)):
        stays = choose_residents(problem.config, problem.layers, problem.outside, tried.share)
        units, cost = choose_groups(
            problem.dry_context(), problem.layers, stays, problem.outside, tried.drain, tried.longest, tried.chunks
        )
        if cost == math.inf:
            continue
        if cost is None:  # nobody has looked at the layers yet
            try:
                emit_step(problem.dry_context(), units, stays)
            except TilewrightError:
                continue
        return Schedule(stays, units)
    return Schedule.plain(problem.layers)


def measure_policy(problem: StepProblem, policy: Policy) -> float:
    """Returns the cost of a step under a policy, infinite if it does not fit."""
    alone = problem.fresh()
    try:
        schedule = make_schedule(alone, policy)
    except (ScratchpadFull, TilewrightError):
        return math.inf
    return alone.cost(schedule)


def search(
    problem: StepProblem, effort: int, progress: Callable[[float], None] = lambda done: None
) -> tuple[Schedule, float | None]:
    """Returns the best schedule of a step that `effort` finds, and its cost if it was measured here, else None.

    Without a cost function the default policy is used.

    Args:
        problem: the step.
        effort: search effort, 0 to 3.
        progress: called with the fraction done.
    """
    options = policies(effort)
    if len(options) == 1 or problem.measure is None:
        return make_schedule(problem, options[0]), None
    if len(options) <= _MOST_IN_PROCESS:
        found = [make_schedule(problem, policy) for policy in options]
        if all(schedule == found[0] for schedule in found[1:]):
            return found[0], None
        first = Costed(found[0], problem.cost(found[0]))
        measured = [first, *(compared(problem, first, schedule) for schedule in found[1:])]
        margins = [_CHANNELS_MARGIN if policy.chunks else 1 for policy in options]
        return min(zip(measured, margins, strict=True), key=lambda one: one[0].cost / one[1])[0]
    workers = min(processors(), len(options))
    shares = [options[i::workers] for i in range(workers)]
    costs = _in_processes(problem, shares, lambda count: progress(count / len(shares)))
    best = min(options, key=lambda policy: costs[policy])
    return make_schedule(problem, best), costs[best]


def _in_processes(problem: StepProblem, shares: list[list[Policy]], done: Callable[[int], None]) -> dict[Policy, float]:
    """Returns the costs of policies, measured in a process for each share (in this one if none can be started).

    Args:
        problem: the step.
        shares: policies of each process.
        done: called with the number of processes that have ended.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    arguments = [sys.executable, "-m", "tilewright.compiler.npu.schedule.worker"]
    jobs = [Command(arguments, pickle.dumps((problem.fresh(), share)), environment) for share in shares]
    costs: dict[Policy, float] = {}
    try:
        outcomes: list[Outcome | None] = [*run_all(jobs, len(jobs), done)]
    except OSError:
        outcomes = [None] * len(shares)
    for share, outcome in zip(shares, outcomes):
        if outcome is not None and outcome.status == 0:
            found, said = pickle.loads(outcome.output)
            costs |= found
            for text in said:
                warnings.warn(text, RuntimeWarning, stacklevel=2)
        else:
            costs |= {policy: measure_policy(problem, policy) for policy in share}
    return costs
