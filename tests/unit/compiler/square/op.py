"""QSquare. In the compiler this file would be `compiler/graph/ops/square.py`."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.graph.ops.quantized_op import Clamped, Operands, shape_error
from tilewright.compiler.graph.tensor import Tensor


@dataclass(frozen=True, kw_only=True)
class QSquare(Clamped):
    """Square of every element: `sat(RNE(f32(q * q) * s + zy))`, q = x - zx, s = sx * sx / sy in float32."""

    def check(self, operands: Operands, result: Tensor) -> str | None:
        error = super().check(operands, result)
        x = operands[0]
        return error if error is not None or x is None else shape_error(result, x.shape)
