"""Names that keep the ranges of all sums of a program, by the weights that it has.

The prover knows ranges by the graph's weights alone, which is enough for right programs. Where a result of the graph is
one value for all inputs, a program with another weight may have this value, too: with these names that is proved. So is
a program with another bias, scale or rounding that gives the same for each value of its sums.
"""

from __future__ import annotations

import hashlib

import numpy as np

from tilewright.isa import numerics
from tilewright.prove.checker.cells import BYTES, ROOT, TABLE, Facts, cases
from tilewright.prove.checker.names import Names, Rule

Array = np.ndarray
#: Values of a sum of which all results are compared.
_MOST_RESULTS = 1 << 21
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
        total, (first, second) = super().added(a, b), (self._between(x) for x in (a, b))
        self._keep(total, *(first + second))
        return total

    def requantize(
        self, values: Array, bias: Array, scale: Array, rule: Rule, bounds: tuple[Array, Array] | None = None
    ) -> Array:
        ends = self._between(values)
        least, most = ends + bias
        known = (least >= -_WIDEST) & (most <= _WIDEST)
        own = np.where(known, least, -_WIDEST), np.where(known, most, _WIDEST)
        found = super().requantize(values, bias, scale, rule, own if bounds is None else bounds)
        special = self.fixed(found) | self._alone.find(values)[0] | self.ranges.find(values)[0]
        at = known & (most - least < _MOST_RESULTS) & ~special
        added, bits = (np.broadcast_to(x, values.shape[:-1])[at].astype(np.int64) for x in (bias, scale))
        roots = found[at][:, ROOT]
        for (low, high, one, each), here in cases(np.stack([*ends[:, at], added, bits], axis=1)):
            sums = numerics.wrap32(np.arange(low, high + 1) + one)
            results = numerics.requantize(sums, np.uint32(each), rule[0], -128, 127, rule[3])
            digest = hashlib.sha256(results.tobytes()).hexdigest()
            roots[here] = self.mix(("all results of a sum", low, digest), values[at][here])
            self.reach.keep(roots[here], np.tile([results.min(), results.max()], (len(here[0]), 1)))
        clamp = self.register(np.clip(BYTES, rule[1], rule[2]))
        found[at] = self.of_roots(roots, np.full(len(roots), clamp))
        return found

    def _keep(self, sums: Array, least: Array, most: Array) -> None:
        inside = (least >= -_WIDEST) & (most <= _WIDEST)
        self._bounds.keep(sums[inside], np.stack([least[inside], most[inside]], axis=1))

    def _between(self, sums: Array) -> Array:
        """Least and largest values [2, ...] of sums, beyond int32 where they are not known."""
        ends = np.full((2, *sums.shape[:-1]), 2 * _WIDEST)
        ends[0] = -2 * _WIDEST
        here, found = self._bounds.find(sums)
        ends[:, here] = found.T
        return ends
