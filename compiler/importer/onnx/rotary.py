"""Rotary position embedding of onnxruntime's com.microsoft domain, by ONNX's own RotaryEmbedding."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx.attention_core import MS, cast, heads, joined, shaped
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode


def rotated(builder: OnnxBuilder, node: OnnxNode, x: str, cos: str, sin: str, positions: str, interleaved: bool) -> str:
    """Emits heads [batch, heads, sequence, head_size] rotated by the rows `positions` [batch, sequence] of the caches
    [rows, rotary_dim / 2]; elements of a head from `rotary_dim` on stay. Computed in float32, rounded once.

    Raises:
        CompileError: caches that differ in shape, or are wider than half a head.
    """
    dtype, size = builder.tensor(x).dtype, builder.shape(x)[-1]
    wide, other = builder.shape(cos), builder.shape(sin)
    if wide != other or len(wide) != 2 or 2 * wide[1] > size:
        raise CompileError(
            f"{node.label}: cos_cache {list(wide)} and sin_cache {list(other)} must be alike, "
            f"[positions, up to {size // 2}] for heads of {size}"
        )
    inputs = [*(cast(builder, name, np.float32) for name in (x, cos, sin)), positions]
    attrs = {"interleaved": int(interleaved), "rotary_embedding_dim": 2 * wide[1] if 2 * wide[1] < size else 0}
    return cast(builder, builder.emit("RotaryEmbedding", inputs, attrs=attrs), dtype)


def consecutive_positions(builder: OnnxBuilder, first: str, batch: int, length: int) -> str:
    """Positions [batch, length] that count on from `first`, one for all rows or one per row."""
    steps = builder.ints("steps", range(length))
    column = shaped(builder, cast(builder, first, np.int64), [-1, 1])
    return builder.emit("Expand", [builder.emit("Add", [column, steps]), builder.ints("shape", [batch, length])])


@handles("RotaryEmbedding", domain=MS)
def rotary_embedding(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs [batch, sequence, heads * head_size] or [batch, heads, sequence, head_size], position_ids (the first one,
    or [batch, sequence]), cos_cache, sin_cache."""
    node.accept("is_packed_batching", 0)
    x, cos, sin = node.input(0), node.input(2), node.input(3)
    shape, part = builder.shape(x), int(node.attrs.get("rotary_embedding_dim", 0))
    if len(shape) not in (3, 4):
        raise CompileError(f"{node.label}: input {x!r} has shape {list(shape)}; 3 or 4 dimensions are accepted")
    if len(shape) == 3:
        size = shape[-1] // node.positive("num_heads", 0) if part else 2 * builder.shape(cos)[-1]
        x = heads(builder, node, x, shape[-1] // max(size, 1))
    batch, length = shape[0], builder.shape(x)[2]
    positions = node.input(1)
    if len(builder.shape(positions)) < 2:
        positions = consecutive_positions(builder, positions, batch, length)
    y = rotated(builder, node, x, cos, sin, positions, bool(node.attrs.get("interleaved", 0)))
    builder.bind(joined(builder, y) if len(shape) == 3 else y, node.output(0))
