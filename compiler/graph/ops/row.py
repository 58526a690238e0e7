"""The op that reads a row of a table, which an input of the model chooses."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.graph.ops.quantized_op import Operands, QuantizedOp
from tilewright.compiler.graph.tensor import Tensor


@dataclass(frozen=True, kw_only=True)
class QRow(QuantizedOp):
    """Row min(value, rows - 1) of a constant table [rows, axes of the result], value int32 or int64 of one element.

    Attributes:
        region: number of the region by which the NPU reads the row.
        period: values there are: 0..period-1.
    """

    arity = (2, 2)

    region: int
    period: int

    @staticmethod
    def stride(y: Tensor, lanes: int) -> int:
        """Returns the bytes from a row of a table for the result `y` to the next, in blocks of so many channels."""
        channels = y.shape[-1]
        return y.size // channels * -(-channels // lanes) * lanes

    def check(self, operands: Operands, result: Tensor) -> str | None:
        error = super().check(operands, result)
        table, value = operands
        if error is not None or table is None or value is None:
            return error
        if table.shape[1:] != result.shape or not 1 <= table.shape[0] <= self.period or value.size != 1:
            return f"a row {list(result.shape)} of {self.period} in a table {list(table.shape)} by {list(value.shape)}"
        if table.dtype != result.dtype or table.quant is None or not table.quant.same_as(result.quant):
            return f"{result.name} has another type or quantisation than {table.name}"
        return None
