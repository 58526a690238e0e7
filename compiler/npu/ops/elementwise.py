"""Lowers QAdd, QMul and QLut."""

from __future__ import annotations

import functools
from dataclasses import asdict

import numpy as np

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.elementwise import QAdd, QLut, QMul
from tilewright.compiler.graph.tensor import EIGHT_BIT, Tensor
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.int8_storage import StoredType, stored_limits, stored_type, stored_zero_point
from tilewright.compiler.npu.layers.add_constants import stored_add_constants
from tilewright.compiler.npu.layers.elementwise import ElementLayer
from tilewright.compiler.npu.layers.layer import Add, Layer, Post
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.ops.tail import add_constants, fuse_tail, labels
from tilewright.compiler.npu.views import plane_shape
from tilewright.isa import numerics
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Rounding
from tilewright.isa.program import Layout

NO_TABLES = "the machine has no tables"


def _pair_unsupported(node: TypedNode[QAdd | QMul]) -> str | None:
    """Returns the reason why VECTOR cannot combine the two operands element by element, None if it can."""
    operands = [node.operand(i) for i in range(2)]
    for t in operands:
        if t.dtype not in EIGHT_BIT or t.quant is None or not t.quant.per_tensor:
            return f"{t.name} is not int8 or uint8 with one scale"
    for t in (*operands, node.y):
        if t.quant is not None and not t.quant.scale > 0:
            return f"scale {float(t.quant.scale)} of {t.name} is not greater than 0"
    if all(t.is_const for t in operands):
        return "both operands are constants"
    return rank_unsupported(node.y)


def rank_unsupported(y: Tensor) -> str | None:
    """Returns the reason why a tensor's rank gives it no view element by element, None if it has one."""
    layout = Layout.CHANNELS_FIRST if len(y.shape) == 4 else Layout.CHANNELS_LAST
    return f"rank {len(y.shape)}" if plane_shape(y.shape, layout) is None else None


@npu_op(QAdd)
class AddOp(NpuOp[QAdd]):
    """Sum by VECTOR's integer Add."""

    condition = "integer constants exist that equal the float rule on all 65,536 pairs"
    takes_table = True

    def unsupported(self, node: TypedNode[QAdd], config: NpuConfig) -> str | None:
        reason = _pair_unsupported(node)
        if reason is None and stored_add_constants(node.op, node.operand(0), node.operand(1), node.y) is None:
            if node.op.constants is not None:
                return "the constants of this Add do not fit 24-bit multipliers and a 32-bit sum"
            return "no integer constants reproduce this Add on all operand pairs"
        return reason

    def lower(self, node: TypedNode[QAdd], operands: Operands, tail: list[Node]) -> list[Layer]:
        layout, y = operands.layout(node.node), node.y
        a, b = (operands.view(name, layout, like=y.name) for name in node.node.inputs)
        constants = add_constants(node.graph, node.node, node.op)
        if (a.n, a.c, a.h, a.w) != operands.planes(y.name, layout):  # the first operand walks all of the output
            a, b, constants = b, a, constants.swapped()
        name, ops = labels([node.node, *tail])
        low, high = stored_limits(y, node.op)
        post = Post(add=Add(b, asdict(constants), low, high))
        made = operands.output(fuse_tail(operands, post, tail, layout, y.name))
        return [ElementLayer(name, ops, [a, b], made, post, kind="add")]


