"""Scaled dot-product attention of float heads, the common part of com.microsoft's attention ops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.onnx.onnx_ops import elem_type

MS = "com.microsoft"


def cast(builder: OnnxBuilder, x: str, dtype: np.typing.DTypeLike) -> str:
    """Casts a tensor to `dtype`; one that has it already stays."""
    kind = np.dtype(dtype)
    return x if builder.tensor(x).dtype == kind else builder.emit("Cast", [x], attrs={"to": elem_type(kind)})


def shaped(builder: OnnxBuilder, x: str, shape: Sequence[int]) -> str:
    """Reshapes a tensor; one dimension of the shape may be -1."""
    size, rest = math.prod(builder.shape(x)), math.prod(d for d in shape if d != -1)
    whole = [size // max(rest, 1) if d == -1 else d for d in shape]
    return x if tuple(whole) == builder.shape(x) else builder.reshaped(x, whole)


def heads(builder: OnnxBuilder, node: OnnxNode, x: str, count: int) -> str:
    """Splits [batch, sequence, heads * head_size] into [batch, heads, sequence, head_size]."""
    shape = builder.shape(x)
    if len(shape) != 3 or shape[2] % count:
        raise CompileError(
            f"{node.label}: {x!r} has shape {list(shape)}; [batch, sequence, channels] of {count} heads are wanted"
        )
    return builder.emit("Transpose", [shaped(builder, x, [*shape[:2], count, -1])], attrs={"perm": [0, 2, 1, 3]})


def joined(builder: OnnxBuilder, x: str) -> str:
    """Joins [batch, heads, sequence, head_size] to [batch, sequence, heads * head_size]."""
    batch, count, length, size = builder.shape(x)
    rows = builder.emit("Transpose", [x], attrs={"perm": [0, 2, 1, 3]})
    return shaped(builder, rows, [batch, length, count * size])


def scores(builder: OnnxBuilder, q: str, k: str, scale: float) -> str:
    """scale * q x k' in float32: [batch, heads, sequence, keys]. Heads of q that share one of k are adjacent."""
    (batch, count, length, size), shared = builder.shape(q), builder.shape(k)[1]
    rows = shaped(builder, cast(builder, q, np.float32), [batch, shared, -1, size])
    columns = builder.emit("Transpose", [cast(builder, k, np.float32)], attrs={"perm": [0, 1, 3, 2]})
    factor = builder.constant("scale", scale, np.float32)
    found = builder.emit("Mul", [builder.emit("MatMul", [rows, columns]), factor])
    return shaped(builder, found, [batch, count, length, -1])


def weighted(builder: OnnxBuilder, probabilities: str, v: str) -> str:
    """probabilities x v in float32: [batch, heads, sequence, head_size of v]."""
    (batch, count, length, keys), shared = builder.shape(probabilities), builder.shape(v)[1]
    rows = shaped(builder, probabilities, [batch, shared, -1, keys])
    return shaped(builder, builder.emit("MatMul", [rows, cast(builder, v, np.float32)]), [batch, count, length, -1])


def default_scale(node: OnnxNode, head_size: int) -> float:
    """The attribute `scale`, 1 / sqrt(head_size) where it is missing or 0."""
    return float(node.attrs.get("scale", 0.0)) or 1.0 / math.sqrt(head_size)
