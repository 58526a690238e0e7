"""Pools: maxima and averages over windows and over whole planes."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.graph.ops.quantized_op import Clamped, Operands, Windowed, shape_error
from tilewright.compiler.graph.tensor import Tensor


@dataclass(frozen=True, kw_only=True)
class QMaxPool(Windowed):
    """Largest value of each window; padding never wins. Same type and quantisation in and out."""

    def check(self, operands: Operands, result: Tensor) -> str | None:
        return super().check(operands, result) or _pooled_shape_error(self, operands, result)


@dataclass(frozen=True, kw_only=True)
class QAveragePool(Windowed, Clamped):
    """Average of each window, taps dequantised and summed one after the other in float32 (onnxruntime's order).

    Attributes:
        count_include_pad: True if the padding counts in the divisor.
        half_away: LiteRT's rule: the same quantisation in and out, the sum of the stored integers divided by the number
            of taps inside, ties away from zero.
    """

    count_include_pad: bool = False
    half_away: bool = False

    def check(self, operands: Operands, result: Tensor) -> str | None:
        return super().check(operands, result) or _pooled_shape_error(self, operands, result)


@dataclass(frozen=True, kw_only=True)
class QGlobalAveragePool(Clamped):
    """Average over the planes: x [N,C,spatial] -> [N,C,1,1], or [N,C] without `keepdims`.

    Attributes:
        factor: the float32 factor of the sum; None for `numerics.mean_scale`.
        offset: LiteRT's rule: `RNE(f32(sum) * factor + offset)` of the stored integers; needs `factor`.
        half_away: as in QAveragePool.
    """

    keepdims: bool = True
    factor: float | None = None
    offset: float | None = None
    half_away: bool = False

    def check(self, operands: Operands, result: Tensor) -> str | None:
        error = super().check(operands, result)
        if error is not None:
            return error
        if self.offset is not None and self.factor is None:
            return "offset without factor"
        x = operands[0]
        assert x is not None
        return shape_error(result, (*x.shape[:2], *([1] * (len(x.shape) - 2) if self.keepdims else ())))


def _pooled_shape_error(op: Windowed, operands: Operands, result: Tensor) -> str | None:
    x = operands[0]
    assert x is not None
    return shape_error(result, (*x.shape[:2], *op.positions(x.shape[2:])))
