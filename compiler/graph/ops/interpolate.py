"""Linear interpolation of planes in integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from tilewright.compiler.graph.ops.quantized_op import Unchanged, shape_error
from tilewright.compiler.graph.tensor import Tensor


class Places(Struct, frozen=True, kw_only=True):
    """The two neighbours along an axis that every result lies between.

    Attributes:
        first, second: places of the operand.
        shares: weights of the second one, in units of 1 / one; the first has the rest.
        one: a power of two.
    """

    first: tuple[int, ...]
    second: tuple[int, ...]
    shares: tuple[int, ...]
    one: int

    @staticmethod
    def of(first: np.ndarray, second: np.ndarray, shares: np.ndarray, one: int) -> Places:
        """The places with the smallest `one` for which all shares are integers."""
        while one > 1 and not np.any(shares & 1):
            shares, one = shares >> 1, one >> 1
        lists = ((int(v) for v in values) for values in (first, second, shares))
        return Places(**dict(zip(("first", "second", "shares"), map(tuple, lists), strict=True)), one=one)

    def matrix(self, size: int) -> np.ndarray:
        """int64 [results, size]: the weight of each place of the operand, in units of 1 / one."""
        found = np.zeros((len(self.first), size), np.int64)
        rows = np.arange(len(self.first))
        shares = np.array(self.shares)
        np.add.at(found, (rows, np.array(self.first)), self.one - shares)
        np.add.at(found, (rows, np.array(self.second)), shares)
        return found

    def __str__(self) -> str:
        return f"<{len(self.first)} places in 1/{self.one}>"


@dataclass(frozen=True, kw_only=True)
class QInterpolate(Unchanged):
    """Linear interpolation of rows and columns together: x [N,C,H,W], type and quantisation stay.

    The sum of the four neighbours, each times its shares of row and column, rounded once: floor(sum + 1/2).

    Attributes:
        to_even: ties of the sum without the zero point go to the even neighbour, not upwards.
    """

    rows: Places
    columns: Places
    to_even: bool = False

    def check_shapes(self, x: Tensor, result: Tensor) -> str | None:
        if len(x.shape) != 4:
            return f"planes are needed, not {list(x.shape)}"
        for places, size in ((self.rows, x.shape[2]), (self.columns, x.shape[3])):
            if not 0 <= min(*places.first, *places.second) <= max(*places.first, *places.second) < size:
                return f"places outside of {list(x.shape)}"
            if (
                not 0 <= min(places.shares) <= max(places.shares) <= places.one <= 1 << 11
                or places.one.bit_count() != 1
            ):
                return f"shares {min(places.shares)}..{max(places.shares)} of {places.one}"
        return shape_error(result, (*x.shape[:2], len(self.rows.first), len(self.columns.first)))
