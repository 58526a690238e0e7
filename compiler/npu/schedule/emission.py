"""Emission of one NPU step: residents come and go, groups of layers are cut into tiles and written out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from compiler.errors import CompileError
from compiler.npu.emit.context import Context
from compiler.npu.emit.plane_sums import PlaneSums, sum_rows
from compiler.npu.emit.scratch import ScratchpadFull
from compiler.npu.layers.layer import Layer
from compiler.npu.schedule.bands import LayerGroup, emit_group
from compiler.npu.schedule.residency import Stay
from compiler.npu.views import same_box
from isa.config import NpuConfig
from isa.program import Layer as LayerRow

#: Sums of planes may take this part of ACC.
_SUMS = 4
#: How the report says that a layer runs with the one before it.
_TOGETHER = "with the layer before"


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
    for unit, mean in _with_means(context.config, units, stays):
        index = start + len(rows)
        covered = range(index, index + len(unit.layers) + (mean is not None))
        first = context.emitter.position
        for stay in stays:
            if stay.first in covered:
                stay.settle(context)
        try:
            rows += _emit_unit(context, unit) if mean is None else _emit_with_mean(context, unit, mean)
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


def _with_means(
    config: NpuConfig, units: list[LayerGroup], stays: list[Stay]
) -> Iterator[tuple[LayerGroup, Layer | None]]:
    """The units, each with the layer behind it if that needs only sums over planes of what the unit makes, and would
    have to load them or is slower on VECTOR: the array makes the sums beside the unit."""
    slower = config.vector_passes > sum_rows(config)
    near = set() if slower else {stay.view.buffer for stay in stays}
    taken = False
    for unit, following in itertools.zip_longest(units, units[1:]):
        if taken:
            taken = False
            continue
        view = following.layers[0].summed if following is not None and not following.fused else None
        taken = (
            view is not None
            and view.buffer not in near
            and view.bytes == 1
            and PlaneSums.rows(config, view) <= config.acc_rows // _SUMS
            and any(same_box(layer.output, view) for layer in unit.layers)
        )
        yield unit, following.layers[0] if taken else None


def _emit_with_mean(context: Context, unit: LayerGroup, mean: Layer) -> list[LayerRow]:
    """Emits a unit and a layer of sums over planes beside it. All instructions are reported with the first layer."""
    assert mean.summed is not None
    context.sums = sums = PlaneSums(context, mean.summed)
    rows = _emit_unit(context, unit)
    first, written = context.emitter.position, context.emitter.write_bytes
    sums.end()
    context.sums = None
    mean.emit_summed(context, sums.acc)
    rows[0].count += context.emitter.position - first
    end = rows[0].first + rows[0].count
    for row in rows[1:]:
        row.first = end
    return [*rows, _row(mean, end, 0, 0, context.emitter.write_bytes - written, _TOGETHER)]


def _emit_unit(context: Context, unit: LayerGroup) -> list[LayerRow]:
    return _emit_group(context, unit) if unit.fused else [_emit_one(context, unit.layers[0])]


def _emit_one(context: Context, layer: Layer) -> LayerRow:
    emitter = context.emitter
    first, read, written = emitter.position, emitter.read_bytes, emitter.write_bytes
    plan = layer.plan(context, context.heap.largest_gap)
    layer.emit(context, plan)
    return _row(
        layer, first, emitter.position - first, emitter.read_bytes - read, emitter.write_bytes - written,
        str(plan.tiling),
    )  # fmt: skip


def _emit_group(context: Context, group: LayerGroup) -> list[LayerRow]:
    """Emits fused layers. Their instructions are interleaved, so that all are reported with the first layer."""
    first = context.emitter.position
    totals = emit_group(context, group)
    count = context.emitter.position - first
    return [
        _row(
            layer, first if k == 0 else first + count, count if k == 0 else 0, totals[k].read_bytes,
            totals[k].write_bytes, f"fused, {group.step} lines" if k == 0 else _TOGETHER,
        )
        for k, layer in enumerate(group.layers)
    ]  # fmt: skip


def _row(layer: Layer, first: int, count: int, read: int, written: int, tile: str) -> LayerRow:
    """The report of a layer: instructions, bytes, how it was cut."""
    return LayerRow(
        name=layer.name, op=layer.op, where="npu", first=first, count=count, macs=layer.macs, read_bytes=read,
        write_bytes=written, tile=tile,
    )  # fmt: skip
