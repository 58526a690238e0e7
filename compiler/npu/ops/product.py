"""Lowers QMatMul."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.tensor import EIGHT_BIT, Tensor
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.int8_storage import stored_zero_point
from tilewright.compiler.npu.layers.conv import ConvLayer
from tilewright.compiler.npu.layers.conv_constants import DynamicWeights
from tilewright.compiler.npu.layers.conv_tiling import Phase
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.layers.product_params import (
    MAX_BIAS,
    PAIR_BYTES,
    ProductParamsLayer,
    int8_parts,
    params_fit,
)
from tilewright.compiler.npu.layers.products import Products
from tilewright.compiler.npu.layers.transposition import TransposeLayer
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.ops.tail import fuse_tail, labels
from tilewright.compiler.npu.ops.weights import bias_unsupported, corrected_bias, requantiser, split_zero_point
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import ARENA_REGION, Layout


@npu_op(QMatMul)
class MatMul(NpuOp[QMatMul]):
    """Matrix product: a 1x1 convolution over the rows. A second activation becomes weight tiles at run time."""

    condition = "constant weights, or two activations without bias; unequal batch axes in groups or by copies"
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
        if images_of_each(x.shape[:-2], w.shape[:-2]) is None:
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
        layers: list[Layer] = []
        if w.data is not None:
            assert w.quant is not None
            sets = split_zero_point(w.data.reshape(k, n).T[:, :, None, None], w.quant.zero_point)
            bias = corrected_bias(node, sets)
        else:
            layers, dynamic = _weights_from_activation(node, operands, name, fill, scale[0])
            group = images_of_each(node.x.shape[:-2], w.shape[:-2]) or 1
            dynamic = dynamic or operands.dynamic_weights(node.node, fill, float(scale[0]), group)
        made = operands.output(fuse_tail(operands, post, tail, Layout.CHANNELS_LAST, node.y.name))
        ones = np.ones(made.h, np.int64), np.ones(made.w, np.int64)
        products = None if node.op.moves else Products(*ones, k, made.n * made.c)
        phase = Phase.of(sets, 1, operands.config, pad=(0, 0))
        layer = ConvLayer(
            name, ops, [view], made, post, node.graph.macs(node.node), products, phases=[phase], bias=bias,
            scale=scale, fill=fill, dynamic=dynamic,
        )  # fmt: skip
        if dynamic is not None:
            layer.extra_reads += [dynamic.tiles, *([] if dynamic.params is None else [dynamic.params])]
        return [*layers, layer]


def images_of_each(first: tuple[int, ...], second: tuple[int, ...]) -> int | None:
    """Returns the number of images of a product's first operand in a row that are multiplied with each of the second.

    Args:
        first, second: axes of the operands before rows and columns.

    Returns:
        The number; None where the images of the second are repeated in another order, or those of the first at all.
    """
    same = next((at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(first))
    shared = len(first) == len(second) and all(size == 1 for size in second[same:])
    return math.prod(first[same:]) if shared else None


def weights_on_npu(
    config: NpuConfig, x: Tensor, b: Tensor, columns: Callable[[str], tuple[View, bool] | None]
) -> tuple[View, bool] | None:
    """Returns the view of a product's second activation if the NPU can make weights and biases of it; else None.

    Args:
        config: the machine.
        x, b: the operands.
        columns: `Layouts.columns`, whose result this is.
    """
    makes_biases = config.table_lookup and params_fit(config, 1, -(-b.shape[-1] // config.block_in))
    if stored_zero_point(x) and not (makes_biases and _max_bias(x, b) < MAX_BIAS):
        return None
    return columns(b.name)


def _max_bias(x: Tensor, b: Tensor) -> int:
    """Returns the largest magnitude of the biases that the first operand's zero point needs."""
    return abs(stored_zero_point(x)) * b.shape[-2] * (128 + abs(stored_zero_point(b)))


def _weights_from_activation(
    node: TypedNode[QMatMul], operands: Operands, name: str, a_zero_point: int, scale: np.float32
) -> tuple[list[Layer], DynamicWeights | None]:
    """Returns the layers by which the NPU makes weights and biases of the second operand, and where these are.

    The second result is None if the CPU has to make them.

    Args:
        node: the product.
        operands: provides the views.
        name: name of the layers.
        a_zero_point: zero point of the first operand as the machine stores it.
        scale: scale of the requantiser.
    """
    b, config = node.operand(1), operands.config
    found = weights_on_npu(config, node.x, b, operands.columns)
    if found is None:
        return [], None
    (k, n), count = b.shape[-2:], math.prod(b.shape[:-2])
    blocks, zero_point = -(-n // config.block_in), stored_zero_point(b)
    layers: list[Layer] = []
    rows, exchanged = found
    if exchanged:
        operands.as_weight_tiles(rows)
        identity = operands.constant("identity", np.eye(config.block_in, dtype=np.int8))
        made = operands.temporary(f"{b.name}@columns", b.name, Layout.CHANNELS_LAST, (count, k, 1, n))
        layers.append(TransposeLayer(
            f"{name} [columns]", node.node.op, [identity], made, Post(), extra_reads=[rows.buffer], source_rows=rows,
        ))  # fmt: skip
        rows = made
    offset, strides = operands.as_weight_tiles(rows)
    params = None
    if a_zero_point:
        zeros = (a_zero_point & -a_zero_point).bit_length() - 1
        parts = int8_parts(-2 * a_zero_point >> zeros)
        vectors = np.repeat(np.array(parts, np.int8)[:, None], config.block_in, 1)
        constant = operands.constant("sums", vectors)
        buffer = operands.params_buffer(b.name, b.shape[:-2], blocks)
        row = PAIR_BYTES * config.block_in
        made = View(
            tensor=b.name, region=ARENA_REGION, buffer=buffer.name, n=count, c=row, h=blocks, w=1, sn=blocks * row,
            sc=config.block_in, sh=row, block=config.block_in,
        )  # fmt: skip
        layers.append(ProductParamsLayer(
            f"{name} [biases]", node.node.op, [constant], made, Post(), extra_reads=[rows.buffer], rows=rows,
            low_zero_bits=zeros, constant=a_zero_point * zero_point * k, max_bias=_max_bias(node.x, b), scale=scale,
        ))  # fmt: skip
        params = buffer.name
    group = images_of_each(node.x.shape[:-2], b.shape[:-2]) or 1
    return layers, DynamicWeights(rows.buffer, params, k, zero_point, offset, strides, group)
