"""Lowers QMaxPool, QAveragePool and QGlobalAveragePool."""

from __future__ import annotations

import functools
import math

import numpy as np

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.pooling import QAveragePool, QGlobalAveragePool, QMaxPool
from tilewright.compiler.graph.quantization import limits
from tilewright.compiler.graph.tensor import Tensor
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.int8_storage import stored_limits, stored_zero_point
from tilewright.compiler.npu.layers.conv import ConvLayer
from tilewright.compiler.npu.layers.conv_tiling import Phase
from tilewright.compiler.npu.layers.depthwise import DepthwiseLayer
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.layers.pooling import LargeMeanLayer, MaxPoolLayer, MeanLayer
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.ops.tail import fuse_tail, labels
from tilewright.compiler.npu.ops.window import begin_pads, rows_columns, window_unsupported
from tilewright.isa import numerics
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Rounding
from tilewright.isa.program import Layout


@npu_op(QMaxPool)
class MaxPool(NpuOp[QMaxPool]):
    """Maximum over windows, on VECTOR."""

    condition = "types equal, limits as for QConv"
    layout = Layout.CHANNELS_FIRST
    takes_table = True

    def unsupported(self, node: TypedNode[QMaxPool], config: NpuConfig) -> str | None:
        if node.x.dtype != node.y.dtype:
            return "input and output types differ"
        return window_unsupported(node)

    def lower(self, node: TypedNode[QMaxPool], operands: Operands, tail: list[Node]) -> list[Layer]:
        op, post = node.op, Post()
        name, ops = labels([node.node, *tail])
        view = operands.view(node.x.name, Layout.CHANNELS_FIRST)
        made = operands.output(fuse_tail(operands, post, tail, Layout.CHANNELS_FIRST, node.y.name))
        return [MaxPoolLayer(
            name, ops, [view], made, post, kernel=rows_columns(op.kernel), pad=begin_pads(op),
            stride=rows_columns(op.strides), dilation=rows_columns(op.dilations),
        )]  # fmt: skip


@npu_op(QAveragePool)
class AveragePool(NpuOp[QAveragePool]):
    """Average over windows: a depthwise convolution with weights of 1, whose scale divides."""

    condition = "no average that can be a tie, padding counts in the divisor, no dilation"
    layout = Layout.CHANNELS_FIRST
    takes_add = takes_table = True

    def unsupported(self, node: TypedNode[QAveragePool], config: NpuConfig) -> str | None:
        op, taps = node.op, math.prod(node.op.kernel)
        if op.half_away:
            if half_away_factor(taps, node.x) is None:
                return f"no float32 factor divides by a window of {taps} exactly"
        elif may_tie(node.x, node.y, taps):
            return f"averages of {taps} can be ties here, which onnxruntime's float order decides"
        if any(op.pads) and (op.half_away or not op.count_include_pad):
            return "padding changes the divisor"
        if any(d != 1 for d in op.dilations):
            return "dilated average"
        return window_unsupported(node)

    def lower(self, node: TypedNode[QAveragePool], operands: Operands, tail: list[Node]) -> list[Layer]:
        x, op, c = node.x, node.op, node.x.shape[1]
        kernel, pad, stride = rows_columns(op.kernel), begin_pads(op), rows_columns(op.strides)
        post, bias, scale = _average(node, math.prod(kernel))
        name, ops = labels([node.node, *tail])
        view = operands.view(x.name, Layout.CHANNELS_FIRST)
        made = operands.output(fuse_tail(operands, post, tail, Layout.CHANNELS_FIRST, node.y.name))
        biases, scales = np.full(c, bias, np.int32), np.full(c, scale, np.float32)
        fill = stored_zero_point(x)
        if not operands.config.depthwise:
            phase = Phase(np.ones((1, c, 1, *kernel), np.int8), pad, stride)
            return [ConvLayer(
                name, ops, [view], made, post, phases=[phase], bias=biases, scale=scales, group=c, fill=fill,
            )]  # fmt: skip
        return [DepthwiseLayer(
            name, ops, [view], made, post, weights=np.ones((c, *kernel), np.int8), bias=biases, scale=scales, pad=pad,
            stride=stride, fill=fill,
        )]  # fmt: skip


