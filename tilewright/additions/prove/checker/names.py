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
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.instructions import Rounding
from tilewright.prove.checker.cells import BYTES, CELL, ROOT, TABLE, VALUE, Facts, cases, words_of
from tilewright.prove.checker.fields import FIELDS, PRIMES, Array, as_integers, residues
from tilewright.prove.checker.sums import Sums

#: The bytes in the order of their values, -128 to 127.
_ORDER = np.roll(np.arange(256), 128)


class Names(Sums):
    """The elements and tables of one proof, and the names of steps that are not linear.

    Args:
        seed: of all random elements and of the mixing.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._pairs = Facts(2, FIELDS, kind=np.uint32)  # roots of two bytes: the two
        self._maxima: dict[int, Facts] = {}  # by number of operands: roots that are maxima, and of what
        self._bounds = Facts(2)  # roots: what is known of their least and largest value
        self._inverse = self.register(~BYTES)

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

    def _wide(self, cells: Array) -> Array:
        """Marks functions of two bytes."""
        return np.asarray(np.array([len(t) > 256 for t in self._tables])[cells[..., TABLE]])

    def _folded(self, cells: Array, wide: Array) -> tuple[Array, Array]:
        """Roots and tables of cells; those that are marked are values of their own."""
        roots = np.where(wide[..., None], cells[..., VALUE], cells[..., ROOT])
        return roots, np.where(wide, 0, cells[..., TABLE].astype(np.int64))

    def _lifted(self, cells: Array, others: Array) -> Array:
        """Cells as functions of a pair of roots where the other operand is one, and their root is one of the two."""
        at = np.flatnonzero(self._wide(others) & (cells[:, ROOT] != others[:, ROOT]).any(axis=1))
        known, parts = self._pairs.find(others[at][:, ROOT])
        at, found = at[known], cells.copy()
        own, tables = self._folded(cells[at], self._wide(cells[at]))
        for side, spread in ((0, lambda t: np.repeat(t, 256)), (1, lambda t: np.tile(t, 256))):
            inside = (parts[:, side] == own).all(axis=1)

            def number(table: int, spread: Callable[[Array], Array] = spread) -> int:
                return self.register(spread(self.table(table)))

            found[at[inside], TABLE] = self.by_groups([tables[inside]], number)
            found[at[inside], ROOT] = others[at[inside], ROOT]
        return found

    def _paired(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Roots of two bytes, and marks those whose second byte is that of `a`."""
        swap = words_of(a) > words_of(b)
        parts = np.stack([np.where(swap[:, None], b, a), np.where(swap[:, None], a, b)], axis=1)
        roots = self.mix(("pair",), parts[:, 0], parts[:, 1])
        self._pairs.keep(roots, parts)
        return roots, swap

    def _unfolded(self, cells: Array, others: Array) -> Array:
        """Cells that are maxima of two bytes as functions of the pair where the other operand is one of the two, or
        a function of them."""
        if 2 not in self._maxima:
            return cells
        here, parts = self._maxima[2].find(cells[:, ROOT])
        at, found = np.flatnonzero(here), cells.copy()
        roots, swap = self._paired(parts[:, 0, :FIELDS], parts[:, 1, :FIELDS])
        near = words_of(np.concatenate([parts[..., :FIELDS], roots[:, None]], axis=1))
        near = (near == words_of(others[at, ROOT])[:, None]).any(axis=1)
        at, parts, roots, swap = at[near], parts[near], roots[near], swap[near]
        found[at, ROOT] = roots

        def number(a: int, b: int, after: int, exchanged: int) -> int:
            both = np.maximum(self.table(a)[:, None], self.table(b)[None]).view(np.uint8)
            return self.register(self.table(after)[both.T if exchanged else both].ravel())

        found[at, TABLE] = self.by_groups([parts[:, 0, FIELDS], parts[:, 1, FIELDS], cells[at, TABLE], swap], number)
        return found

    def _combine_unknown(self, a: Array, b: Array, function: Array) -> Array:
        a, b = self._unfolded(a, b), self._unfolded(b, a)
        a, b = self._lifted(a, b), self._lifted(b, a)
        same = (a[:, ROOT] == b[:, ROOT]).all(axis=1)
        (roots_a, tables_a), (roots_b, tables_b) = (self._folded(x, self._wide(x) & ~same) for x in (a, b))
        roots, swap = roots_a, np.zeros(len(same), bool)
        roots[~same], swap[~same] = self._paired(roots_a[~same], roots_b[~same])

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
        for number in np.unique(numbers):
            table = self.table(int(number))
            if len(table) == 256 or (table == table[0]).all():
                continue
            square = table.reshape(256, 256)
            for side, line in ((0, square[:, :1]), (1, square[:1])):
                if (square == line).all():
                    at = numbers == number
                    roots[at] = self._pairs.find(roots[at])[1][:, side]
                    numbers[at] = self.register(line.ravel())
                    break
            else:
                self._of_maximum(roots, numbers, int(number), square)

    def _of_maximum(self, roots: Array, numbers: Array, number: int, square: Array) -> None:
        """Replaces functions that are the larger of a function of each byte, and tables of the larger of two bytes, or
        of their inverted bits, by those of a set's maximum."""
        at = np.flatnonzero(numbers == number)
        for tables, after in self._maxima_of(square):
            parts = self._pairs.find(roots[at])[1]
            sides = np.broadcast_to([self.register(table) for table in tables], parts.shape[:2])
            found = self.look_up(self.maximum(self.of_roots(parts, sides)), after)
            roots[at], numbers[at] = found[:, ROOT], found[:, TABLE]
            return

    @staticmethod
    def _maxima_of(square: Array) -> Iterator[tuple[tuple[Array, Array], Array]]:
        """Tables f, g, after of a function int8[256, 256] that is after[max(f[a], g[b])], where there are such."""
        for after in (BYTES, ~BYTES):
            values = after[square.view(np.uint8)]
            f, g = values.min(axis=1), values.min(axis=0)
            if (values == np.maximum(f[:, None], g[None])).all():
                yield (f, g), after
        for f, g in product((BYTES, ~BYTES), repeat=2):
            table = square[np.ix_(f.view(np.uint8), g.view(np.uint8))]
            line = np.ascontiguousarray(np.diag(table))
            if (table == line[np.maximum(BYTES[:, None], BYTES[None]).view(np.uint8)]).all():
                yield (f, g), line

    # steps that are not linear

    def requantize(
        self, acc: Array, scale: Array, zero_point: int, low: int, high: int, rounding: int,
        bounds: tuple[Array, Array] | None = None, single: tuple[Array, Array] | None = None,
        parts: tuple[Array, Array] | None = None,
    ) -> Array:  # fmt: skip
        """Cells of `isa.numerics.requantize` of elements [..., FIELDS].

        Args:
            scale: uint32 patterns, broadcast.
            single: cells and weights (0 for none), of sums that may be one byte times a weight and a constant: a
                function of that byte then.
            parts: the sums and the integers that make up `acc`.
            bounds: least and largest value of sums that are known to lie between them, broadcast. Where they make the
                result one value for every input, the name is known from now on to be that of a constant.
        """
        self.count("requantise")
        bits = np.broadcast_to(np.asarray(scale, np.uint32), acc.shape[:-1])
        if rounding == Rounding.EVEN_ZERO_POINT_INSIDE and zero_point == 0:
            rounding = int(Rounding.EVEN)
        bits = self.known_scales(acc, bits, zero_point, rounding)
        known, value = as_integers(acc)
        roots = self.mix(("requantise", int(rounding), int(zero_point)), bits.astype(np.uint64), acc)
        if parts is not None and len(self.ranges.words) and rounding == Rounding.EVEN:
            self.divided(roots, *parts, bits, zero_point)
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
        kinds = np.stack([weight, added, scale.astype(np.int64), known], axis=1)
        for (w, c, bits_of_scale, constant), here in cases(kinds):
            if constant:
                self.count("requantised byte")
                sums = numerics.wrap32(BYTES.astype(np.int64) * w + c)
                result = self.look_up(byte[here], numerics.requantize(sums, np.uint32(bits_of_scale), *rule))
                found[tuple(axis[here] for axis in at)] = result

    def _learn(self, roots: Array, low: int, high: int, values: Array) -> None:
        """Keeps that these roots, clamped, are values: so the roots are at most, or at least, or just these."""
        self._bounds.keep(
            roots, np.stack([np.where(values == low, -128, values), np.where(values == high, 127, values)], axis=1)
        )
        self.count("constant for every input", len(values))

    def _constant_ones(self, cells: Array) -> Array:
        """Cells with those that are known to be constants replaced by these."""
        here, ranges = self._bounds.find(cells[..., ROOT])
        if here.any():

            def only(table: int, least: int, most: int) -> int:
                values = self.table(table)[np.arange(least - 128, most - 127) & 255]
                return int(values[0]) & 255 if (values == values[0]).all() else 256

            values = self.by_groups([cells[here][:, TABLE], *(ranges.T + 128)], only)
            fixed = np.flatnonzero(here.ravel())[values < 256]
            cells.reshape(-1, CELL)[fixed] = self.bytes[BYTES[values[values < 256]]]
        return cells

    def maximum(self, cells: Array) -> Array:
        """The largest of n cells [..., n, CELL], by the set of operands.

        Operands are tables of distinct roots, none of which is itself a maximum: what takes several steps is one set.
        No table is below the least value of the maximum. A table that all have in common is outside.
        """
        self.count("maximum")
        lead, n = cells.shape[:-2], cells.shape[-2]
        roots, tables = self._folded(cells, self._wide(cells))  # a function of two bytes is a value of its own here
        operands = np.concatenate([roots, tables[..., None]], axis=-1).astype(np.uint32).reshape(-1, n, CELL - FIELDS)
        nested, wide = self._nested(operands)
        found = np.empty((len(operands), CELL), np.uint32)
        found[~nested] = self._maximum(operands[~nested])
        if nested.any():
            found[nested] = self._maximum(wide)
        return found.reshape(*lead, CELL)

    def _nested(self, operands: Array) -> tuple[Array, Array]:
        """Marks the sets with maxima among their operands, and gives these sets with the operands of the maxima."""
        hits = []
        for width, facts in self._maxima.items():
            here, sets = facts.find(operands)
            rising = self.by_groups([operands[here][:, FIELDS]], self._slope) == 1
            here[here] = rising
            hits.append((width, here, sets[rising]))
        nested = np.any([here.any(axis=1) for _, here, _ in hits], axis=0) if hits else np.zeros(len(operands), bool)
        if not nested.any():
            return nested, operands[:0]
        most = max(width for width, *_ in hits)
        wide = np.empty((int(nested.sum()), operands.shape[1], most, operands.shape[2]), np.uint32)
        wide[:] = self.bytes[-128, FIELDS:]
        wide[:, :, 0] = operands[nested]
        for width, everywhere, inner in hits:
            outer = np.broadcast_to(operands[everywhere][:, None, FIELDS], inner.shape[:2])
            inner[..., FIELDS] = self.by_groups([inner[..., FIELDS], outer], self._composed)
            wide[everywhere[nested], :width] = inner
        return nested, wide.reshape(len(wide), -1, operands.shape[2])

    def _composed(self, inner: int, outer: int) -> int:
        return self.register(self.table(outer)[self.table(inner).view(np.uint8)])

    def _maximum(self, operands: Array) -> Array:
        """Cells of the maxima of sets of roots with tables, [m, n, FIELDS + 1]."""
        roots, tables = operands[..., :FIELDS], operands[..., FIELDS].astype(np.int64)
        known, value = as_integers(roots)
        tables[known] = self.by_groups(
            [tables[known], value[known] & 255], lambda t, v: self.register(np.repeat(self.table(t)[v], 256))
        )
        floor = np.array([t.min() for t in self._tables], np.int64)[tables].max(axis=1)
        low = np.broadcast_to(floor[:, None] + 128, tables.shape)
        tables = self.by_groups([tables, low], lambda t, f: self.register(np.maximum(self.table(t), np.int8(f - 128))))
        dropped = np.array([t.min() == t.max() for t in self._tables])[tables]
        words = np.where(dropped, ~np.uint64(0), words_of(roots))
        order = np.argsort(words, axis=1)
        words, tables, dropped = (np.take_along_axis(x, order, axis=1) for x in (words, tables, dropped))
        roots = np.take_along_axis(roots, order[..., None], axis=1)
        again = (words[:, 1:] == words[:, :-1]) & ~dropped[:, 1:]
        for i in np.flatnonzero((again & (tables[:, 1:] != tables[:, :-1])).any(axis=0) if again.any() else ()):
            self._join(tables, again, int(i))
        dropped[:, :-1] |= again
        left, first = (~dropped).sum(axis=1), tables[np.arange(len(tables)), np.argmin(dropped, axis=1)]
        way = np.where(((tables == first[:, None]) | dropped).all(axis=1), self.by_groups([first], self._slope), 0)
        outer = np.where(way == 2, self.by_groups([first], lambda t: self._composed(self._inverse, t)), first)
        inner = np.where(way[:, None] == 0, tables, np.where(way == 2, self._inverse, 0)[:, None])
        keys = self._keys[inner]
        terms = self.mix(("operand of a maximum",), keys[..., 0], keys[..., 1], roots).astype(np.int64)
        total = np.asarray(np.where(dropped[..., None], 0, terms).sum(axis=1) % PRIMES, np.uint32)
        found = self.of_roots(total, np.where(way == 0, 0, outer))
        found[left == 0] = self.bytes[floor[left == 0]]
        one = np.flatnonzero(left == 1)
        at = np.argmin(dropped[one], axis=1)
        found[one] = self.of_roots(roots[one, at], tables[one, at])
        order = np.argsort(dropped, axis=1, kind="stable")
        sets = np.concatenate([roots, inner[..., None].astype(np.uint32)], axis=2)
        for width in set(left.tolist()) - {0, 1}:
            at = np.flatnonzero(left == width)
            facts = self._maxima.setdefault(width, Facts(width, FIELDS + 1, kind=np.uint32))
            facts.keep(total[at], sets[at[:, None], order[at, :width]])
        return found

    def _join(self, tables: Array, again: Array, i: int) -> None:
        """Makes two tables of one root, in column i and the one behind it, their maximum."""
        at = np.flatnonzero(again[:, i])
        tables[at, i + 1] = self.by_groups(
            [tables[at, i], tables[at, i + 1]], lambda a, b: self.register(np.maximum(self.table(a), self.table(b)))
        )

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
