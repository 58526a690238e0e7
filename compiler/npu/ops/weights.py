"""Constant weights and their requantiser, for convolutions and products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.compiler.graph.ops.quantized_op import Clamped
from tilewright.compiler.npu.int8_storage import stored_limits, stored_zero_point
from tilewright.compiler.npu.layers.layer import Post
from tilewright.compiler.npu.ops.npu_op import TypedNode
from tilewright.isa import numerics


def bias_unsupported(node: TypedNode[Any]) -> str | None:
    """Returns the reason why the NPU cannot use a node's bias, None if it can."""
    return "bias is not a constant" if node.has(2) and not node.operand(2).is_const else None


def split_zero_point(w: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """Returns int8 sets [sets, ...] that add up to w - zero_point; `zero_point` broadcasts along axis 0."""
    if w.dtype == np.int8 and not np.any(zero_point):  # hundreds of megabytes, perhaps
        return w[None]
    z = np.asarray(zero_point, np.int32).reshape(-1, *([1] * (w.ndim - 1)))  # one value or one per output
    rest = w.astype(np.int32) - z
    sets = []
    while True:
        fits = np.clip(rest, -128, 127)
        sets.append(fits.astype(np.int8))
        rest = rest - fits
        if not rest.any():
            return np.stack(sets)


def corrected_bias(node: TypedNode[Clamped], sets: np.ndarray) -> np.ndarray:
    """Returns bias - zx * (sum of each output's weights), int32 [O], modulo 2**32.

    Args:
        node: the convolution or product.
        sets: int8 [sets, O, C/group, kernel rows, kernel columns].
    """
    sums = sets.sum(axis=(0, 2, 3, 4), dtype=np.int64)
    bias = np.zeros(sums.shape, np.int64)
    if node.has(2):
        given = node.operand(2).data
        assert given is not None
        bias = bias + given.astype(np.int64).reshape(-1)
    return np.asarray(numerics.wrap32(bias - stored_zero_point(node.x) * sums))


def requantiser(node: TypedNode[Clamped], channels: int) -> tuple[Post, np.ndarray]:
    """Returns the clamp and zero point of the requantiser, and its scales, float32 [channels]."""
    x, w, y = node.x, node.operand(1), node.y
    assert x.quant is not None and w.quant is not None and y.quant is not None
    scale = numerics.product_scale(x.quant.scale, w.quant.scale, y.quant.scale)
    low, high = stored_limits(y, node.op)
    post = Post(zp=stored_zero_point(y), low=low, high=high)
    return post, np.broadcast_to(scale.reshape(-1), (channels,)).astype(np.float32)
