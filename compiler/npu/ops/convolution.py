"""Lowers QConv and QConvTranspose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.convolution import QConv, QConvTranspose
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.int8_storage import stored_zero_point
from tilewright.compiler.npu.layers.conv import ConvLayer
from tilewright.compiler.npu.layers.conv_tiling import Phase
from tilewright.compiler.npu.layers.depthwise import DepthwiseLayer
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.layers.products import Products, taps_inside, transposed_taps
from tilewright.compiler.npu.layers.rest import Rest
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.ops.tail import fuse_tail, labels
from tilewright.compiler.npu.ops.weights import bias_unsupported, corrected_bias, requantiser, split_zero_point
from tilewright.compiler.npu.ops.window import begin_pads, rows_columns, window_unsupported
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layout


def _unsupported(node: TypedNode[QConv | QConvTranspose]) -> str | None:
    """Returns the reason why the NPU cannot run weights, bias or window of a node, None if it can."""
    w = node.operand(1)
    if not w.is_const or w.dtype != np.int8:
        return "weights are not int8 constants"
    return bias_unsupported(node) or window_unsupported(node)


def model_products(node: TypedNode[Any], taps: Callable[..., np.ndarray], made: View) -> Products:
    """Returns the products of the model's arithmetic, however the layer computes them.

    Each byte of an activation has products of its own.

    Args:
        node: a node of an op with a window and groups.
        taps: counts the taps of each output inside the input along an axis, int64 [outputs].
        made: the view of the output.
    """
    op, sizes = node.op, rows_columns(node.x.shape[2:])
    kernel, stride, dilation, pad = (
        rows_columns(op.kernel),
        rows_columns(op.strides),
        rows_columns(op.dilations),
        begin_pads(op),
    )
    along = [taps((made.h, made.w)[i], sizes[i], kernel[i], stride[i], dilation[i], pad[i]) for i in range(2)]
    return Products(along[0], along[1], node.x.shape[1] // op.group, made.n * made.c * made.bytes)


@npu_op(QConv)
class Conv(NpuOp[QConv]):
    """Convolution on the array; depthwise convolutions in its window mode, where the machine has that."""

    condition = (
        "int8 constant weights, constant bias, 1 or 2 spatial axes, kernel up to 63, stride and dilation up to 64, "
        "pads 0..255"
    )
    layout = Layout.CHANNELS_FIRST
    takes_add = takes_table = True

    def unsupported(self, node: TypedNode[QConv], config: NpuConfig) -> str | None:
        return _unsupported(node)

    def lower(self, node: TypedNode[QConv], operands: Operands, tail: list[Node]) -> list[Layer]:
        x, w, y, op = node.x, node.operand(1), node.y, node.op
        assert w.data is not None and w.quant is not None
        data = w.data if len(op.kernel) == 2 else w.data[:, :, None, :]
        post, scale = requantiser(node, data.shape[0])
        sets = split_zero_point(data, w.quant.zero_point)
        bias, fill, macs = corrected_bias(node, sets), stored_zero_point(x), node.graph.macs(node.node)
        stride, dilation, pad = rows_columns(op.strides), rows_columns(op.dilations), begin_pads(op)
        depthwise = op.group == x.shape[1] == y.shape[1] and op.group > 1
        depthwise = depthwise and bool(operands.config.depthwise)  # else diagonal tiles of the grouped convolution
        packed = None
        if not depthwise:
            packed = operands.pack_input(node.node, data.shape, stride, dilation, pad, op.group)
        if packed is None:
            view = operands.view(x.name, Layout.CHANNELS_FIRST)
        else:
            view, pad, stride, dilation = packed.view, packed.pad, packed.stride, packed.dilation
            sets = np.stack([packed.repack(w_set) for w_set in sets])
        name, ops = labels([node.node, *tail])
        made = operands.output(fuse_tail(operands, post, tail, Layout.CHANNELS_FIRST, y.name))
        products = None if op.moves else model_products(node, taps_inside, made)
        if depthwise:
            return [DepthwiseLayer(
                name, ops, [view], made, post, macs, products, weights=sets[0][:, 0], bias=bias, scale=scale, pad=pad,
                stride=stride, dilation=dilation, fill=fill,
                rest=Rest.of(sets[1:], op.group, operands.config) if len(sets) > 1 else None,
            )]  # fmt: skip
        phase = Phase.of(sets, op.group, operands.config, pad=pad, stride=stride, dilation=dilation)
        return [ConvLayer(
            name, ops, [view], made, post, macs, products, phases=[phase], bias=bias, scale=scale, group=op.group,
            fill=fill,
        )]  # fmt: skip


@npu_op(QConvTranspose)
class ConvTranspose(NpuOp[QConvTranspose]):
    """Transposed convolution: one ordinary convolution for each phase of the output's rows and columns."""

    condition = "as QConv, not with stride and dilation together"
    layout = Layout.CHANNELS_FIRST
    takes_add = takes_table = True

    def unsupported(self, node: TypedNode[QConvTranspose], config: NpuConfig) -> str | None:
        if max(node.op.dilations) > 1 and max(node.op.strides) > 1:
            return "ConvTranspose with stride and dilation"
        return _unsupported(node)

    def lower(self, node: TypedNode[QConvTranspose], operands: Operands, tail: list[Node]) -> list[Layer]:
        x, w, y, op = node.x, node.operand(1), node.y, node.op
        assert w.data is not None and w.quant is not None
        data, group = w.data if len(op.kernel) == 2 else w.data[:, :, None, :], op.group
        c, og, kh, kw = data.shape
        # [C, O/g, kh, kw] -> [O, C/g, kh, kw], kernel mirrored so that taps walk forward over the input.
        swapped = data.reshape(group, c // group, og, kh, kw).transpose(0, 2, 1, 3, 4)
        mirrored = swapped.reshape(group * og, c // group, kh, kw)[:, :, ::-1, ::-1]
        zero_point = w.quant.zero_point
        if zero_point.ndim and zero_point.size != group * og:
            zero_point = np.tile(zero_point, group)
        post, scale = requantiser(node, og if w.quant.scale.ndim else group * og)
        if scale.size != group * og:
            scale = np.tile(scale, group)
        sets = split_zero_point(mirrored, zero_point)
        stride, dilation, pad = rows_columns(op.strides), rows_columns(op.dilations), begin_pads(op)
        # The bias correction assumes zero-point padding around the input, so that every tap counts once.
        phases, biases = [], []
        out = rows_columns(y.shape[2:])
        for py in range(min(stride[0], out[0])):
            for px in range(min(stride[1], out[1])):
                axes = [_phase_axis(p, pad[i], (kh, kw)[i], stride[i], dilation[i]) for i, p in ((0, py), (1, px))]
                (ky0, ny, pad_y), (kx0, nx, pad_x) = axes
                if ny == 0 or nx == 0:
                    taps = np.zeros((*sets.shape[:3], 1, 1), np.int8)
                else:
                    taps = sets[:, :, :, ky0 :: stride[0], kx0 :: stride[1]]
                inner = dilation if stride == (1, 1) else (1, 1)
                phases.append(Phase.of(
                    taps, group, operands.config, pad=(pad_y, pad_x), dilation=inner, out_step=stride,
                    out_start=(py, px),
                ))  # fmt: skip
                biases.append(corrected_bias(node, taps))
        view = operands.view(x.name, Layout.CHANNELS_FIRST)
        name, ops = labels([node.node, *tail])
        made = operands.output(fuse_tail(operands, post, tail, Layout.CHANNELS_FIRST, y.name))
        return [ConvLayer(
            name, ops, [view], made, post, node.graph.macs(node.node),
            None if op.moves else model_products(node, transposed_taps, made),
            phases=phases, bias=np.stack(biases), scale=scale, group=group, fill=stored_zero_point(x),
        )]  # fmt: skip


def _phase_axis(phase: int, pad: int, kernel: int, stride: int, dilation: int) -> tuple[int, int, int]:
    """Returns the taps of one output phase along one axis, in the mirrored kernel.

    Output o = q*stride + phase gets input i through kernel index k (unmirrored) when o + pad = i*stride + k*dilation.

    Returns:
        (first mirrored index, number of taps, pad of the phase's ordinary convolution).
    """
    if stride == 1:
        return 0, kernel, (kernel - 1) * dilation - pad
    first = (phase + pad) % stride  # unmirrored k of this phase: first, first + stride, ...
    count = -(-(kernel - first) // stride) if first < kernel else 0
    if count == 0:
        return 0, 0, 0
    last = first + (count - 1) * stride
    # Input row of tap k at q is q + (phase + pad - k) / stride; the mirrored order starts at the largest k.
    return kernel - 1 - last, count, -((phase + pad - last) // stride)
