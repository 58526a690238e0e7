"""Lowers QSoftmax."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.softmax import QSoftmax
from tilewright.compiler.graph.tensor import Tensor
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.int8_storage import stored_zero_point
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.layers.softmax import SoftmaxLayer
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.ops.tail import fuse_tail, labels
from tilewright.isa import numerics
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import ROW_SUM_BITS
from tilewright.isa.program import Layout

#: Bits of an exponential; largest number of elements whose exponentials fit a sum of ROW.
_WORD_BITS = 24
_MAX_ELEMENTS = 1 << (ROW_SUM_BITS - _WORD_BITS)


@npu_op(QSoftmax)
class Softmax(NpuOp[QSoftmax]):
    """Softmax of rows by ROW: exponentials from a table, an exact sum, and a quotient of 24 bits for each row."""

    condition = "the machine has `row_unit`, the axis is the last, of up to 4,096 elements; the NPU reads the result"
    layout = Layout.CHANNELS_LAST
    takes_table = True
    reason = (
        "the NPU adds exponentials exactly, the reference in float32: results next to a tie may fall to its other side"
    )

    def needs_npu_reader(self, rank: int) -> bool:
        return True

    def unsupported(self, node: TypedNode[QSoftmax], config: NpuConfig) -> str | None:
        x, y, rank = node.x, node.y, len(node.x.shape)
        if not config.row_unit:
            return "the machine has no row unit"
        if node.op.axis % rank != rank - 1:
            return f"axis {node.op.axis % rank} of {rank}; rows of the NPU are the last axis"
        if x.shape[-1] > _MAX_ELEMENTS:
            return f"rows of {x.shape[-1]} elements; up to {_MAX_ELEMENTS}"
        if 3 * -(-x.shape[-1] // config.block_in) > config.act_rows:
            return f"a row of {x.shape[-1]} elements and its result do not fit ACT"
        if x.dtype != y.dtype:
            return "input and output types differ"
        if y.quant is not None and node.op.added(y) != int(y.quant.zero_point):
            return f"LiteRT does not add the zero point {y.quant.zero_point} of uint8 results"
        if numerics.row_numerator(_factor(node.op, y)) is None:
            return f"probabilities times {_factor(node.op, y):g}; the NPU's factor is above 0 and has up to 18 bits"
        if float(_exponentials(node.op, x)[0]) * _factor(node.op, y) > float(np.finfo(np.float32).max):
            return f"onnxruntime's factor {_factor(node.op, y):g} overflows over {x.shape[-1]} elements"
        return None

    def lower(self, node: TypedNode[QSoftmax], operands: Operands, tail: list[Node]) -> list[Layer]:
        name, ops = labels([node.node, *tail])
        view = operands.view(node.x.name, Layout.CHANNELS_LAST)
        quotient = numerics.row_numerator(_factor(node.op, node.y))
        assert quotient is not None
        values = _exponentials(node.op, node.x).astype(np.float64)
        steps = np.rint(values / values[0] * ((1 << _WORD_BITS) - 1)).astype("<u4")
        words = steps[-np.arange(256) % 256].tobytes()  # indexed by the distance to the maximum, which is not positive
        post = Post(zp=stored_zero_point(node.y))
        made = operands.output(fuse_tail(operands, post, tail, Layout.CHANNELS_LAST, node.y.name))
        # A quarter of PRM is left to what comes before and behind.
        return [SoftmaxLayer(
            name, ops, [view], made, post, words=words, number=quotient[0], exponent=quotient[1],
            pixels=max(1, operands.config.prm_rows * 3 // 4),
        )]  # fmt: skip


def _factor(op: QSoftmax, y: Tensor) -> float:
    """Returns the factor that turns probabilities into steps of the result."""
    assert y.quant is not None
    return float(op.levels) if op.levels is not None else 1 / float(y.quant.scale)


def _exponentials(op: QSoftmax, x: Tensor) -> np.ndarray:
    """Returns the exponentials of 0 to 255 steps below the maximum, [256], proportional to the reference's."""
    assert x.quant is not None
    if op.levels is None:
        return numerics.litert_exponentials(op.step(x.quant.scale))
    return numerics.softmax_exponentials(x.quant.scale, x.shape[-1])
