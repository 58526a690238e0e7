"""QMatMul."""

from __future__ import annotations

import numpy as np

from compiler.graph import Node
from compiler.npu.blocks.operands import Operands
from compiler.npu.layers.conv import ConvLayer
from compiler.npu.layers.conv_tiling import Phase
from compiler.npu.layers.layer import Layer
from compiler.npu.layers.products import Products
from compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from compiler.npu.ops.tail import fuse_tail, labels
from compiler.npu.ops.weights import bias_unsupported, corrected_bias, requantiser, split_zero_point
from compiler.npu.stored import stored_zero_point
from compiler.ops.product import QMatMul
from compiler.tensor import EIGHT_BIT
from isa.config import NpuConfig
from isa.program import Layout


@npu_op(QMatMul)
class MatMul(NpuOp[QMatMul]):
    """Matrix product: a 1x1 convolution over the rows. A second activation is packed into weight tiles at run time."""

    condition = "constant weights, or two activations with equal batch axes and without bias"
    layout = Layout.CHANNELS_LAST
    takes_add = takes_table = True

    def unsupported(self, node: TypedNode[QMatMul], config: NpuConfig) -> str | None:
        x, w = node.x, node.operand(1)
        if len(x.shape) < 2 or len(w.shape) < 2:
            return f"operands of rank {len(x.shape)} and {len(w.shape)}"
        reason = bias_unsupported(node)
        if reason is not None:
            return reason
        if w.is_const:
            if w.dtype != np.int8:
                return "weights are not int8"
            return "batched constant weights" if len(w.shape) > 2 and w.size != w.shape[-1] * w.shape[-2] else None
        if node.has(2):
            return "product of two activations with bias"
        if w.dtype not in EIGHT_BIT or w.quant is None or not w.quant.per_tensor:
            return "second operand is not int8 or uint8 with one scale"
        if x.shape[:-2] != w.shape[:-2]:
            return f"broadcast batch axes {x.shape[:-2]} and {w.shape[:-2]}"
        return None

    def lower(self, node: TypedNode[QMatMul], operands: Operands, tail: list[Node]) -> list[Layer]:
        x, w = node.x, node.operand(1)
        k, n = w.shape[-2:]
        post, scale = requantiser(node, n)
        fill = stored_zero_point(x)
        name, ops = labels([node.node, *tail])
        view = operands.view(x.name, Layout.CHANNELS_LAST)
        dynamic, bias, sets = None, np.zeros(n, np.int32), np.zeros((1, n, k, 1, 1), np.int8)
        if w.data is not None:
            assert w.quant is not None
            sets = split_zero_point(w.data.reshape(k, n).T[:, :, None, None], w.quant.zero_point)
            bias = corrected_bias(node, sets)
        else:
            dynamic = operands.dynamic_weights(node.node, fill, float(scale[0]))
        made = operands.output(fuse_tail(operands, post, tail, Layout.CHANNELS_LAST, node.y.name))
        products = Products(np.ones(made.h, np.int64), np.ones(made.w, np.int64), k, made.n * made.c)
        phase = Phase.of(sets, 1, operands.config, pad=(0, 0))
        layer = ConvLayer(
            name, ops, [view], made, post, node.graph.macs(node.node), products, phases=[phase], bias=bias,
            scale=scale, fill=fill, dynamic=dynamic,
        )  # fmt: skip
        if dynamic is not None:
            layer.extra_reads += [dynamic.tiles, dynamic.params]
        return [layer]
