"""Emits the layers of one NPU step: residents come and go, layers are planned and written out, alone
or in fused groups."""

from __future__ import annotations

from compiler.errors import CompileError
from compiler.npu.bands import Group, emit_group
from compiler.npu.context import Context
from compiler.npu.layers import ConvLayer, DepthwiseLayer, Layer
from compiler.npu.plans import emit_layer, plan_layer
from compiler.npu.residency import Stay
from compiler.npu.scratch import ScratchpadFull
from isa.program import ARENA_REGION
from isa.program import Layer as LayerRow


def emit_step(context: Context, units: list[Group | Layer], stays: list[Stay], start: int = 0) -> list[LayerRow]:
    """Emits all layers and END; returns their report rows.

    Args:
        units: single layers and groups in order.
        stays: tensors that live in ACT between layers.
        start: number of the first layer; what earlier layers left in ACT is taken to be there.

    Raises:
        CompileError: a layer that no tiling fits.
    """
    rows: list[LayerRow] = []
    for stay in stays:
        if stay.first < start <= stay.last:
            context.make_resident(stay.view, stay.border, stay.fill, stay.start)
    for unit in units:
        index = start + len(rows)
        members = list(unit.layers) if isinstance(unit, Group) else [unit]
        covered = range(index, index + len(members))
        first = context.emitter.position
        for stay in stays:
            if stay.first in covered:
                context.make_resident(stay.view, stay.border, stay.fill, stay.start)
        try:
            rows += _emit_group(context, unit) if isinstance(unit, Group) else [_emit_one(context, unit)]
        except ScratchpadFull as error:
            c = context.config
            raise CompileError(
                f"{members[0].op} {members[0].name!r} does not fit configuration {c.name!r} "
                f"({c.act_rows} ACT rows, {c.wgt_tiles} tiles, {c.acc_rows} ACC rows): {error}"
            ) from None
        head = rows[index - start]  # the borders of residents are filled for the layer that makes them
        head.count += head.first - first
        head.first = first
        for stay in stays:
            if stay.last in covered:
                context.drop(stay.view.buffer)
    context.end_step()
    return rows


def _emit_one(context: Context, layer: Layer) -> LayerRow:
    emitter = context.emitter
    first, read, written = emitter.position, emitter.read_bytes, emitter.write_bytes
    minimum = _minimum(context, layer, set())
    plan = plan_layer(context, layer, context.heap.largest_gap)
    emit_layer(context, layer, plan)
    return LayerRow(
        name=layer.name,
        op=layer.op,
        where="npu",
        first=first,
        count=emitter.position - first,
        macs=layer.macs,
        read_bytes=emitter.read_bytes - read,
        write_bytes=emitter.write_bytes - written,
        minimum_bytes=minimum,
        tile=str(plan),
    )


def _emit_group(context: Context, group: Group) -> list[LayerRow]:
    """The instructions of a group are interleaved: they are reported with its first layer."""
    first = context.emitter.position
    inside = {t.view.buffer for t in group.between}
    minimum = [_minimum(context, layer, inside) for layer in group.layers]
    totals = emit_group(context, group)
    count = context.emitter.position - first
    return [
        LayerRow(
            name=layer.name,
            op=layer.op,
            where="npu",
            first=first if k == 0 else first + count,
            count=count if k == 0 else 0,
            macs=layer.macs,
            read_bytes=totals[k].read_bytes,
            write_bytes=totals[k].write_bytes,
            minimum_bytes=minimum[k],
            tile=f"fused, {group.step} lines" if k == 0 else "with the layer before",
        )
        for k, layer in enumerate(group.layers)
    ]


def _minimum(context: Context, layer: Layer, inside: set[str]) -> int:
    """Weights and parameters once, and the activations that are not on the chip, once each."""
    weights = 0
    if isinstance(layer, ConvLayer):
        weights = sum(p.weights.size for p in layer.phases) + 8 * layer.output.c
    elif isinstance(layer, DepthwiseLayer):
        weights = layer.weights.size + 8 * layer.output.c
    views = [*layer.inputs, layer.output, *([layer.post.add.other] if layer.post.add is not None else [])]
    moved = {
        v.buffer: v.nbytes
        for v in views
        if v.region == ARENA_REGION and not context.on_chip(v) and v.buffer not in inside
    }
    return weights + sum(moved.values())
