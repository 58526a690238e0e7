"""Emission of one NPU step: residents come and go, groups of layers are cut into tiles and written out."""

from __future__ import annotations

from compiler.errors import CompileError
from compiler.npu.emit.context import Context
from compiler.npu.emit.scratch import ScratchpadFull
from compiler.npu.layers.layer import Layer
from compiler.npu.schedule.bands import LayerGroup, emit_group
from compiler.npu.schedule.residency import Stay
from isa.program import Layer as LayerRow


def emit_step(context: Context, units: list[LayerGroup], stays: list[Stay], start: int = 0) -> list[LayerRow]:
    """Emits all layers and END; returns their report rows.

    Args:
        units: groups of layers in order.
        stays: tensors that live in ACT between layers.
        start: number of the first layer; what earlier layers leave in ACT is taken to be there.

    Raises:
        CompileError: a layer that no tiling fits.
    """
    rows: list[LayerRow] = []
    for stay in stays:
        if stay.first < start <= stay.last:
            stay.settle(context)
    for unit in units:
        index = start + len(rows)
        covered = range(index, index + len(unit.layers))
        first = context.emitter.position
        for stay in stays:
            if stay.first in covered:
                stay.settle(context)
        try:
            rows += _emit_group(context, unit) if unit.fused else [_emit_one(context, unit.layers[0])]
        except ScratchpadFull as error:
            c, layer = context.config, unit.layers[0]
            raise CompileError(
                f"{layer.op} {layer.name!r} does not fit configuration {c.name!r} "
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
    plan = layer.plan(context, context.heap.largest_gap)
    layer.emit(context, plan)
    return LayerRow(
        name=layer.name,
        op=layer.op,
        where="npu",
        first=first,
        count=emitter.position - first,
        macs=layer.macs,
        read_bytes=emitter.read_bytes - read,
        write_bytes=emitter.write_bytes - written,
        tile=str(plan.tiling),
    )


def _emit_group(context: Context, group: LayerGroup) -> list[LayerRow]:
    """Emits fused layers. Their instructions are interleaved, so that all are reported with the first layer."""
    first = context.emitter.position
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
            tile=f"fused, {group.step} lines" if k == 0 else "with the layer before",
        )
        for k, layer in enumerate(group.layers)
    ]
