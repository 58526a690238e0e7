"""QSquare on the NPU. In the compiler this file would be `compiler/npu/ops/square.py`."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.square.op import QSquare
from tilewright.compiler.graph.graph import Node
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.int8_storage import stored_limits, stored_type, stored_zero_point
from tilewright.compiler.npu.layers.elementwise import ElementLayer
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.ops.elementwise import mul_is_exact, rank_unsupported
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.ops.tail import fuse_tail, labels
from tilewright.isa import numerics
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Rounding


@npu_op(QSquare)
class Square(NpuOp[QSquare]):
    """VECTOR multiplies the tensor with itself."""

    condition = "the requantiser equals the rule"
    takes_table = True

    def unsupported(self, node: TypedNode[QSquare], config: NpuConfig) -> str | None:
        x, y = stored_type(node.x), stored_type(node.y)
        if not mul_is_exact(x, x, y, *stored_limits(node.y, node.op)):
            return "rounding inside uint8 differs from the machine's int8"
        return rank_unsupported(node.y)

    def lower(self, node: TypedNode[QSquare], operands: Operands, tail: list[Node]) -> list[Layer]:
        x, y, layout = node.x, node.y, operands.layout(node.node)
        assert x.quant is not None and y.quant is not None
        low, high = stored_limits(y, node.op)
        post = Post(
            zp=stored_zero_point(y), low=low, high=high, rounding=Rounding.EVEN_ZERO_POINT_INSIDE,
            za=stored_zero_point(x), zb=stored_zero_point(x),
        )  # fmt: skip
        view = operands.view(x.name, layout)
        name, ops = labels([node.node, *tail])
        made = operands.output(fuse_tail(operands, post, tail, layout, y.name))
        scale = np.float32(numerics.product_scale(x.quant.scale, x.quant.scale, y.quant.scale))
        return [ElementLayer(name, ops, [view, view], made, post, kind="mul", scale=scale)]
