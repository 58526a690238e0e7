"""Names of values: every value that a network or a program computes is an element of a product of finite fields.

A network's inputs are random elements. Sums and products are those of the fields, so that two integer polynomials have
one name only if they are equal, but for a chance of about degree / 2**124. A step that is not linear (requantise, a
table, an Add's shift) makes new elements by mixing its parameters with its operands' elements. A constant n is n in
every field, and a step whose operands are all constants is computed.

A byte is a `Cell`: a root, and a function of 256 or 65,536 entries of it. Functions of functions become one table, so
that it does not matter in how many steps a clamp, a table or an Add of two bytes is made. Arrays of cells are uint32
[..., CELL]: the value's element, the root's element, the number of the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.instructions import Rounding
from tilewright.prove.cells import BYTES, CELL, ROOT, TABLE, VALUE, Cells, words_of
from tilewright.prove.fields import FIELDS, PRIMES, Array, as_integers, residues

#: The bytes in the order of their values, -128 to 127.
_ORDER = np.roll(np.arange(256), 128)


class Names(Cells):
    """The elements and tables of one proof, and the names of steps that are not linear.

    Args:
        seed: of all random elements and of the mixing.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._pairs = np.zeros(0, np.uint64), np.zeros((0, 2, FIELDS), np.uint32)  # roots of two bytes: the two
        self._maxima = np.zeros(0, np.uint64)  # roots that are maxima of several values
        self._bounds: tuple[Array, Array] = (np.zeros(0, np.uint64), np.zeros((0, 2), np.int64))

    def combine(self, a: Array, b: Array, function: Array) -> Array:
        """Cells of a function of two bytes, int8[256, 256] in the order of bytes."""
        shape = np.broadcast_shapes(a.shape, b.shape)
        a, b = (np.broadcast_to(x, shape).reshape(-1, CELL) for x in (a, b))
        self.count("function of two bytes")
        (known_a, value_a), (known_b, value_b) = (as_integers(x[:, VALUE]) for x in (a, b))
        found = np.empty((len(a), CELL), np.uint32)
        found[known_a & known_b] = self.bytes[function[value_a & 255, value_b & 255][known_a & known_b]]
        for here, constant, other, rows in (
            (known_a & ~known_b, value_a, b, function), (known_b & ~known_a, value_b, a, function.T),
        ):  # fmt: skip
            for value in np.unique(constant[here]):
                at = here & (constant == value)
                found[at] = self.look_up(other[at], rows[value & 255])
        at = ~known_a & ~known_b
        found[at] = self._combine_unknown(a[at], b[at], function)
        return found.reshape(shape)

    def _lifted(self, cells: Array, others: Array) -> Array:
        """Cells as functions of a pair of roots where the other operand is one, and their root is one of the two."""
        wide = np.array([len(t) > 256 for t in self._tables])
        at = np.flatnonzero(wide[others[:, TABLE]] & (cells[:, ROOT] != others[:, ROOT]).any(axis=1))
        known, parts = self._pairs
        if not len(at) or not len(known):
            return cells
        folded = wide[cells[at][:, TABLE]]  # a function of two bytes is a value of its own here
        words = words_of(others[at][:, ROOT])
        own = words_of(np.where(folded[:, None], cells[at][:, VALUE], cells[at][:, ROOT]))
        tables = np.where(folded, 0, cells[at][:, TABLE].astype(np.int64))
        place = np.minimum(np.searchsorted(known, words), len(known) - 1)
        found = cells.copy()
        for side in (0, 1):
            inside = (known[place] == words) & (words_of(parts[place, side]) == own)
            here = at[inside]

            def number(table: int, side: int = side) -> int:
                values = self.table(table)
                return self.register(np.repeat(values, 256) if side == 0 else np.tile(values, 256))

            found[here, TABLE] = self.by_groups([tables[inside]], number)
            found[here, ROOT] = others[here, ROOT]
        return found

    def _combine_unknown(self, a: Array, b: Array, function: Array) -> Array:
        a, b = self._lifted(a, b), self._lifted(b, a)
        wide = np.array([len(t) > 256 for t in self._tables])
        same = (a[:, ROOT] == b[:, ROOT]).all(axis=1)
        roots_a, roots_b = a[:, ROOT].copy(), b[:, ROOT].copy()
        tables_a, tables_b = a[:, TABLE].astype(np.int64), b[:, TABLE].astype(np.int64)
        for cells, roots, tables in ((a, roots_a, tables_a), (b, roots_b, tables_b)):
            folded = wide[tables] & ~same  # a function of two bytes is a value of its own here
            roots[folded], tables[folded] = cells[folded][:, VALUE], 0
        words = [words_of(roots) for roots in (roots_a, roots_b)]
        swap = (words[0] > words[1]) & ~same
        first, second = np.where(swap[:, None], roots_b, roots_a), np.where(swap[:, None], roots_a, roots_b)
        roots = np.where(same[:, None], roots_a, self.mix(("pair",), first, second))
        pairs = np.concatenate([self._pairs[0], words_of(roots[~same])])
        parts = np.stack([first[~same], second[~same]], axis=1)
        known, at = np.unique(pairs, return_index=True)
        self._pairs = known, np.concatenate([self._pairs[1], parts])[at]

        def number(ta: int, tb: int, exchanged: int, one: int) -> int:
            left, right = self.table(ta).view(np.uint8), self.table(tb).view(np.uint8)
            if one:
                return self.register(function[left, right])
            both = function[left[:, None], right[None, :]]
            return self.register((both.T if exchanged else both).ravel())

        numbers = self.by_groups([tables_a, tables_b, swap, same], number)
        self._of_one_root(roots, numbers)
        return self.of_roots(roots, numbers)

    def _of_one_root(self, roots: Array, numbers: Array) -> None:
        """Replaces pairs of roots and functions that depend on one of the two by that root and its function."""
        known, parts = self._pairs
        for number in np.unique(numbers):
            table = self.table(int(number))
            if len(table) == 256 or (table == table[0]).all():
                continue
            square = table.reshape(256, 256)
            for side, line in ((0, square[:, :1]), (1, square[:1])):
                if (square == line).all():
                    at = numbers == number
                    roots[at] = parts[np.searchsorted(known, words_of(roots[at])), side]
                    numbers[at] = self.register(line.ravel())
                    break
            else:
                self._of_maximum(roots, numbers, int(number), square)

    def _of_maximum(self, roots: Array, numbers: Array, number: int, square: Array) -> None:
        """Replaces functions of the larger of two bytes, or of their inverted bits, by those of a set's maximum."""
        for flips in ((0, 0), (255, 255), (0, 255), (255, 0)):
            table = square[np.arange(256)[:, None] ^ flips[0], np.arange(256)[None] ^ flips[1]]
            line = np.diag(table)
            if (table == line[np.maximum(BYTES[:, None], BYTES[None]).view(np.uint8)]).all():
                at = np.flatnonzero(numbers == number)
                parts = self._pairs[1][np.searchsorted(self._pairs[0], words_of(roots[at]))]
                sides = [self._inverted(parts[:, i]) if flips[i] else parts[:, i] for i in (0, 1)]
                roots[at] = self._maximum_of(np.stack(sides, axis=1), np.zeros((len(at), 2), bool))
                numbers[at] = self.register(np.ascontiguousarray(line))
                return

    def _inverted(self, roots: Array) -> Array:
        """Elements of roots with all bits inverted."""
        return np.asarray(self.of_roots(roots, np.full(roots.shape[:-1], self.register(~BYTES)))[..., VALUE])

    def _maximum_of(self, operands: Array, dropped: Array) -> Array:
        """Roots of the maxima of elements [m, n, FIELDS] but the dropped ones; a maximum among them counts as its own
        operands."""
        words = words_of(operands)
        place = np.minimum(np.searchsorted(self._maxima, words), max(0, len(self._maxima) - 1))
        nested = self._maxima[place] == words if len(self._maxima) else np.zeros(words.shape, bool)
        terms = np.where(nested[..., None], operands, self.mix(("operand of a maximum",), operands)).astype(np.int64)
        found = np.asarray(np.where(dropped[..., None], 0, terms).sum(axis=1) % PRIMES, np.uint32)
        several = (~dropped).sum(axis=1) > 1
        self._maxima = np.union1d(self._maxima, words_of(found[several]))
        return found

    # steps that are not linear

    def requantize(
        self, acc: Array, scale: Array, zero_point: int, low: int, high: int, rounding: int,
        bounds: tuple[Array, Array] | None = None, single: tuple[Array, Array] | None = None,
    ) -> Array:  # fmt: skip
        """Cells of `isa.numerics.requantize` of elements [..., FIELDS].

        Args:
            scale: uint32 patterns, broadcast.
            single: cells and weights (0 for none), of sums that may be one byte times a weight and a constant: a
                function of that byte then.
            bounds: least and largest value of sums that are known to lie between them, broadcast. Where they make the
                result one value for every input, the name is known from now on to be that of a constant.
        """
        self.count("requantise")
        bits = np.broadcast_to(np.asarray(scale, np.uint32), acc.shape[:-1])
        if rounding == Rounding.EVEN_ZERO_POINT_INSIDE and zero_point == 0:
            rounding = int(Rounding.EVEN)
        known, value = as_integers(acc)
        roots = self.mix(("requantise", int(rounding), int(zero_point)), bits.astype(np.uint64), acc)
        dead = numerics.scale_value(bits) == 0
        if (known | dead).any():
            at = known | dead
            fixed = numerics.requantize(numerics.wrap32(value[at]), bits[at], zero_point, -128, 127, rounding)
            roots[at] = residues(fixed)
        if bounds is not None:
            ends = [np.broadcast_to(
                numerics.requantize(np.clip(end, -(1 << 31), (1 << 31) - 1), scale, zero_point, low, high, rounding),
                bits.shape) for end in bounds]  # fmt: skip
            inside = (bounds[0] >= -(1 << 31)) & (bounds[1] < 1 << 31)
            one = (ends[0] == ends[1]) & ~known & np.broadcast_to(inside, bits.shape)
            if one.any():
                self._learn(roots[one], low, high, ends[0][one])
        found = self.clamp(self.cells(roots), low, high)
        if single is not None and (single[1] != 0).any():
            self._of_one_byte(found, acc, bits, (zero_point, low, high, rounding), *single)
        return self._constant_ones(found)

    def _of_one_byte(
        self, found: Array, acc: Array, bits: Array, rule: tuple[int, int, int, int], cells: Array, weights: Array
    ) -> None:
        """Replaces the results whose sum is a weight times a byte and a constant by a table of the byte."""
        at = np.nonzero((weights != 0) & ~as_integers(acc)[0])
        byte, weight, scale = cells[at], weights[at].astype(np.int64), bits[at]
        product = byte[:, VALUE].astype(np.int64) * weight[:, None] % PRIMES
        known, added = as_integers((acc[at].astype(np.int64) - product) % PRIMES)
        for w, c, s in np.unique(np.stack([weight, added, scale.astype(np.int64)])[:, known], axis=1).T:
            here = known & (weight == w) & (added == c) & (scale == s)
            self.count("requantised byte")
            sums = numerics.wrap32(BYTES.astype(np.int64) * w + c)
            result = self.look_up(byte[here], numerics.requantize(sums, np.uint32(s), *rule))
            found[tuple(axis[here] for axis in at)] = result

    def _learn(self, roots: Array, low: int, high: int, values: Array) -> None:
        """Keeps that these roots, clamped, are values: so the roots are at most, or at least, or just these."""
        words = words_of(roots)
        least = np.where(values == low, -128, values)
        most = np.where(values == high, 127, values)
        known, ranges = self._bounds
        words, ranges = np.concatenate([known, words]), np.concatenate([ranges, np.stack([least, most], axis=1)])
        words, first = np.unique(words, return_index=True)
        self._bounds = words, ranges[first]
        self.count("constant for every input", len(values))

    def _constant_ones(self, cells: Array) -> Array:
        """Cells with those that are known to be constants replaced by these."""
        known, ranges = self._bounds
        if not len(known):
            return cells
        words = words_of(cells[..., ROOT])
        at = np.minimum(np.searchsorted(known, words), len(known) - 1)
        here = known[at] == words
        if here.any():

            def only(table: int, least: int, most: int) -> int:
                values = self.table(table)[np.arange(least - 128, most - 127) & 255]
                return int(values[0]) & 255 if (values == values[0]).all() else 256

            ends = ranges[at[here]] + 128
            values = self.by_groups([cells[here][:, TABLE], ends[:, 0], ends[:, 1]], only)
            fixed = np.flatnonzero(here.ravel())[values < 256]
            cells.reshape(-1, CELL)[fixed] = self.constants(BYTES[values[values < 256]])
        return cells

    def maximum(self, cells: Array) -> Array:
        """The largest of n cells [..., n, CELL], by the set of operands: -128 never wins, a common clamp is outside."""
        self.count("maximum")
        lead, n = cells.shape[:-2], cells.shape[-2]
        flat = cells.reshape(-1, n, CELL)
        known, value = as_integers(flat[..., VALUE])
        most = np.where(known, value, -128).max(axis=1)
        tables = np.where(known, -1, flat[..., TABLE].astype(np.int64))
        outer = tables.max(axis=1)
        common = ((tables == outer[:, None]) | known).all(axis=1) & (most == -128) & (outer > 0)
        way = self.by_groups([np.maximum(outer, 0)], self._slope)
        common &= way > 0
        operands = np.where(common[:, None, None], flat[..., ROOT], flat[..., VALUE])
        falling = common & (way == 2)
        if falling.any():
            operands[falling] = self._inverted(operands[falling])
        word = words_of(operands)
        order = np.argsort(word, axis=1)
        ordered = np.take_along_axis(word, order, axis=1)
        again = np.zeros_like(known)
        again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
        dropped = np.empty_like(known)
        np.put_along_axis(dropped, order, again, axis=1)
        dropped |= known
        total = self._maximum_of(operands, dropped).astype(np.int64)
        total += np.where((most == -128)[:, None], 0, self.mix(("constant of a maximum",), residues(most)))
        inverted = self.by_groups([np.maximum(outer, 0)], lambda t: self.register(self.table(t)[np.arange(256) ^ 255]))
        numbers = np.where(common, np.where(falling, inverted, outer), 0)
        found = self.of_roots((total % PRIMES).astype(np.uint32), numbers)
        left = (~dropped).sum(axis=1)
        found[left == 0] = self.bytes[most[left == 0]]
        single = (left == 1) & (most == -128)
        found[single] = flat[single, np.argmin(dropped[single], axis=1)]
        return found.reshape(*lead, CELL)

    def _slope(self, number: int) -> int:
        """Returns 1 for a table of a byte that never falls with the value, 2 for one that never rises, 0 for others."""
        steps = np.diff(self.table(number)[_ORDER].astype(np.int64)) if len(self.table(number)) == 256 else np.zeros(0)
        return 0 if not len(steps) else 1 if (steps >= 0).all() else 2 if (steps <= 0).all() else 0

    def opaque(self, key: Sequence[object], operands: Sequence[Array], shape: Sequence[int]) -> Array:
        """Cells of an unknown function of whole tensors: the same for the same key and operands."""
        digest = hashlib.blake2b(digest_size=16)
        for operand in operands:
            digest.update(repr(operand.shape).encode() + np.ascontiguousarray(operand[..., VALUE]).tobytes())
        return self.random(shape, "opaque", *key, digest.hexdigest())
