"""The op that puts the rows of tokens into a cache that is kept in blocks of lanes."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.graph.ops.quantized_op import Operands, QuantizedOp, shape_error
from tilewright.compiler.graph.tensor import Tensor


@dataclass(frozen=True, kw_only=True)
class QPut(QuantizedOp):
    """A cache with other rows: blocks [H * D / lanes, W, lanes], new [1, H, S, D], at row `position` modulo W and those
    behind it, S <= W. It does not go round.

    Attributes:
        position: the graph's input of S integers, the third operand; each is one more than that before it.
    """

    arity = (3, 3)

    position: str

    def check(self, operands: Operands, result: Tensor) -> str | None:
        error = super().check(operands, result)
        cache, new, row = operands
        if error is not None or cache is None or new is None or row is None:
            return error
        if len(cache.shape) != 3 or len(new.shape) != 4 or new.shape[0] != 1 or new.shape[2] > cache.shape[1]:
            return f"rows {list(new.shape)} of a cache {list(cache.shape)}"
        (blocks, _, lanes), count = cache.shape, new.shape[2]
        if blocks * lanes * count != new.size or new.shape[3] % lanes or row.size != count:
            return f"rows {list(new.shape)} at {list(row.shape)} of a cache {list(cache.shape)}"
        same = cache.quant is not None and cache.quant.same_as(new.quant) and cache.dtype == new.dtype
        return shape_error(result, cache.shape) if same else "rows of another type or scale than the cache"
