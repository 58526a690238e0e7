"""Ops that compute every element from the elements at its place: they can be evaluated at compile time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.compiler.graph.ops.quantized_op import Clamped, Operands, QuantizedOp, activation_error
from tilewright.compiler.graph.tensor import Tensor
from tilewright.isa import numerics


@dataclass(frozen=True, kw_only=True)
class Elementwise(QuantizedOp, abstract=True):
    """An op that works element by element."""

    @abstractmethod
    def value(self, arrays: Sequence[np.ndarray], operands: Sequence[Tensor], result: Tensor) -> np.ndarray:
        """The result for given operands.

        Args:
            arrays: the operands, in their tensors' types; shapes may differ from the tensors'.
            operands, result: types and quantisation.
        """

    def check(self, operands: Operands, result: Tensor) -> str | None:
        error = super().check(operands, result)
        return error or next((e for t in operands if t is not None and (e := activation_error(t))), None)


@dataclass(frozen=True)
class AddConstants:
    """Integer constants of an Add: `(a*ma + b*mb + c) >> shift`, values and zero points in the tensors' own types."""

    ma: int
    mb: int
    c: int
    shift: int

    def swapped(self) -> AddConstants:
        """The constants for the operands in the other order."""
        return AddConstants(self.mb, self.ma, self.c, self.shift)


@dataclass(frozen=True, kw_only=True)
class QAdd(Clamped, Elementwise):
    """Sum of two tensors, with broadcasting.

    By onnxruntime's QLinearAdd (`numerics.add_reference`), or, with `constants`, by LiteRT's rule in integers:
    `clamp((a*ma + b*mb + c) >> shift)`, the output's zero point inside c.

    Attributes:
        floats: True if dequantised, added in float32 and quantised (`numerics.add_floats`): onnxruntime did not fuse
            this one.
    """

    arity = (2, 2)
    constants: AddConstants | None = None
    floats: bool = False

    def value(self, arrays: Sequence[np.ndarray], operands: Sequence[Tensor], result: Tensor) -> np.ndarray:
        a, b = arrays
        low, high = self.limits(result.dtype)
        if self.constants is not None:
            k = self.constants
            total = a.astype(np.int64) * k.ma + b.astype(np.int64) * k.mb + k.c
            return np.asarray(np.clip(total >> k.shift, low, high), result.dtype)
        (sa, za), (sb, zb), (sy, zy) = _types(operands, result)
        rule = numerics.add_floats if self.floats else numerics.add_reference
        return rule(a, b, sa, za, sb, zb, sy, zy, low, high).astype(result.dtype)


@dataclass(frozen=True, kw_only=True)
class QMul(Clamped, Elementwise):
    """Product of two tensors, with broadcasting.

    Attributes:
        zero_point_after: the zero point is added after the rounding (LiteRT), not before it (onnxruntime).
        floats: True if dequantised, multiplied in float32 and quantised (`numerics.mul_floats`): onnxruntime did not
            fuse it.
    """

    arity = (2, 2)
    zero_point_after: bool = False
    floats: bool = False

    def value(self, arrays: Sequence[np.ndarray], operands: Sequence[Tensor], result: Tensor) -> np.ndarray:
        a, b = arrays
        low, high = self.limits(result.dtype)
        (sa, za), (sb, zb), (sy, zy) = _types(operands, result)
        if self.zero_point_after:
            product = (a.astype(np.int32) - np.int32(za)) * (b.astype(np.int32) - np.int32(zb))
            value = np.rint(product.astype(np.float32) * numerics.product_scale(sa, sb, sy)) + np.int32(zy)
            return np.asarray(np.clip(value, low, high), result.dtype)
        rule = numerics.mul_floats if self.floats else numerics.mul_reference
        return rule(a, b, sa, za, sb, zb, sy, zy, low, high).astype(result.dtype)


def _types(operands: Sequence[Tensor], result: Tensor) -> list[tuple[Any, int]]:
    """The scale and zero point of the operands and the result."""
    quants = [t.quant for t in (*operands, result)]
    return [(q.scale, int(q.zero_point)) for q in quants if q is not None]


IDENTITY_TABLE = bytes(range(256))


@dataclass(frozen=True, kw_only=True)
class QLut(Elementwise):
    """Any function of one tensor.

    Attributes:
        table: 256 bytes: the result's byte for each byte of x, both as stored.
    """

    table: bytes

    @property
    def array(self) -> np.ndarray:
        """The table as uint8[256]."""
        return np.frombuffer(self.table, np.uint8)

    def check(self, operands: Operands, result: Tensor) -> str | None:
        if len(self.table) != 256:
            return f"table of {len(self.table)} bytes, not 256"
        return super().check(operands, result)

    def value(self, arrays: Sequence[np.ndarray], operands: Sequence[Tensor], result: Tensor) -> np.ndarray:
        return self.array[arrays[0].view(np.uint8)].view(result.dtype)
