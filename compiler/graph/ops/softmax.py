"""The quantised op of Softmax."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph.ops.quantized_op import Operands, QuantizedOp, shape_error
from tilewright.compiler.graph.tensor import Tensor


@dataclass(frozen=True, kw_only=True)
class QSoftmax(QuantizedOp):
    """Softmax along `axis`.

    Attributes:
        beta: factor of the operand.
        levels: onnxruntime's QLinearSoftmax, `sat(RNE(f32(f32(e * levels) / sum e)) + zy)` in float32, the sum in
            order. None: LiteRT's, `sat(round(f32(e * f32(1 / f32(sum e * sy)))) + zy)`, ties away from zero; zy is not
            added to uint8.
    """

    axis: int = -1
    beta: float = 1.0
    levels: float | None = None

    def check(self, operands: Operands, result: Tensor) -> str | None:
        x = operands[0]
        if x is not None and not -len(x.shape) <= self.axis < len(x.shape):
            return f"axis {self.axis} of {list(x.shape)}"
        return super().check(operands, result) or (shape_error(result, x.shape) if x is not None else None)

    def added(self, y: Tensor) -> int:
        """The integer that is added to the rounded results of `y`."""
        assert y.quant is not None
        return 0 if self.levels is None and y.dtype == np.uint8 else int(y.quant.zero_point)

    def step(self, scale: np.ndarray | np.float32) -> np.float32:
        """The change of the exponent by one step of the operand, which has this scale."""
        return np.float32(np.float32(scale) * np.float32(self.beta))
