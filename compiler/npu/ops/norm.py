"""Lowers QNorm and QPlaneNorm: normalisation over channels, and over planes of channel groups."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec.structs import replace

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.norm import QNorm, QPlaneNorm
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.int8_storage import stored_zero_point
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.layers.norm import NormLayer, RowGroupNorm
from tilewright.compiler.npu.layers.transposition import TransposeLayer
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.ops.tail import labels
from tilewright.compiler.npu.views import View, planes_of
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layout
from tilewright.isa.row_bits import BIAS_FRACTION, EPSILON_FRACTION, RADICAND_BITS
from tilewright.isa.row_norm import FACTOR_SCALE, MAX_COUNT, TRUNCATION

#: Largest bias in steps of the result that NORM adds exactly to a product that saturates.
_MAX_BIAS = 128


@npu_op(QNorm)
class Norm(NpuOp[QNorm]):
    """Normalisation of rows by ROW: exact sums, a reciprocal root of 23 bits, and a multiply-add for each channel."""

    condition = (
        "the machine has `row_unit`, rows of up to 4,096 elements, constant scale and bias; the NPU reads the result"
    )
    layout = Layout.CHANNELS_LAST
    reason = (
        "the NPU adds a row exactly, the reference in float32: results next to a tie may be off by one, in rows of "
        "nearly one value, which the reference subtracts from each other, by more"
    )

    def needs_npu_reader(self, rank: int) -> bool:
        return True

    def unsupported(self, node: TypedNode[QNorm], config: NpuConfig) -> str | None:
        count = node.x.shape[-1]
        reason = _unsupported(node, config, count)
        if reason is None and 3 * -(-count // config.block_in) > config.act_rows:
            return f"a row of {count} elements and its result do not fit ACT"
        return reason

    def lower(self, node: TypedNode[QNorm], operands: Operands, tail: list[Node]) -> list[Layer]:
        name, ops = labels([node.node, *tail])
        view, made = operands.view(node.x.name, Layout.CHANNELS_LAST), operands.output(node.y.name)
        fields = _layer_fields(node, operands.config, node.x.shape[-1])
        return [NormLayer(name, ops, [view], made, Post(zp=stored_zero_point(node.y)), **fields)]


@npu_op(QPlaneNorm)
class PlaneNorm(NpuOp[QPlaneNorm]):
    """Normalisation of planes: the array transposes planes to lanes, ROW normalises them, the array transposes back."""

    condition = (
        "the machine has `row_unit`, constant scale and bias, up to 4,096 elements of a group, whose planes fill "
        "blocks if it has several; the NPU reads the result"
    )
    layout = Layout.CHANNELS_FIRST
    reason = Norm.reason

    def needs_npu_reader(self, rank: int) -> bool:
        return True

    def unsupported(self, node: TypedNode[QPlaneNorm], config: NpuConfig) -> str | None:
        if len(node.x.shape) not in (3, 4):
            return f"rank {len(node.x.shape)}"
        plane, group_size = _group_sizes(node)
        reason = _unsupported(node, config, plane * group_size)
        if reason is not None:
            return reason
        if group_size > 1 and plane % config.block_in:
            return f"{group_size} planes of {plane} elements in a group, which fill no blocks of {config.block_in}"
        if 3 * group_size * -(-plane // config.block_in) > config.act_rows:
            return f"{group_size} planes of {plane} elements and their results do not fit ACT"
        return f"{group_size} channels in a group; PRM holds half of {config.prm_rows}" if (
            2 * group_size > config.prm_rows
        ) else None  # fmt: skip

    def lower(self, node: TypedNode[QPlaneNorm], operands: Operands, tail: list[Node]) -> list[Layer]:
        name, ops = labels([node.node, *tail])
        (n, c, _, _), (plane, group_size) = planes_of(node.x.shape, Layout.CHANNELS_FIRST), _group_sizes(node)
        view, made = operands.view(node.x.name, Layout.CHANNELS_FIRST), operands.output(node.y.name)
        rows, normed = (
            operands.temporary(f"{t.name}@planes", t.name, Layout.CHANNELS_LAST, (n, plane, 1, c))
            for t in (node.x, node.y)
        )
        fields = _layer_fields(node, operands.config, plane * group_size)
        post = Post(zp=stored_zero_point(node.y))
        return [
            _transpose_layer(operands, f"{name} [planes]", ops, view, rows),
            RowGroupNorm(name, ops, [rows], normed, post, group_size=group_size, **fields),
            _transpose_layer(operands, f"{name} [channels]", ops, normed, made),
        ]


def _group_sizes(node: TypedNode[QPlaneNorm]) -> tuple[int, int]:
    """Returns the elements of a plane, and the channels of a group."""
    return math.prod(node.x.shape[2:]), node.x.shape[1] // node.op.groups


def _transpose_layer(operands: Operands, name: str, ops: str, x: View, y: View) -> TransposeLayer:
    """Returns the layer that turns the pixels of x into the channels of y, in row-major order."""
    operands.as_weight_tiles(x)
    identity = operands.constant("identity", np.eye(operands.config.block_in, dtype=np.int8))
    one_row = lambda v: replace(v, h=1, w=v.h * v.w, sh=v.h * v.w * v.block)
    return TransposeLayer(name, ops, [identity], one_row(y), Post(), extra_reads=[x.buffer], source_rows=one_row(x))


def _unsupported(node: TypedNode[Any], config: NpuConfig, count: int) -> str | None:
    """Returns the reason why ROW cannot normalise `count` elements as the node asks, None if it can."""
    if not config.row_unit:
        return "the machine has no row unit"
    if not all(node.operand(i).is_const for i in (1, 2) if node.has(i)):
        return "scale or bias is not constant"
    if count > MAX_COUNT:
        return f"{count} elements have one mean; up to {MAX_COUNT}"
    if node.x.dtype != node.y.dtype:
        return "input and output types differ"
    epsilon = _epsilon(node, count) / 2**EPSILON_FRACTION
    if not 0 <= epsilon < 1 << 31 or count * count * 255**2 + epsilon >= 1 << RADICAND_BITS:
        return f"epsilon {node.op.epsilon:g} is {epsilon:g} at this scale; the NPU adds 0 to 2**31 - 1"
    scale, bias = _scale_and_bias(node, count)
    most = float(np.abs(bias + stored_zero_point(node.y)).max())
    if not most <= _MAX_BIAS or not np.abs(np.rint(bias * 2.0**BIAS_FRACTION)).max() < 1 << 31:
        return f"a bias is {most:.0f} steps from the middle of the results; the NPU adds up to {_MAX_BIAS}"
    with np.errstate(over="ignore"):
        single = np.abs(scale.astype(np.float32))
    if not ((single == 0) | ((single > 2.0**-120) & (single < 2.0**60))).all():
        return "a scale of a channel is no ordinary float32 number on the NPU"
    return None


def _layer_fields(node: TypedNode[Any], config: NpuConfig, count: int) -> dict[str, Any]:
    """Returns the fields of the layer that normalises `count` elements, by name."""
    scale, bias = _scale_and_bias(node, count)
    centred = getattr(node.op, "centred", True)
    return {
        "words": _moment_table(node, config, centred), "epsilon": _epsilon(node, count), "centred": centred,
        "scale": scale.astype(np.float32), "bias": np.rint(bias * 2.0**BIAS_FRACTION).astype(np.int32),
    }  # fmt: skip


def _epsilon(node: TypedNode[Any], count: int) -> int:
    """Returns epsilon in the unit of the exact sums, with EPSILON_FRACTION bits of a fraction.

    The unit is (step of the input / count)**2.
    """
    assert node.x.quant is not None
    step = float(np.float32(node.x.quant.scale))
    return round(math.ldexp(float(np.float32(node.op.epsilon)) / step**2 * count**2, EPSILON_FRACTION))


def _scale_and_bias(node: TypedNode[Any], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the factor and the bias of NORM for each channel, float64 [channels]; the bias in steps of the result."""
    assert node.y.quant is not None
    scale = node.operand(1).data
    assert scale is not None
    step = float(np.float32(node.y.quant.scale))
    bias = node.operand(2).data if node.has(2) else np.zeros(scale.shape, np.float32)
    assert bias is not None
    factor = count * 2.0**-FACTOR_SCALE * (1 + TRUNCATION) / step
    return scale.astype(np.float64) * factor, bias.astype(np.float64) / step


def _moment_table(node: TypedNode[Any], config: NpuConfig, centred: bool) -> bytes:
    """Returns the table of MOMENTS or POWER, 256 little-endian words by stored byte.

    A word has the square of the value to normalise, and the value whose mean is subtracted.
    """
    q = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64)
    zero = stored_zero_point(node.x)
    squared, mean = (q + 128, q + 128) if centred else (q - zero, np.full(256, zero + 128))
    return (squared**2 | mean << config.row_square_bits).astype("<u4").tobytes()
