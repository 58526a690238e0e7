"""Fusion: the choice of neighbouring layers that run together as one group.

Every candidate, a single layer or a group with some number of rows per band, is emitted without writing anything, so
that the work of each engine is counted, once for all candidates of equal shape. Dynamic programming over the sequence
of layers finds the cheapest cut.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.plan import BandedWork
from tilewright.compiler.npu.emit.scratch import ScratchpadFull
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule import channels
from tilewright.compiler.npu.schedule.bands import LayerGroup, emit_group
from tilewright.compiler.npu.schedule.parts import emit_part
from tilewright.compiler.npu.schedule.problem import StepProblem
from tilewright.compiler.npu.schedule.residency import Stay, outside_groups
from tilewright.compiler.npu.schedule.shape import together
from tilewright.isa.instructions import Engine

#: Share of the other engines' work that is not hidden behind the busiest one.
_EXPOSED = 0.04
#: Cycles until all engines work.
_START = 150
#: Rows per band that are tried, and the number of those that fit, largest first: the smaller a band, the more often
#: layers wait for each other.
_STEPS, _MOST_STEPS = (1, 2, 4, 7, 8, 14, 16, 28), 4
#: Cycles a layer loses where it waits for the one before within a band.
_HANDOVER = 20


class Candidate(NamedTuple):
    """A way to run neighbouring layers: one alone, or several as a group with some number of rows per band.

    Attributes:
        first: number of the first layer.
        group: the layers.
        key: equal for candidates of equal cost.
        estimate: estimated cycles, infinite for a layer that does not fit.
    """

    first: int
    group: LayerGroup
    key: Hashable
    estimate: float

    @property
    def unit(self) -> tuple[int, int]:
        """The number of layers, and the rows of the last output per band."""
        return len(self.group.layers), self.group.step


def candidates(
    problem: StepProblem,
    stays: list[Stay],
    estimate: Callable[[BandedWork], float],
    longest: int,
    chunks: bool = False,
) -> list[list[Candidate]]:
    """Returns all candidates, by the number of their last layer.

    Args:
        problem: the step.
        stays: tensors that stay in ACT.
        estimate: returns the estimated cycles of a group.
        longest: largest number of layers in a group.
        chunks: True to include groups by channels of which only a measurement can tell whether they pay.
    """
    context, layers = problem.dry_context(), problem.layers
    held = {s.view.buffer for s in stays}
    found = []
    for end in range(1, len(layers) + 1):
        single = LayerGroup((layers[end - 1],))
        key, cycles = _cost(context, single, end - 1, stays)
        options = [Candidate(end - 1, single, (key, 0), cycles)]
        for first in range(end - 2, max(-1, end - 1 - longest), -1):
            if layers[first].output.buffer in held:
                break
            group = problem.group(first, end - first, by_channel=False)
            if group is None:
                continue
            key, steps = _work_of_group(context, group, first, stays)
            for work in steps:
                banded = replace(group, step=work.step)
                options.append(Candidate(first, banded, (key, work.step), estimate(work)))
        for first in range(end - 2, max(-1, end - 1 - channels.LONGEST), -1):
            group = problem.group(first, end - first, by_channel=True)
            if group is not None and (chunks or channels.hides_weights(context.config, group)):
                key, cycles = _cost(context, group, first, stays)
                options.append(Candidate(first, group, (key, 0), cycles))
        found.append(options)
    return found


def cheapest(
    found: list[list[Candidate]], cost: Callable[[Candidate], float] = attrgetter("estimate")
) -> tuple[list[Candidate], float]:
    """Returns the candidates that together run all layers at the least cost, and that cost."""
    best: list[tuple[float, Candidate | None]] = [(0.0, None)]
    for options in found:
        best.append(min(((best[c.first][0] + cost(c), c) for c in options), key=itemgetter(0)))
    path: list[Candidate] = []
    at = len(found)
    while (last := best[at][1]) is not None:
        path.append(last)
        at = last.first
    return path[::-1], best[-1][0]


def choose_groups(
    problem: StepProblem,
    stays: list[Stay],
    drain: float = 0.25,
    longest: int = 8,
    chunks: bool = False,
) -> tuple[list[LayerGroup], float | None]:
    """Cuts the layers of a step into fused groups and single layers; returns them with their estimated cycles.

    The cycles are infinite if a layer does not fit, and None if `longest` leaves no choice.

    Args:
        problem, stays: as for `candidates`.
        drain: share of a tile's drain through VECTOR that the next layer of a band is charged for.
        longest, chunks: as for `candidates`.
    """
    if longest <= 1:
        return [LayerGroup((layer,)) for layer in problem.layers], None
    path, cost = cheapest(candidates(problem, stays, lambda work: _estimate(work, drain), longest, chunks))
    return [candidate.group for candidate in path], cost


def _key(context: Context, layers: Sequence[Layer], first: int, stays: list[Stay]) -> Hashable:
    """Returns a key that is equal for candidates of equal cost.

    These have layers of equal shape that find ACT in the same state.
    """
    shapes, numbers = together(context.plans.shapes, layers)
    end = first + len(layers)
    alive = [stay.place_key(numbers) for stay in stays if stay.first < end and stay.last >= first]
    return shapes, tuple(alive)


def _dry(context: Context, stays: list[Stay], first: int, end: int) -> Context:
    """Returns a context that only counts, where ACT holds the tensors that layers first..end-1 find or leave there."""
    emitter = Emitter(context.config, 0, dry=True, memory=context.memory)
    dry = Context(context.config, emitter, ConstantPool(), context.offsets, plans=context.plans)
    for stay in stays:
        if stay.first < end and stay.last >= first:
            stay.settle(dry)
    dry.emitter.forget_work()
    return dry


def _cycles(context: Context) -> float:
    """Returns the cycles estimated from the work that was counted."""
    work = sorted(context.emitter.work.values())
    return work[-1] + _EXPOSED * sum(work[:-1])


def _cost(context: Context, group: LayerGroup, first: int, stays: list[Stay]) -> tuple[Hashable, float]:
    """Returns the key and the estimated cycles of a single layer or a group that runs by channels."""
    key = _key(context, group.layers, first, stays)
    known = context.plans.alone.get(key)
    if known is None:
        known = context.plans.alone[key] = _emit_unbanded(context, group, first, stays)
    return key, known


def _emit_unbanded(context: Context, group: LayerGroup, first: int, stays: list[Stay]) -> float:
    """Returns the estimated cycles of a single layer or a group that runs by channels; infinite if it does not fit."""
    layer = group.layers[0]
    try:
        dry = _dry(context, outside_groups(stays, [group]), first, first + len(group.layers))
        if group.by_channel:
            channels.emit_channels(dry, group)
        else:
            emit_part(dry, layer, layer.plan(dry, dry.heap.largest_gap))
    except ScratchpadFull:
        return float("inf")
    return _cycles(dry) + _START


def _work_of_group(
    context: Context, group: LayerGroup, first: int, stays: list[Stay]
) -> tuple[Hashable, list[BandedWork]]:
    """Returns the key of a group, and its work for every number of rows per band that fits."""
    key = _key(context, group.layers, first, stays)
    known = context.plans.banded.get(key)
    if known is None:
        known = context.plans.banded[key] = list(_emit_bands(context, group, first, stays))
    return key, known


def _emit_bands(context: Context, group: LayerGroup, first: int, stays: list[Stay]) -> Iterator[BandedWork]:
    """Yields the work of a group for the numbers of rows per band that fit, most rows first."""
    half, fitting = context.config.acc_rows // 2, 0
    for step in sorted(group.steps(_STEPS), reverse=True):
        try:
            dry = _dry(context, stays, first, first + len(group.layers))
            totals = emit_group(dry, replace(group, step=step))
        except ScratchpadFull:
            continue
        fitting += 1
        # Within a band a layer waits for the one before: only GEMM and VECTOR of one layer overlap.
        steps = [one for work in totals if work.ahead is None for one in work.steps]
        beside = [sum(work) for work in zip(*(one for work in totals for one in work.steps), strict=True)]
        compute = max(sum(max(one[:2]) + _HANDOVER for one in steps), *beside[:2])
        drained = sum(min(half, *one[:2]) for one in steps)
        serial = max(sum(max(one) + _HANDOVER for one in steps), *beside)
        bus = max(dry.emitter.work[Engine.LOAD], dry.emitter.work[Engine.STORE])
        yield BandedWork(step, compute, drained, serial, bus)
        if fitting == _MOST_STEPS:
            return


def _estimate(work: BandedWork, drain: float) -> float:
    """Returns the estimated cycles of a group.

    Args:
        work: the work of the group.
        drain: share of a tile's drain through VECTOR that counts.
    """
    compute = work.compute + drain * work.drained
    return max(compute, work.bus) + _EXPOSED * min(compute, work.bus) + _START


def closer_estimate(work: BandedWork) -> float:
    """Returns the mean of two estimates of a group's cycles.

    In one, transfers overlap with all layers of a band; in the other, only with their own layer.
    """
    return (_estimate(work, 0.0) + work.serial + _START) / 2
