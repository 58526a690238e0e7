"""Discrete Fourier transforms as products with matrices of roots of unity; long transforms split into short ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.compiler.graph.tensor import Tensor
from tilewright.compiler.onnx.onnx_ops import elem_type

LONGEST = 512
"""Longest direct transform. Longer ones are split where possible: n^2 work and memory become n (p + q)."""


class Emitter(Protocol):
    """The part of a builder that appends nodes: `OnnxBuilder`, or one for TFLite."""

    def tensor(self, name: str) -> Tensor: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def constant(self, stem: str, value: Any, dtype: Any = None) -> str: ...

    def ints(self, stem: str, value: Sequence[int]) -> str: ...

    def emit(self, op: str, inputs: Sequence[str], *, attrs: Any = None) -> str: ...

    def reshaped(self, x: str, shape: Sequence[int]) -> str: ...


def transform(builder: Emitter, x: str, length: int, inverse: bool, onesided: bool) -> str:
    """Emits the transform along the last but one axis of [..., n, 1 or 2]; n is cut or zero-padded to the length."""
    shape, dtype = builder.shape(x), builder.tensor(x).dtype
    wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    if dtype != wide:
        x = builder.emit("Cast", [x], attrs={"to": elem_type(wide)})
    rows = math.prod(shape[:-2])
    x = builder.reshaped(x, [rows, *shape[-2:]])
    if length <= LONGEST or _split(length) == 1:
        y = _direct(builder, x, length, inverse, onesided, wide)
    else:
        y = _long(builder, x, length, inverse, onesided, wide)
    y = builder.reshaped(y, [*shape[:-2], *builder.shape(y)[1:]])
    return builder.emit("Cast", [y], attrs={"to": elem_type(dtype)}) if dtype != wide else y


def _direct(builder: Emitter, x: str, length: int, inverse: bool, onesided: bool, dtype: np.dtype) -> str:
    """Emits the transform as one matrix product: [rows, n, c] -> [rows, k, c']."""
    rows, n, parts = builder.shape(x)
    # Numbers of input and output points that count; what lies beyond the length is ignored.
    points_in = length // 2 + 1 if inverse and onesided else length
    points_out = length // 2 + 1 if onesided and not inverse else length
    angle = 2 * np.pi / length * (np.outer(np.arange(n), np.arange(points_out)) % length)
    cos, sin = np.cos(angle), np.sin(angle) * (1 if inverse else -1)
    matrix = np.zeros((n, parts, points_out, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cos, sin
    if parts == 2:
        matrix[:, 1, :, 0], matrix[:, 1, :, 1] = -sin, cos
    matrix[points_in:] = 0
    if inverse:
        matrix /= length
    if inverse and onesided:
        matrix = matrix[..., :1]  # the other half of the spectrum is the conjugate of this one
        ends = [0, *([length // 2] if length % 2 == 0 else [])]
        matrix[~np.isin(np.arange(n), ends)] *= 2
    flat = builder.reshaped(x, [rows, n * parts])
    wide = matrix.reshape(n * parts, -1).astype(dtype)
    return builder.reshaped(builder.emit("MatMul", [flat, builder.constant("roots", wide)]), [rows, *matrix.shape[2:]])


def _split(length: int) -> int:
    """The largest factor of `length` that is not above its square root."""
    return next(p for p in range(math.isqrt(length), 0, -1) if length % p == 0)


def _long(builder: Emitter, x: str, length: int, inverse: bool, onesided: bool, dtype: np.dtype) -> str:
    """Emits the transform of a long sequence, by the complex transform of the whole length."""
    _, n, parts = builder.shape(x)
    points_in = length // 2 + 1 if inverse and onesided else length
    if n > points_in:
        x = _slice(builder, x, points_in, 1)
    padding = [0, 0, 0, 0, max(points_in - n, 0), 2 - parts]
    if any(padding):
        x = builder.emit("Pad", [x, builder.ints("pads", padding), builder.constant("zero", 0, dtype)])
    if inverse and onesided:
        back = np.arange(length)
        mirrored = back >= points_in
        index = builder.constant("mirror", np.where(mirrored, length - back, back))
        sign = np.stack([np.ones(length), np.where(mirrored, -1, 1)], axis=-1)
        # Like every inverse of a one-sided spectrum: the imaginary parts of its ends do not count.
        sign[[0, *([length // 2] if length % 2 == 0 else [])], 1] = 0
        x = builder.emit(
            "Mul", [builder.emit("Gather", [x, index], attrs={"axis": 1}), builder.constant("sign", sign, dtype)]
        )
    y = _complex(builder, x, inverse, dtype)
    if inverse:
        y = builder.emit("Mul", [y, builder.constant("scale", 1 / length, dtype)])
        return _slice(builder, y, 1, 2) if onesided else y
    return _slice(builder, y, length // 2 + 1, 1) if onesided else y


def _slice(builder: Emitter, x: str, end: int, axis: int) -> str:
    bounds = [builder.ints(what, [v]) for what, v in (("starts", 0), ("ends", end), ("axes", axis), ("steps", 1))]
    return builder.emit("Slice", [x, *bounds])


def _complex(builder: Emitter, x: str, inverse: bool, dtype: np.dtype) -> str:
    """Emits [rows, n, 2] -> [rows, n, 2], unscaled, n = p q: q-point transforms, a rotation, p-point transforms."""
    rows, n, _ = builder.shape(x)
    p = _split(n)
    if n <= LONGEST or p == 1:
        y = _direct(builder, x, n, inverse, False, dtype)
        return builder.emit("Mul", [y, builder.constant("scale", n, dtype)]) if inverse else y
    q = n // p
    swap = lambda name: builder.emit("Transpose", [name], attrs={"perm": [0, 2, 1, 3]})
    columns = swap(builder.reshaped(x, [rows, q, p, 2]))
    y = _complex(builder, builder.reshaped(columns, [rows * p, q, 2]), inverse, dtype)
    angle = 2 * np.pi / n * np.outer(np.arange(p), np.arange(q)) * (1 if inverse else -1)
    # (a + ib)(c + is) = a (c, s) + b (-s, c)
    turns = np.stack([np.cos(angle), np.sin(angle)], axis=-1), np.stack([-np.sin(angle), np.cos(angle)], axis=-1)
    y = builder.reshaped(y, [rows, p, q, 2])
    real, imaginary = (
        builder.emit("Gather", [y, builder.ints("part", [part])], attrs={"axis": 3}) for part in range(2)
    )
    products = [builder.emit("Mul", [v, builder.constant("turn", t, dtype)]) for v, t in zip((real, imaginary), turns)]
    y = swap(builder.emit("Add", products))
    y = _complex(builder, builder.reshaped(y, [rows * q, p, 2]), inverse, dtype)
    return builder.reshaped(swap(builder.reshaped(y, [rows, q, p, 2])), [rows, n, 2])
