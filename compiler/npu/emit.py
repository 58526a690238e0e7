"""Emits the layers of one NPU step: residents come and go, every layer is planned and written out."""

from __future__ import annotations

from compiler.errors import CompileError
from compiler.npu.context import Context
from compiler.npu.conv import ConvPlan, emit_conv, plan_conv
from compiler.npu.depthwise import DepthwisePlan, emit_depthwise, plan_depthwise
from compiler.npu.elementwise import VectorPlan, emit_vector, plan_vector
from compiler.npu.layers import ConvLayer, DepthwiseLayer, Layer
from compiler.npu.residency import Stay
from compiler.npu.scratch import ScratchpadFull
from isa.program import ARENA_REGION
from isa.program import Layer as LayerRow

Plan = ConvPlan | DepthwisePlan | VectorPlan


def plan_layer(context: Context, layer: Layer, budget: int) -> Plan:
    """Tile sizes for a layer within `budget` rows of ACT. Raises `ScratchpadFull`."""
    if isinstance(layer, ConvLayer):
        return plan_conv(context, layer, budget)
    if isinstance(layer, DepthwiseLayer):
        return plan_depthwise(context, layer, budget)
    return plan_vector(context, layer, budget)


def emit_layer(context: Context, layer: Layer, plan: Plan) -> None:
    if isinstance(plan, ConvPlan):
        assert isinstance(layer, ConvLayer)
        emit_conv(context, layer, plan)
    elif isinstance(plan, DepthwisePlan):
        assert isinstance(layer, DepthwiseLayer)
        emit_depthwise(context, layer, plan)
    else:
        emit_vector(context, layer, plan)


def emit_step(context: Context, layers: list[Layer], stays: list[Stay]) -> list[LayerRow]:
    """Emits all layers and END; returns their report rows.

    Raises:
        CompileError: a layer that no tiling fits.
    """
    rows = []
    emitter = context.emitter
    for index, layer in enumerate(layers):
        first, read, written = emitter.position, emitter.read_bytes, emitter.write_bytes
        for stay in stays:
            if stay.first == index:
                context.make_resident(stay.view, stay.border, stay.fill)
        try:
            plan = plan_layer(context, layer, context.heap.largest_gap)
            emit_layer(context, layer, plan)
        except ScratchpadFull as error:
            c = context.config
            raise CompileError(
                f"{layer.op} {layer.name!r} does not fit configuration {c.name!r} "
                f"({c.act_rows} ACT rows, {c.wgt_tiles} tiles, {c.acc_rows} ACC rows): {error}"
            ) from None
        traffic = [*layer.inputs, layer.output, *([layer.post.add.other] if layer.post.add is not None else [])]
        moved = {v.buffer: v.nbytes for v in traffic if v.buffer not in context.resident and v.region == ARENA_REGION}
        weights = emitter.read_bytes - read
        rows.append(
            LayerRow(
                name=layer.name,
                op=layer.op,
                where="npu",
                first=first,
                count=emitter.position - first,
                macs=layer.macs,
                read_bytes=weights,
                write_bytes=emitter.write_bytes - written,
                minimum_bytes=_minimum(layer, moved),
                tile=str(plan),
            )
        )
        for stay in stays:
            if stay.last == index:
                context.drop(stay.view.buffer)
    context.end_step()
    return rows


def _minimum(layer: Layer, moved: dict[str, int]) -> int:
    """Weights and parameters once, and the activations that are not on the chip, once each."""
    weights = 0
    if isinstance(layer, ConvLayer):
        weights = sum(p.weights.size for p in layer.phases) + 8 * layer.output.c
    elif isinstance(layer, DepthwiseLayer):
        weights = layer.weights.size + 8 * layer.output.c
    return weights + sum(moved.values())
