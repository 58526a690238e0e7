"""The quantised op that selects indices along each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.graph.ops.quantized_op import Unchanged, shape_error
from tilewright.compiler.graph.tensor import Tensor


@dataclass(frozen=True, kw_only=True)
class QTake(Unchanged):
    """Element (i, j, ...) of the result is element (indices[0][i], indices[1][j], ...) of the operand.

    Examples are repeated rows and columns (Resize to the nearest), and every second one (Slice with steps). Type and
    quantisation stay.

    Attributes:
        indices: per axis the places of the operand, or None where the axis stays unchanged.
    """

    indices: tuple[tuple[int, ...] | None, ...]

    def places(self, shape: Sequence[int]) -> tuple[Sequence[int], ...]:
        """The places along every axis of an operand of a shape."""
        return tuple(range(n) if chosen is None else chosen for chosen, n in zip(self.indices, shape, strict=True))

    def check_shapes(self, x: Tensor, result: Tensor) -> str | None:
        if len(self.indices) != len(x.shape):
            return f"indices of {len(self.indices)} axes for {list(x.shape)}"
        if any(i is not None and i and not 0 <= min(i) <= max(i) < n for i, n in zip(self.indices, x.shape)):
            return f"indices outside of {list(x.shape)}"
        return shape_error(result, [n if i is None else len(i) for i, n in zip(self.indices, x.shape)])
