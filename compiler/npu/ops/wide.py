"""Lowers QConv16, convolutions of 16-bit activations: each byte has sums of its own, which VECTOR_WIDE adds up."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.wide import QConv16
from tilewright.compiler.graph.tensor import Tensor
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.layers.conv import ConvLayer
from tilewright.compiler.npu.layers.conv_tiling import Phase
from tilewright.compiler.npu.layers.depthwise import DepthwiseLayer
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.layers.products import taps_inside
from tilewright.compiler.npu.ops.convolution import model_products
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.ops.tail import labels
from tilewright.compiler.npu.ops.weights import bias_unsupported
from tilewright.compiler.npu.ops.window import begin_pads, rows_columns, window_unsupported
from tilewright.isa import wide_numerics
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layout


@npu_op(QConv16)
class Conv16(NpuOp[QConv16]):
    """Convolution of 16-bit activations on the array, with twice the products; depthwise ones in its window mode."""

    condition = "the machine has `wide_results`, the bias is a constant below 2^41, limits as for QConv"
    layout = Layout.CHANNELS_FIRST

    def activation_error(self, t: Tensor) -> str | None:
        return None if t.dtype == np.int16 else f"{t.name} is {t.dtype}, not int16"

    def unsupported(self, node: TypedNode[QConv16], config: NpuConfig) -> str | None:
        if not config.wide_results:
            return "the machine has no `wide_results`, so every sum leaves it as 8 bits"
        reason = bias_unsupported(node) or window_unsupported(node)
        if reason is not None:
            return reason
        most = int(np.max(np.abs(_bias(node))))
        if most > wide_numerics.WIDE_BIAS_MOST:
            return (
                f"a bias of {most}, with 128 times the weights; up to {wide_numerics.WIDE_BIAS_MOST} fit a row of PRM"
            )
        return None

    def lower(self, node: TypedNode[QConv16], operands: Operands, tail: list[Node]) -> list[Layer]:
        x, y, op = node.x, node.y, node.op
        data = _weights(node)
        bias, scale = wide_numerics.wide_parameters(_bias(node), op.multipliers, op.shifts)
        post = Post(low=op.low, high=op.high)
        stride, dilation, pad = rows_columns(op.strides), rows_columns(op.dilations), begin_pads(op)
        depthwise = op.group == x.shape[1] == y.shape[1] and op.group > 1 and bool(operands.config.depthwise)
        packed = None
        if not depthwise:
            packed = operands.pack_input(node.node, data.shape, stride, dilation, pad, op.group)
        if packed is None:
            view = operands.view(x.name, Layout.CHANNELS_FIRST)
        else:
            view, pad, stride, dilation = packed.view, packed.pad, packed.stride, packed.dilation
            data = packed.repack(data)
        name, ops = labels([node.node])
        made = operands.output(y.name)
        macs, products = node.graph.macs(node.node), model_products(node, taps_inside, made)
        if depthwise:
            return [DepthwiseLayer(
                name, ops, [view], made, post, macs, products, weights=data[:, 0], bias=bias, scale=scale, pad=pad,
                stride=stride, dilation=dilation,
            )]  # fmt: skip
        phase = Phase(data[None], pad, stride, dilation)
        return [ConvLayer(
            name, ops, [view], made, post, macs, products, phases=[phase], bias=bias, scale=scale, group=op.group,
        )]  # fmt: skip


def _weights(node: TypedNode[QConv16]) -> np.ndarray:
    """Returns the weights, int8 [O, C/group, kernel rows, kernel columns]."""
    data = node.operand(1).data
    assert data is not None
    return data if data.ndim == 4 else data[:, :, None, :]


def _bias(node: TypedNode[QConv16]) -> np.ndarray:
    """Returns the bias plus 128 times each output's weights, which low bytes stored minus 128 lack; int64 [O]."""
    data = _weights(node)
    given = node.operand(2).data if node.has(2) else None
    bias = np.zeros(len(data), np.int64) if given is None else given
    return np.asarray(bias + 128 * data.astype(np.int64).reshape(len(data), -1).sum(axis=1))
