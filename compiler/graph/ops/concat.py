"""The quantised op of concatenation."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from tilewright.compiler.graph.ops.quantized_op import Operands, QuantizedOp, activation_error, shape_error
from tilewright.compiler.graph.tensor import Tensor


@dataclass(frozen=True, kw_only=True)
class QConcat(QuantizedOp):
    """Concatenation along `axis`, each operand through a table of its own.

    Attributes:
        tables: 256 bytes per operand, or None where the bytes pass unchanged.
    """

    arity = (1, sys.maxsize)
    axis: int
    tables: tuple[bytes | None, ...]

    def check(self, operands: Operands, result: Tensor) -> str | None:
        error = super().check(operands, result)
        if error is not None:
            return error
        tensors = [t for t in operands if t is not None]
        if len(self.tables) != len(tensors) or any(t is not None and len(t) != 256 for t in self.tables):
            return f"{len(self.tables)} tables for {len(tensors)} operands"
        first = tensors[0].shape
        if not -len(first) <= self.axis < len(first):
            return f"axis {self.axis} of {list(first)}"
        shape = list(first)
        shape[self.axis] = sum(t.shape[self.axis] for t in tensors)
        return next((e for t in tensors if (e := activation_error(t))), None) or shape_error(result, shape)
