"""The search for the schedule of an NPU step, by exact cycles.

It begins with the schedules that follow from policies by estimates, and goes on from the best of them by moves: those
that promise most, and with more effort all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from tilewright.common.errors import TilewrightError
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule.decisions import decisions_of, schedule_of
from tilewright.compiler.npu.schedule.descent import Budgeted, Descent, Found, cost_of
from tilewright.compiler.npu.schedule.emission import emit_step
from tilewright.compiler.npu.schedule.fusion import choose_groups
from tilewright.compiler.npu.schedule.moves import Move
from tilewright.compiler.npu.schedule.problem import Budget, Measure, Schedule, StepProblem
from tilewright.compiler.npu.schedule.promising import group_moves, keep_moves, tile_moves
from tilewright.compiler.npu.schedule.repeats import Repeats
from tilewright.compiler.npu.schedule.residency import choose_residents
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import DeviceError

#: Cost that a policy with groups by channels may have over that of others at first: there are fewer tiles to choose
#: from later.
_CHANNELS_MARGIN = 0.99
#: Instructions that may be measured for tiles, for tensors in ACT, for groups, and by effort for all other moves.
INSTRUCTIONS = (400_000, 60_000, 80_000)
MORE = (0, 0, 400_000, 4_000_000)
#: Tilings of a layer that are measured, by effort: the least, and the most where a step has so few instructions that
#: this many measure them in all layers.
TILES = ((0, 0), (3, 12), (8, 12), (16, 16))
#: Largest cost of a step whose tiles are measured, by effort: for longer steps it takes too long.
LONGEST = (0, 600_000, 20_000_000, 200_000_000)


class Policy(Struct, frozen=True):
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
    return [Policy(), Policy(chunks=True)] if effort > 0 else [Policy(longest=1)]


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
        units, cost = choose_groups(problem, stays, tried.drain, tried.longest, tried.chunks)
        if cost == math.inf:
            continue
        if cost is None:  # nobody has looked at the layers yet
            try:
                emit_step(problem.dry_context(), units, stays)
            except TilewrightError:
                continue
        return Schedule(stays, units)
    return Schedule.plain(problem.layers)


def search(
    problem: StepProblem,
    effort: int,
    progress: Callable[[float], None] = lambda done: None,
    room: int = 0,
) -> Schedule:
    """Returns the best schedule of a step that `effort` finds; without a cost function that of the default policy.

    Args:
        problem: the step.
        effort: search effort, 0 to 3.
        progress: called with the fraction done.
        room: as that of repeats, where some are left out already, 0 where none are.

    Raises:
        RuntimeError: no schedule makes a program that the machine runs.
    """
    options = policies(effort)
    if len(options) == 1 or problem.measure is None:
        return make_schedule(problem, options[0])
    if (repeats := Repeats.of(problem, room)) is not None:
        short = repeats.shortened(problem)
        expanded = repeats.expanded(short, decisions_of(search(short, effort, progress, repeats.room)))
        if expanded is not None:
            return schedule_of(problem, expanded)
    best = _searched(problem, effort, progress)
    if best.cost < math.inf:
        return schedule_of(problem, best.decisions)
    plain = Schedule.plain(problem.layers)
    problem.measured_by(_internal_fault_on_stop(problem.measure)).cost(plain)
    return plain


def _searched(problem: StepProblem, effort: int, progress: Callable[[float], None]) -> Found:
    """Returns the best schedule that is found, with its exact cost."""
    start = _start(problem, effort)
    tiles = TILES[effort] if start.cost <= LONGEST[effort] else (0, 0)

    def budget(part: int) -> Budget:
        instructions = (*INSTRUCTIONS, MORE[effort])[part]
        return Budget(problem.plans, instructions, lambda done: progress((part + done) / (len(INSTRUCTIONS) + 1)))

    sources: list[Callable[[Descent, Budget], Iterator[Move]]] = [
        lambda search, budget: tile_moves(search, *tiles),
        lambda search, budget: keep_moves(search),
        group_moves,
    ]
    search = Descent(problem, start, Budgeted(problem, left := budget(0)))
    for part, source in enumerate(sources, 1):
        search.run(source(search, left))
        search.settle()
        search.evaluator = Budgeted(problem, left := budget(part))
    if effort > 1 and search.best.cost < math.inf:
        search.gain = 1
        search.descend()
    return search.best


def _start(problem: StepProblem, effort: int) -> Found:
    """Returns the best schedule that follows from a policy."""
    found: list[Found] = []
    for policy in policies(effort):
        decisions = decisions_of(make_schedule(problem, policy))
        if all(decisions != other.decisions for other in found):
            found.append(Found(decisions, cost_of(problem, decisions)))
    return min(zip(found, (1, _CHANNELS_MARGIN)), key=lambda one: one[0].cost / one[1])[0]


def _internal_fault_on_stop(measure: Measure) -> Measure:
    """Returns a cost function with which a program that the machine stops is an internal fault."""

    def measured(config: NpuConfig, image: bytes, arena_bytes: int) -> float:
        try:
            return measure(config, image, arena_bytes)
        except DeviceError as error:
            raise RuntimeError(f"no schedule makes a program that runs: {error}") from error

    return measured
