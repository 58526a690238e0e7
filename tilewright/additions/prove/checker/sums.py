"""Integers of which more is known than a name: their range, the sum that bytes are, other scales of a mean."""

from __future__ import annotations

import numpy as np

from tilewright.isa import numerics
from tilewright.prove.checker.cells import Cells, Facts, cases
from tilewright.prove.checker.fields import FIELDS, PRIMES, Array, as_integers

#: Values of a sum that are tried one by one.
_MOST_SUMS = 1 << 23


class Sums(Cells):
    """A proof that remembers what it knows of sums."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.whole = Facts(FIELDS)  # lowest bytes: elements of the integers
        self._sums = Facts(3)  # sums: their scale, least and largest value

    def divided(self, roots: Array, values: Array, added: Array, bits: Array, zero_point: int) -> None:
        """Keeps the ranges of quotients of sums by integers, and of what these leave of the sums, by every sum.

        Where always the same is left, the quotient is a sum itself.
        """
        marked, facts = self.ranges.find(values)
        at = np.nonzero(marked)
        kinds = np.concatenate([facts, np.stack([added[at], bits[at].astype(np.int64)], axis=1)], axis=1)
        for (least, most, multiple, bias, scale), case in cases(kinds):
            if not 2.0**-24 < (factor := float(numerics.scale_value(np.uint32(scale)))) <= 1:
                continue
            divisor, step = round(1 / factor), multiple if least % multiple == 0 else 1
            if (most - least) // step >= _MOST_SUMS or max(abs(least + bias), abs(most + bias)) >= 1 << 31:
                continue
            self.count("quotient by an integer")
            sums = np.arange(least, most + 1, step)
            quotients = numerics.requantize(sums + bias, np.uint32(scale), zero_point, -128, 127).astype(np.int64)
            left = sums - divisor * quotients
            here = tuple(axis[case] for axis in at)
            elements = values[here].astype(np.int64)
            if (left == left[0]).all():
                inverse = np.array([pow(divisor, -1, int(p)) for p in PRIMES])
                roots[here] = (elements - int(left[0])) % PRIMES * inverse % PRIMES
            else:
                rest = (elements - roots[here].astype(np.int64) * divisor) % PRIMES
                new = [left.min(), left.max(), max(1, int(np.gcd.reduce(left)))]
                self.ranges.keep(rest, np.tile(new, (len(rest), 1)))
            self.ranges.keep(roots[here], np.tile([quotients.min(), quotients.max(), 1], (len(here[0]), 1)))

    def bytes_of(self, sums: Array) -> Array:
        """Cells [..., 4, CELL] of the bytes of integers, the lowest first; `whole` finds the integers again."""
        known, value = as_integers(sums)
        elements = np.stack([self.mix(("byte of an integer", i), sums) for i in range(4)], axis=-2)
        found = np.where(known[..., None, None], self.bytes[value[..., None] >> np.arange(0, 32, 8) & 255],
                         self.cells(elements))  # fmt: skip
        self.whole.keep(elements[~known][:, 0], sums[~known])
        return np.asarray(found, np.uint32)

    def keep_sums(self, acc: Array, scale: Array, least: Array, most: Array) -> None:
        """Keeps that sums [..., FIELDS], requantised by a scale, lie between two values: broadcast."""
        new = np.stack([np.broadcast_to(x, acc.shape[:-1]).ravel() for x in (scale, least, most)], axis=1)
        self._sums.keep(acc.reshape(-1, FIELDS), new)

    def known_scales(self, acc: Array, bits: Array, zero_point: int, rounding: int) -> Array:
        """Scales with those replaced by the kept ones that give the same for every value of the sum."""
        here, facts = self._sums.find(acc)
        if not here.any():
            return bits
        found, chosen = bits.copy(), bits[here]
        for (own, other, least, most), case in cases(np.concatenate([chosen[:, None].astype(np.int64), facts], axis=1)):
            sums, rule = np.arange(least, most + 1), (zero_point, -128, 127, rounding)
            first, second = (numerics.requantize(sums, np.uint32(scale), *rule) for scale in (own, other))
            if own != other and np.array_equal(first, second):
                self.count("scale with the same results")
                chosen[case] = other
        found[here] = chosen
        return found
