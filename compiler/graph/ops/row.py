"""The op that reads rows of a table, which an input of the model chooses."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.graph.ops.quantized_op import Operands, QuantizedOp
from tilewright.compiler.graph.tensor import Tensor


@dataclass(frozen=True, kw_only=True)
class QRow(QuantizedOp):
    """Row min(value, rows - 1) of a constant table [rows, axes of the result], value int32 or int64 of one element.

    S values, each one more than that before it, choose as many rows, along the last axis but one of the result; a table
    of fewer rows than there are values ends with S equal ones.

    Attributes:
        region: number of the region by which the NPU reads the row.
        period: values there are: 0..period-1.
    """

    arity = (2, 2)

    region: int
    period: int

    @staticmethod
    def stride(table: Tensor, lanes: int) -> int:
        """Returns the bytes from a row of a table to the next, in blocks of so many channels."""
        channels = table.shape[-1]
        return table.size // table.shape[0] // channels * -(-channels // lanes) * lanes

    @staticmethod
    def starts(table: Tensor, y: Tensor, period: int) -> int:
        """Returns the number of rows of a table at which those of the result `y` can begin."""
        rows = table.shape[0]
        return rows if rows == period or table.shape[1:] == y.shape else rows - y.shape[-2] + 1

    def check(self, operands: Operands, result: Tensor) -> str | None:
        error = super().check(operands, result)
        table, value = operands
        if error is not None or table is None or value is None:
            return error
        wanted = result.shape
        if value.size > 1 and len(wanted) > 1 and wanted[-2] == result.size // wanted[-1] == value.size:
            wanted = (*wanted[:-2], 1, wanted[-1])
        elif value.size != 1:
            wanted = ()
        if table.shape[1:] != wanted or not 1 <= table.shape[0] <= self.period:
            return f"a row {list(result.shape)} of {self.period} in a table {list(table.shape)} by {list(value.shape)}"
        if table.dtype != result.dtype or table.quant is None or not table.quant.same_as(result.quant):
            return f"{result.name} has another type or quantisation than {table.name}"
        return None
