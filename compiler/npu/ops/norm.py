"""QNorm."""

from __future__ import annotations

import math

import numpy as np

from compiler.graph import Node
from compiler.npu.blocks.operands import Operands
from compiler.npu.layers.layer import Layer, Post
from compiler.npu.layers.norm import NormLayer
from compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from compiler.npu.ops.tail import labels
from compiler.npu.stored import stored_zero_point
from compiler.ops.norm import QNorm
from isa.config import NpuConfig
from isa.program import Layout
from isa.row_bits import BIAS_FRACTION, EPSILON_FRACTION, RADICAND_BITS
from isa.row_norm import FACTOR_SCALE, MAX_COUNT, TRUNCATION

#: The machine adds results of up to so many steps correctly to a product that saturates.
_MOST = 128


@npu_op(QNorm)
class Norm(NpuOp[QNorm]):
    """Exact sums of a row, the reciprocal of a root of 23 bits, and a multiply-add for each channel, by ROW."""

    condition = (
        "the machine has `row_unit`, rows of up to 4,096 elements, constant scale and bias; the NPU reads the result"
    )
    layout = Layout.CHANNELS_LAST
    reason = (
        "the NPU adds a row exactly, the reference in float32: results next to a tie may be off by one, in rows of "
        "nearly one value, which the reference subtracts from each other, by more"
    )

    def for_npu_only(self, rank: int) -> bool:
        return True

    def unsupported(self, node: TypedNode[QNorm], config: NpuConfig) -> str | None:
        x, count = node.x, node.x.shape[-1]
        if not config.row_unit:
            return "the machine has no row unit"
        if not all(node.operand(i).is_const for i in (1, 2) if node.has(i)):
            return "scale or bias is not constant"
        if count > MAX_COUNT:
            return f"rows of {count} elements; up to {MAX_COUNT}"
        if 3 * -(-count // config.block_in) > config.act_rows:
            return f"a row of {count} elements and its result do not fit ACT"
        if x.dtype != node.y.dtype:
            return "input and output types differ"
        epsilon = _epsilon(node) / 2**EPSILON_FRACTION
        if not 0 <= epsilon < 1 << 31 or count * count * 255**2 + epsilon >= 1 << RADICAND_BITS:
            return f"epsilon {node.op.epsilon:g} is {epsilon:g} at this scale; the NPU adds 0 to 2**31 - 1"
        scale, bias = _channels(node)
        most = float(np.abs(bias + stored_zero_point(node.y)).max())
        if not most <= _MOST or not np.abs(np.rint(bias * 2.0**BIAS_FRACTION)).max() < 1 << 31:
            return f"a bias is {most:.0f} steps from the middle of the results; the NPU adds up to {_MOST}"
        with np.errstate(over="ignore"):
            single = np.abs(scale.astype(np.float32))
        if not ((single == 0) | ((single > 2.0**-120) & (single < 2.0**60))).all():
            return "a scale of a channel is no ordinary float32 number on the NPU"
        return None

    def lower(self, node: TypedNode[QNorm], operands: Operands, tail: list[Node]) -> list[Layer]:
        name, ops = labels([node.node, *tail])
        view, made = operands.view(node.x.name, Layout.CHANNELS_LAST), operands.output(node.y.name)
        scale, bias = _channels(node)
        return [NormLayer(
            name, ops, [view], made, Post(zp=stored_zero_point(node.y)), words=_words(node, operands.config),
            epsilon=_epsilon(node), centred=node.op.centred, scale=scale.astype(np.float32),
            bias=np.rint(bias * 2.0**BIAS_FRACTION).astype(np.int32),
        )]  # fmt: skip


def _epsilon(node: TypedNode[QNorm]) -> int:
    """Epsilon in units of (step of the input / count)**2, which are those of the exact sums, with EPSILON_FRACTION bits
    of a fraction."""
    assert node.x.quant is not None
    step, count = float(np.float32(node.x.quant.scale)), node.x.shape[-1]
    return round(math.ldexp(float(np.float32(node.op.epsilon)) / step**2 * count**2, EPSILON_FRACTION))


def _channels(node: TypedNode[QNorm]) -> tuple[np.ndarray, np.ndarray]:
    """float64 [channels]: what NORM multiplies with, and what it adds in steps of the result."""
    assert node.y.quant is not None
    scale = node.operand(1).data
    assert scale is not None
    step, count = float(np.float32(node.y.quant.scale)), node.x.shape[-1]
    bias = node.operand(2).data if node.has(2) else np.zeros(count, np.float32)
    assert bias is not None
    factor = count * 2.0**-FACTOR_SCALE * (1 + TRUNCATION) / step
    return scale.astype(np.float64) * factor, bias.astype(np.float64) / step


def _words(node: TypedNode[QNorm], config: NpuConfig) -> bytes:
    """The words of MOMENTS, or of POWER: the square of what is normalised and what the mean is of, by stored bytes."""
    q = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64)
    zero = stored_zero_point(node.x)
    squared, mean = (q + 128, q + 128) if node.op.centred else (q - zero, np.full(256, zero + 128))
    return (squared**2 | mean << config.row_square_bits).astype("<u4").tobytes()
