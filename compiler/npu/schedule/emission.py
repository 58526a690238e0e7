"""Emission of one NPU step: tensors stay in ACT or leave it, groups of layers are cut into tiles and written."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.plane_sums import PlaneSums, sum_rows
from tilewright.compiler.npu.emit.scratch import ScratchpadFull
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule.bands import LayerGroup, emit_group
from tilewright.compiler.npu.schedule.channels import emit_channels
from tilewright.compiler.npu.schedule.parts import emit_part
from tilewright.compiler.npu.schedule.residency import Stay, outside_groups
from tilewright.compiler.npu.views import View, same_box
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layer as LayerRow

#: Divisor of ACC: plane sums take at most this part.
_SUMS = 4
#: The report's text for a layer that runs with the one before it.
_TOGETHER = "with the layer before"


def emit_step(context: Context, units: list[LayerGroup], stays: list[Stay], start: int = 0) -> list[LayerRow]:
    """Emits all layers and END; returns their report rows.

    Args:
        context: the emission.
        units: groups of layers in order.
        stays: tensors that live in ACT between layers.
        start: number of the first layer; tensors that earlier layers leave in ACT are assumed to be there.

    Raises:
        CompileError: no tiling fits a layer.
    """
    stays = outside_groups(stays, units)
    rows: list[LayerRow] = []
    sums: PlaneSums | None = None  # plane sums that the unit before has made for this one
    before: list[LayerRow] = []
    made_by: dict[int, list[Stay]] = {}
    last_read: dict[int, list[Stay]] = {}
    for stay in stays:
        made_by.setdefault(stay.first, []).append(stay)
        last_read.setdefault(stay.last, []).append(stay)
        if stay.first < start <= stay.last:
            stay.settle(context)
    for unit, wanted in zip(units, _wanted_sums(context.config, units, stays), strict=True):
        index = start + len(rows)
        covered = range(index, index + len(unit.layers))
        first = context.emitter.position
        context.emitter.mark("; ".join(layer.describe() for layer in unit.layers))
        own = [stay for number in covered for stay in made_by.get(number, ())]
        for stay in own:
            stay.settle(context)
        try:
            if sums is not None:
                made = [_emit_summed(context, unit.layers[0], sums.acc)]
            elif wanted is not None:
                context.sums = sums = PlaneSums(context, wanted)
                made = _emit_unit(context, unit)
                sums.end()
                context.sums = None
            else:
                made = _emit_unit(context, unit)
        except ScratchpadFull as error:
            c, layer = context.config, unit.layers[0]
            raise CompileError(
                f"{layer.op} {layer.name!r} does not fit configuration {c.name!r} "
                f"({c.act_rows} ACT rows, {c.wgt_tiles} tiles, {c.acc_rows} ACC rows): {error}"
            ) from None
        for stay in own:  # after the layer's own loads, which need not wait for the border
            stay.fill_border(context)
        made[0].first = first
        together = made
        if sums is not None and wanted is None:
            together, sums = [*before, *made], None
        _count(together, context.emitter.position)
        rows += made
        before = made
        for number in covered:
            for stay in last_read.get(number, ()):
                context.drop(stay.view.buffer)
    _number(rows, context.end_step())
    return rows


def _count(together: list[LayerRow], end: int) -> None:
    """Reports all runs up to `end` with the first of some layers that run together."""
    together[0].count = end - together[0].first
    for row in together[1:]:
        row.first, row.count = end, 0


def _number(rows: list[LayerRow], begins: list[int]) -> None:
    """Turns the runs that report rows count into instructions.

    Args:
        rows: the report rows, which are changed.
        begins: first instruction of each run; empty if nothing was written.
    """
    for row in rows if begins else ():
        first, end = begins[row.first], begins[row.first + row.count]
        row.first, row.count = first, end - first


def _wanted_sums(config: NpuConfig, units: list[LayerGroup], stays: list[Stay]) -> Iterator[View | None]:
    """Yields for each unit the tensor whose plane sums the array should make beside it, None for none.

    The layer behind the unit needs only these sums, and would have to load the tensor or is slower on VECTOR.
    """
    slower = config.vector_passes > sum_rows(config)
    near = set() if slower else {stay.view.buffer for stay in stays}
    view: View | None = None
    for unit, following in itertools.zip_longest(units, units[1:]):
        before, view = view, None
        if following is not None and not following.fused and before is None and not unit.by_channel:
            view = following.layers[0].summed
        if view is not None and (
            view.buffer in near
            or view.bytes > 1
            or PlaneSums.rows(config, view) > config.acc_rows // _SUMS
            or not any(layer.offers_tiles and same_box(layer.output, view) for layer in unit.layers)
        ):
            view = None
        yield view


def _emit_unit(context: Context, unit: LayerGroup) -> list[LayerRow]:
    """Emits a group or a single layer; returns its report rows."""
    return _emit_group(context, unit) if unit.fused else [_emit_one(context, unit.layers[0])]


def _emit_one(context: Context, layer: Layer) -> LayerRow:
    """Emits a single layer; returns its report row."""
    read, written = context.emitter.read_bytes, context.emitter.write_bytes
    plan = layer.plan(context, context.heap.largest_gap)
    emit_part(context, layer, plan)
    return _row(layer, context.emitter.read_bytes - read, context.emitter.write_bytes - written, str(plan.tiling))


def _emit_group(context: Context, group: LayerGroup) -> list[LayerRow]:
    """Emits fused layers, whose instructions are interleaved; returns their report rows."""
    totals = emit_channels(context, group) if group.by_channel else emit_group(context, group)
    how = "fused, by channels" if group.by_channel else f"fused, {group.step} lines"
    tiles = itertools.chain([how], itertools.repeat(_TOGETHER))
    return [
        _row(layer, total.read_bytes, total.write_bytes, tile)
        for layer, total, tile in zip(group.layers, totals, tiles)
    ]


def _emit_summed(context: Context, layer: Layer, acc: int) -> LayerRow:
    """Emits a layer whose input's plane sums are in ACC from row `acc` on; returns its report row."""
    written = context.emitter.write_bytes
    layer.emit_summed(context, acc)
    return _row(layer, 0, context.emitter.write_bytes - written, _TOGETHER)


def _row(layer: Layer, read: int, written: int, tile: str) -> LayerRow:
    """Returns the report row of a layer without its instructions.

    Args:
        read, written: bytes of memory.
        tile: text about the tiling.
    """
    return LayerRow(
        name=layer.name, op=layer.op, where="npu", first=0, count=0, macs=layer.macs, read_bytes=read,
        write_bytes=written, tile=tile,
    )  # fmt: skip