@npu_op(QMul)
class MulOp(NpuOp[QMul]):
    """Product by VECTOR's multiplier and requantiser."""

    condition = "for the same pairs the requantiser equals the rule"
    takes_table = True

    def unsupported(self, node: TypedNode[QMul], config: NpuConfig) -> str | None:
        """Returns the reason why the machine cannot run the node exactly, None if it can.

        The rounding has the zero point inside. For uint8 the machine's zero point differs by 128, so all operand pairs
        are compared.
        """
        reason = _pair_unsupported(node)
        if reason is not None:
            return reason
        if node.op.zero_point_after:  # the requantiser's own order, whatever the zero point
            return None
        a, b, y = (stored_type(t) for t in (node.operand(0), node.operand(1), node.y))
        if node.op.floats:
            if mul_rounding(a, b, y, *stored_limits(node.y, node.op)) is None:
                return "onnxruntime multiplies in floats here, which rounds differently for some operand pair"
        elif not mul_is_exact(a, b, y, *stored_limits(node.y, node.op)):
            return "rounding inside uint8 differs from the machine's int8 for some operand pair"
        return None

    def lower(self, node: TypedNode[QMul], operands: Operands, tail: list[Node]) -> list[Layer]:
        layout, y = operands.layout(node.node), node.y
        factors = [node.operand(0), node.operand(1)]
        views = [operands.view(t.name, layout, like=y.name) for t in factors]
        if (views[0].n, views[0].c, views[0].h, views[0].w) != operands.planes(y.name, layout):
            views.reverse()
            factors.reverse()
        a, b = factors
        assert a.quant is not None and b.quant is not None and y.quant is not None
        low, high = stored_limits(y, node.op)
        # Inside the rounding the zero point is that of the model's own type: uint8 values are moved after it.
        rounding = Rounding.EVEN if node.op.zero_point_after else Rounding.EVEN_ZERO_POINT_INSIDE
        if node.op.floats:
            types = (stored_type(node.operand(0)), stored_type(node.operand(1)), stored_type(y))
            found = mul_rounding(*types, low, high)
            assert found is not None
            rounding = found
        post = Post(
            zp=stored_zero_point(y), low=low, high=high, rounding=rounding, za=stored_zero_point(a),
            zb=stored_zero_point(b),
        )  # fmt: skip
        scale = np.float32(numerics.product_scale(a.quant.scale, b.quant.scale, y.quant.scale))
        name, ops = labels([node.node, *tail])
        made = operands.output(fuse_tail(operands, post, tail, layout, y.name))
        return [ElementLayer(name, ops, views, made, post, kind="mul", scale=scale)]


@functools.lru_cache(maxsize=4096)
def mul_is_exact(a_type: StoredType, b_type: StoredType, y_type: StoredType, low: int, high: int) -> bool:
    """Returns True if the requantiser equals `numerics.mul_reference` for all operand pairs."""
    q = np.arange(-128, 128, dtype=np.int64)
    (sa, za, oa), (sb, zb, ob), (sy, zy, oy) = a_type, b_type, y_type
    expected = numerics.mul_reference(q[:, None] + oa, q[None, :] + ob, sa, za, sb, zb, sy, zy, low + oy, high + oy)
    product = (q[:, None] + oa - za) * (q[None, :] + ob - zb)
    scale = numerics.scale_bits(numerics.product_scale(sa, sb, sy))
    got = numerics.requantize(product, scale, zy - oy, low, high, Rounding.EVEN_ZERO_POINT_INSIDE)
    return bool(np.array_equal(got.astype(np.int64) + oy, expected))


@functools.lru_cache(maxsize=4096)
def mul_rounding(a_type: StoredType, b_type: StoredType, y_type: StoredType, low: int, high: int) -> Rounding | None:
    """Returns the rounding with which the requantiser equals `numerics.mul_floats` for all pairs, None if none does."""
    q = np.arange(-128, 128, dtype=np.int64)
    (sa, za, oa), (sb, zb, ob), (sy, zy, oy) = a_type, b_type, y_type
    want = numerics.mul_floats(q[:, None] + oa, q[None, :] + ob, sa, za, sb, zb, sy, zy, low + oy, high + oy) - oy
    product = (q[:, None] + oa - za) * (q[None, :] + ob - zb)
    scale = numerics.scale_bits(numerics.product_scale(sa, sb, sy))
    for rounding in (Rounding.EVEN, Rounding.EVEN_ZERO_POINT_INSIDE):
        if np.array_equal(numerics.requantize(product, scale, zy - oy, low, high, rounding), want):
            return rounding
    return None


@npu_op(QLut)
class Lut(NpuOp[QLut]):
    """Lookup in a table of VECTOR."""

    condition = "any shape with channels on axis 1 or last"

    def unsupported(self, node: TypedNode[QLut], config: NpuConfig) -> str | None:
        return rank_unsupported(node.y) if config.table_lookup else NO_TABLES

    def lower(self, node: TypedNode[QLut], operands: Operands, tail: list[Node]) -> list[Layer]:
        name, ops = labels([node.node, *tail])
        post = Post(lut=operands.table(node.op.table, node.x.name, node.y.name))
        view = operands.view(node.x.name, operands.layout(node.node))
        return [ElementLayer(name, ops, [view], operands.output(node.y.name), post)]
