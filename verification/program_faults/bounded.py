"""Names that keep the ranges of all sums of a program, by the weights that it has.

The prover knows ranges by the graph's weights alone, which is enough for right programs. Where a result of the graph is
one value for all inputs, a program with another weight may have this value, too: with these names that is proved.
"""

from __future__ import annotations

import numpy as np

from tilewright.prove.checker.cells import ROOT, TABLE, Facts
from tilewright.prove.checker.names import Names, Rule

Array = np.ndarray
#: Of sums of which nothing is known: those of int32, but for the least one.
_WIDEST = (1 << 31) - 1


class BoundedNames(Names):
    """See `Names`."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._bounds = Facts(2)

    def product(self, cells: Array, w: Array, ranges: bool = False) -> Array:
        total, (low, high) = super().product(cells, w, ranges), self.limits(cells[..., ROOT], cells[..., TABLE])
        above, below = np.maximum(w, 0).astype(np.int64), np.minimum(w, 0).astype(np.int64)
        self._keep(total, low @ above + high @ below, high @ above + low @ below)
        return total

    def window(self, cells: Array, places: Array, w: Array) -> Array:
        total, (low, high) = super().window(cells, places, w), self.limits(cells[:, ROOT], cells[:, TABLE])
        ends = np.stack([low[places] * w, high[places] * w]).astype(np.int64)
        self._keep(total, ends.min(axis=0).sum(axis=-1), ends.max(axis=0).sum(axis=-1))
        return total

    def added(self, a: Array, b: Array) -> Array:
        total, (first, second) = super().added(a, b), (self._ends(x) for x in (a, b))
        self._keep(total, *(first + second))
        return total

    def requantize(
        self, values: Array, bias: Array, scale: Array, rule: Rule, bounds: tuple[Array, Array] | None = None
    ) -> Array:
        least, most = self._ends(values) + bias
        known = (least >= -_WIDEST) & (most <= _WIDEST)
        own = np.where(known, least, -_WIDEST), np.where(known, most, _WIDEST)
        return super().requantize(values, bias, scale, rule, own if bounds is None else bounds)

    def _keep(self, sums: Array, least: Array, most: Array) -> None:
        inside = (least >= -_WIDEST) & (most <= _WIDEST)
        self._bounds.keep(sums[inside], np.stack([least[inside], most[inside]], axis=1))

    def _ends(self, sums: Array) -> Array:
        """Least and largest values [2, ...] of sums, beyond int32 where they are not known."""
        ends = np.full((2, *sums.shape[:-1]), 2 * _WIDEST)
        ends[0] = -2 * _WIDEST
        here, found = self._bounds.find(sums)
        ends[:, here] = found.T
        return ends