@npu_op(QGlobalAveragePool)
class GlobalAveragePool(NpuOp[QGlobalAveragePool]):
    """Average over planes, by VECTOR's SUM; of planes that do not fit half of ACT by the array."""

    condition = "two rows of the plane fit half of ACT, and its sums int32"
    layout = Layout.CHANNELS_FIRST

    def unsupported(self, node: TypedNode[QGlobalAveragePool], config: NpuConfig) -> str | None:
        rank, taps = len(node.x.shape) - 2, math.prod(node.x.shape[2:])
        if node.op.offset is not None and mean_rule(node.op, node.x, node.y) is None:
            return f"no float32 factor gives LiteRT's mean of {taps} for every sum"
        if node.op.half_away and half_away_factor(taps, node.x) is None:
            return f"no float32 factor divides by a window of {taps} exactly"
        if rank not in (1, 2):
            return f"{rank} spatial axes; the NPU has 1 or 2"
        if 2 * node.x.shape[-1] > config.act_rows // 2 - 8:
            return f"two rows of {node.x.shape[-1]} vectors do not fit half of ACT"
        if taps * 256 >= 1 << 31:
            return f"sums of {taps} values do not fit int32"
        return None

    def lower(self, node: TypedNode[QGlobalAveragePool], operands: Operands, tail: list[Node]) -> list[Layer]:
        post, bias, scale = _average(node, math.prod(node.x.shape[2:]))
        name, ops = labels([node.node, *tail])
        view = operands.view(node.x.name, Layout.CHANNELS_FIRST)
        large = math.prod(node.x.shape[2:]) > operands.config.act_rows // 2 - 8
        kind = LargeMeanLayer if large else MeanLayer
        return [kind(name, ops, [view], operands.output(node.y.name), post, bias=bias, scale=scale)]


@functools.lru_cache(maxsize=1024)
def _mean_may_tie(sx: float, zx: int, sy: float, n: int, low: int, high: int) -> bool:
    """Returns the result of `numerics.mean_may_tie`, cached."""
    return numerics.mean_may_tie(sx, zx, sy, n, low, high)


def may_tie(x: Tensor, y: Tensor, taps: int) -> bool:
    """Returns True if an average of `taps` elements of `x` may be halfway between two values of `y`."""
    assert x.quant is not None and y.quant is not None
    return _mean_may_tie(float(x.quant.scale), int(x.quant.zero_point), float(y.quant.scale), taps, *limits(x.dtype))


def _average(node: TypedNode[QAveragePool | QGlobalAveragePool], n: int) -> tuple[Post, int, np.float32]:
    """Returns the requantiser, bias and scale of an average over n stored values."""
    x, y = node.x, node.y
    assert x.quant is not None and y.quant is not None
    low, high = stored_limits(y, node.op)
    if node.op.half_away:
        stored = 128 if x.dtype == np.uint8 else 0  # averages of the model's own integers: sums of uint8 are positive
        factor = half_away_factor(n, x)
        assert factor is not None
        return Post(zp=-stored, low=low, high=high, rounding=Rounding.HALF_AWAY), n * stored, factor
    post, bias = Post(zp=stored_zero_point(y), low=low, high=high), -n * stored_zero_point(x)
    given = None
    if isinstance(node.op, QGlobalAveragePool):
        if node.op.offset is not None:
            rule = mean_rule(node.op, x, y)
            assert rule is not None
            factor, post.rounding = rule
            return post, bias, factor
        given = node.op.factor
    return post, bias, numerics.mean_scale(x.quant.scale, y.quant.scale, n) if given is None else np.float32(given)


def half_away_factor(n: int, x: Tensor) -> np.float32 | None:
    """Returns the scale by which averages of n values round halves away from 0 for every sum; None without one."""
    return _half_away_factor(n, *limits(x.dtype))


@functools.lru_cache(maxsize=256)
def _half_away_factor(n: int, low: int, high: int) -> np.float32 | None:
    return None if n > 1 << 14 else numerics.half_away_scale(n, low * n, high * n)


def mean_rule(op: QGlobalAveragePool, x: Tensor, y: Tensor) -> tuple[np.float32, Rounding] | None:
    """Returns the factor and rounding that equal LiteRT's mean with an `offset` for every sum; None without one."""
    assert x.quant is not None and y.quant is not None and op.factor is not None
    info, zeros = np.iinfo(x.dtype), (int(x.quant.zero_point), int(y.quant.zero_point))
    return _mean_rule(math.prod(x.shape[2:]), op.factor, *zeros, int(info.min), int(info.max))


@functools.lru_cache(maxsize=256)
def _mean_rule(n: int, factor: float, zx: int, zy: int, low: int, high: int) -> tuple[np.float32, Rounding] | None:
    return None if n > 1 << 12 else numerics.litert_mean_on_machine(n, factor, zx, zy, low, high)
