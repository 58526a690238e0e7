"""One door to the three kinds of plans: how a layer, or some rows of it, is tiled and emitted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from compiler.npu.context import Context, Part
from compiler.npu.conv import ConvPlan, conv_plans, emit_conv
from compiler.npu.depthwise import DepthwisePlan, depthwise_plans, emit_depthwise
from compiler.npu.elementwise import VectorPlan, emit_vector, vector_plans
from compiler.npu.layers import ConvLayer, DepthwiseLayer, Layer
from compiler.npu.scratch import ScratchpadFull

Plan = ConvPlan | DepthwisePlan | VectorPlan

#: Budgets are rounded down to this many rows, so that plans are found again.
_GRAIN = 64


def layer_plans(
    context: Context, layer: Layer, budget: int, span: tuple[int, int] | None = None, every: bool = False
) -> Iterator[Plan]:
    """Plans for a layer (or its output rows `span`) that fit `budget` rows of ACT: the last one is the one to take, or
    all of them."""
    if isinstance(layer, ConvLayer):
        return conv_plans(context, layer, budget, span, every)
    if isinstance(layer, DepthwiseLayer):
        return depthwise_plans(context, layer, budget, span, every)
    return vector_plans(context, layer, budget, span, every)


def plan_layer(context: Context, layer: Layer, budget: int, span: tuple[int, int] | None = None) -> Plan:
    """Tile sizes for a layer (or its output rows `span`) within `budget` rows of ACT: what `Context.tiles` asks for
    if it fits, else the plan estimated to take the fewest cycles.

    Raises:
        ScratchpadFull: nothing fits.
    """
    if budget > 2 * _GRAIN:
        budget = budget // _GRAIN * _GRAIN
    views = [*layer.inputs, layer.output, *([layer.post.add.other] if layer.post.add is not None else [])]
    where = tuple(context.on_chip(v) for v in views)
    wanted = context.tiles.get(id(layer)) if span is None else None
    key = (id(layer), None if span is None else span[1] - span[0], where, budget, wanted)
    plan = context.plans.get(key)
    if plan is None:
        if wanted is not None:
            every = layer_plans(context, layer, budget, span, every=True)
            plan = next((p for p in every if tile_of(p) == wanted), None)
        if plan is None:
            last = deque(layer_plans(context, layer, budget, span), maxlen=1)
            if not last:
                raise ScratchpadFull(f"{layer.name}: no tile fits")
            plan = last.pop()
        context.plans[key] = plan
    assert isinstance(plan, ConvPlan | DepthwisePlan | VectorPlan)
    return plan


def tile_of(plan: Plan) -> tuple[int, ...]:
    """Tile sizes and order of a plan, without what follows from them."""
    sizes = plan[: plan._fields.index("pools")]
    return tuple(int(size) for size in sizes)  # type: ignore[arg-type]


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
