"""RFFT2D and what reads complex numbers: these are a float32 tensor of the graph with real and imaginary parts as its
last axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.compiler.graph.tensor import Tensor
from tilewright.compiler.importer.fourier import transform
from tilewright.compiler.importer.tflite.builder import PARTS, TfliteBuilder
from tilewright.compiler.importer.tflite.handlers import COMPLEX, handles
from tilewright.compiler.importer.tflite.movement import new_shape, squeezed
from tilewright.compiler.importer.tflite.schema import FileOp


class _Emitter:
    """The emitter of `transform`, over a builder."""

    def __init__(self, b: TfliteBuilder) -> None:
        self.b = b

    def tensor(self, name: str) -> Tensor:
        return self.b.graph.tensor(name)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensor(name).shape

    def constant(self, stem: str, value: Any, dtype: Any = None) -> str:
        return self.b.constant(stem, value, dtype)

    def ints(self, stem: str, value: Sequence[int]) -> str:
        return self.b.constant(stem, value, np.int64)

    def emit(self, op: str, inputs: Sequence[str], *, attrs: Any = None) -> str:
        return self.b.onnx(op, inputs, attrs)

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        return self.b.reshaped(x, shape)


@handles("RFFT2D", table=COMPLEX)
def rfft2d(b: TfliteBuilder, op: FileOp) -> None:
    """[..., rows, columns] -> [..., length of columns, length of rows / 2 + 1]: rows first, then columns. What is
    beyond the lengths is cut, what is missing is zeros."""
    shape, lengths, x = b.shape(0), b.ints(1, "lengths"), b.real(0)
    if len(shape) < 2 or len(lengths) != 2 or min(lengths) < 1:
        raise b.refuse(f"lengths {lengths} of {list(shape)}; two above 0 of a tensor of rank 2 and more are accepted")
    emitter, (rows, columns) = _Emitter(b), lengths
    y = transform(emitter, b.reshaped(x, [*shape, 1]), columns, inverse=False, onesided=True)
    if (shape[-2], rows) != (1, 1):
        swap = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2, len(shape)]
        y = transform(emitter, b.onnx("Transpose", [y], {"perm": swap}), rows, inverse=False, onesided=False)
        y = b.onnx("Transpose", [y], {"perm": swap})
    _complex_result(b, y)


@handles("RESHAPE", "SQUEEZE", "EXPAND_DIMS", table=COMPLEX)
def reshape(b: TfliteBuilder, op: FileOp) -> None:
    shape = squeezed(b, op) if op.name == "SQUEEZE" else new_shape(b, op)
    _complex_result(b, b.reshaped(b.value(0, PARTS), [*shape, 2]))


@handles("CAST", "REAL", "IMAG", table=COMPLEX)
def part(b: TfliteBuilder, op: FileOp) -> None:
    """One of the parts; CAST to float32 takes the real one."""
    y = _part(b, 1 if op.name == "IMAG" else 0)
    b.onnx("Identity", [y], {}, b.result(b.shape(0)))


@handles("COMPLEX_ABS", table=COMPLEX)
def magnitude(b: TfliteBuilder, op: FileOp) -> None:
    real, imaginary = (_part(b, k) for k in range(2))
    squares = [b.onnx("Mul", [x, x]) for x in (real, imaginary)]
    b.onnx("Sqrt", [b.onnx("Add", squares)], {}, b.result(b.shape(0)))


def _part(b: TfliteBuilder, k: int) -> str:
    """The real (0) or imaginary (1) part of the first input."""
    index = b.constant("part", k, np.int64)
    return b.onnx("Gather", [b.value(0, PARTS), index], {"axis": len(b.shape(0))})


def _complex_result(b: TfliteBuilder, name: str) -> None:
    """Makes a tensor [..., 2] the op's result."""
    t, shape = b.target(), b.graph.tensor(name).shape[:-1]
    if t.type_name != "COMPLEX64":
        raise b.damaged(f"output {t.name!r} is {t.type_name}, not COMPLEX64")
    b.check_result(t, shape)
    b.forms[t.index] = {PARTS: name}
