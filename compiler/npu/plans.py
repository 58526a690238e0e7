"""One door to the three kinds of plans: how a layer, or some rows of it, is tiled and emitted."""

from __future__ import annotations

from compiler.npu.context import Context, Part
from compiler.npu.conv import ConvPlan, emit_conv, plan_conv
from compiler.npu.depthwise import DepthwisePlan, emit_depthwise, plan_depthwise
from compiler.npu.elementwise import VectorPlan, emit_vector, plan_vector
from compiler.npu.layers import ConvLayer, DepthwiseLayer, Layer

Plan = ConvPlan | DepthwisePlan | VectorPlan

#: Budgets are rounded down to this many rows, so that plans are found again.
_GRAIN = 64


def plan_layer(context: Context, layer: Layer, budget: int, span: tuple[int, int] | None = None) -> Plan:
    """Tile sizes for a layer (or its output rows `span`) within `budget` rows of ACT.

    Raises:
        ScratchpadFull: nothing fits.
    """
    if budget > 2 * _GRAIN:
        budget = budget // _GRAIN * _GRAIN
    views = [*layer.inputs, layer.output, *([layer.post.add.other] if layer.post.add is not None else [])]
    where = tuple(context.on_chip(v) for v in views)
    key = (id(layer), None if span is None else span[1] - span[0], where, budget)
    plan = context.plans.get(key)
    if plan is None:
        if isinstance(layer, ConvLayer):
            plan = plan_conv(context, layer, budget, span)
        elif isinstance(layer, DepthwiseLayer):
            plan = plan_depthwise(context, layer, budget, span)
        else:
            plan = plan_vector(context, layer, budget, span)
        context.plans[key] = plan
    assert isinstance(plan, ConvPlan | DepthwisePlan | VectorPlan)
    return plan


def emit_layer(context: Context, layer: Layer, plan: Plan, part: Part | None = None) -> None:
    """Emits a layer, or only `part` of it."""
    if isinstance(plan, ConvPlan):
        assert isinstance(layer, ConvLayer)
        emit_conv(context, layer, plan, part)
    elif isinstance(plan, DepthwisePlan):
        assert isinstance(layer, DepthwiseLayer)
        emit_depthwise(context, layer, plan, part)
    else:
        emit_vector(context, layer, plan, part)
