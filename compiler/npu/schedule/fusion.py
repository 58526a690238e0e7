"""Fusion: which neighbouring layers run together as one group.

Every candidate, a layer alone or a group with some number of rows per band, is emitted without writing anything, so
that the work of each engine is counted, once for all candidates of equal shape. Dynamic programming over the sequence
of layers finds the cheapest cut.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from compiler.npu.emit.context import ConstantPool, Context
from compiler.npu.emit.emitter import Emitter
from compiler.npu.emit.scratch import ScratchpadFull
from compiler.npu.layers.layer import Layer, readers
from compiler.npu.schedule.bands import LayerGroup, emit_group, group_of
from compiler.npu.schedule.residency import Stay
from compiler.npu.schedule.shape import shape_of
from isa.instructions import Engine

#: Share of the other engines' work that is not hidden behind the busiest one.
_EXPOSED = 0.04
#: Cycles until all engines work.
_START = 150
#: Rows per band that are tried.
_STEPS = (1, 2, 4, 7, 8, 14, 16, 28)
#: Cycles a layer loses where it waits for the one before within a band.
_HANDOVER = 60


def choose_groups(
    context: Context,
    layers: list[Layer],
    stays: list[Stay],
    outside: set[str],
    drain: float = 0.25,
    longest: int = 8,
) -> tuple[list[LayerGroup], float | None]:
    """Cuts the layers of a step into groups: fused ones, and single layers. And the estimated cycles: infinite if a
    layer does not fit, None where `longest` left no choice.

    Args:
        drain: share of a tile's drain through VECTOR that the next layer of a band is charged for.
        longest: layers in a group at most.
    """
    if longest <= 1:
        return [LayerGroup((layer,)) for layer in layers], None
    read_by = readers(layers)
    held = {s.view.buffer for s in stays}
    best: list[tuple[float, int, LayerGroup]] = [(0.0, 0, LayerGroup(()))]
    for end in range(1, len(layers) + 1):
        alone = best[end - 1][0] + _cost_alone(context, layers, end - 1, stays)
        options = [(alone, end - 1, LayerGroup((layers[end - 1],)))]
        for first in range(end - 2, max(-1, end - 1 - longest), -1):
            if layers[first].output.buffer in held:
                break
            group = group_of(layers, first, end - first, read_by, outside)
            if group is None:
                continue
            cost, step = _cost_group(context, group, first, stays, drain)
            if step:
                options.append((best[first][0] + cost, first, replace(group, step=step)))
        best.append(min(options, key=lambda o: o[0]))
    units: list[LayerGroup] = []
    at = len(layers)
    while at:
        _, at, group = best[at]
        units.append(group)
    return units[::-1], best[-1][0]


def _key(context: Context, layers: Sequence[Layer], first: int, stays: list[Stay], drain: float | None) -> Hashable:
    """Equal for candidates of equal cost: layers of equal shape that find ACT in the same state."""
    shape, number = shape_of(layers)
    alive = [
        (number(stay.view.buffer), stay.border, stay.fill, stay.rows, stay.start, stay.view.n * stay.view.cb)
        for stay in stays
        if stay.first < first + len(layers) and stay.last >= first
    ]
    return repr((context.config.fingerprint, shape, alive, drain))


def _dry(context: Context, stays: list[Stay], first: int, end: int) -> Context:
    """A context that only counts, where ACT holds the tensors that layers first..end-1 find or leave there."""
    dry = Context(context.config, Emitter(context.config, 0, dry=True), ConstantPool(), context.offsets)
    dry.plans = context.plans
    for stay in stays:
        if stay.first < end and stay.last >= first:
            stay.settle(dry)
    dry.emitter.work = dict.fromkeys(dry.emitter.work, 0)
    return dry


def _cycles(context: Context) -> float:
    """Estimate from the work that was counted."""
    work = sorted(context.emitter.work.values())
    return work[-1] + _EXPOSED * sum(work[:-1])


def _cost_alone(context: Context, layers: list[Layer], index: int, stays: list[Stay]) -> float:
    key = _key(context, layers[index : index + 1], index, stays, None)
    known = context.plans.costs.get(key)
    if known is None:
        known = context.plans.costs[key] = _emit_alone(context, layers, index, stays), 0
    return known[0]


def _emit_alone(context: Context, layers: list[Layer], index: int, stays: list[Stay]) -> float:
    layer = layers[index]
    try:
        dry = _dry(context, stays, index, index + 1)
        layer.emit(dry, layer.plan(dry, dry.heap.largest_gap))
    except ScratchpadFull:
        return float("inf")
    return _cycles(dry) + _START


def _cost_group(context: Context, group: LayerGroup, first: int, stays: list[Stay], drain: float) -> tuple[float, int]:
    """Estimated cycles of a group and the rows per band for which they are lowest, 0 rows if it does not fit."""
    key = _key(context, group.layers, first, stays, drain)
    known = context.plans.costs.get(key)
    if known is None:
        known = context.plans.costs[key] = _emit_bands(context, group, first, stays, drain)
    return known


def _emit_bands(context: Context, group: LayerGroup, first: int, stays: list[Stay], drain: float) -> tuple[float, int]:
    best = float("inf"), 0
    for step in group.steps(_STEPS):
        try:
            dry = _dry(context, stays, first, first + len(group.layers))
            totals = emit_group(dry, replace(group, step=step))
        except ScratchpadFull:
            break
        # Within a band a layer waits for the one before: only GEMM and VECTOR of one layer overlap.
        half = context.config.acc_rows // 2
        compute = sum(
            max(gemm, vector) + drain * min(half, gemm, vector) + _HANDOVER
            for work in totals
            for gemm, vector in work.steps
        )
        bus = max(dry.emitter.work[Engine.LOAD], dry.emitter.work[Engine.STORE])
        cost = max(compute, bus) + _EXPOSED * min(compute, bus) + _START
        if cost < best[0]:
            best = cost, step
    return best
