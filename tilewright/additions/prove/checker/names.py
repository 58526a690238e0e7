"""Names of values: every value that a network or a program computes is an element of a product of finite fields.

A network's inputs are random elements. Sums and products are those of the fields, so that two integer polynomials have
one name only if they are equal, but for a chance of about degree / 2**124. A step that is not linear (requantise, a
table, an Add's shift) makes new elements by mixing its parameters with its operands' elements. A constant n is n in
every field, and a step whose operands are all constants is computed.

A byte is a `Cell`: a root, and a function of 256 or 65,536 entries of it. Functions of functions become one table, so
that it does not matter in how many steps a clamp, a table or an Add of two bytes is made. Arrays of cells are uint32
[..., CELL]: the value's element, the root's element, the number of the table.

Of some sums more is known than their name, whoever computes them: a byte of which they are a multiple, their range,
another scale that gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.instructions import Rounding
from tilewright.prove.checker.cells import BYTES, CELL, TABLE, VALUE, Facts, cases, digest_of
from tilewright.prove.checker.fields import FIELDS, PRIMES, Array, as_integers, matrix_product, residues
from tilewright.prove.checker.functions import Functions

#: Values of a sum that are tried one by one.
_MOST_SUMS = 1 << 23
#: Zero point, least and largest byte, rounding of a requantiser.
Rule = tuple[int, int, int, int]


class Names(Functions):
    """All names of one proof.

    Args:
        seed: of all random elements and of the mixing.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._sums = Facts(2)  # sums of which all results are compared: least and largest value
        self._left = Facts(1)  # what integers leave modulo a number: this
        self._runs = Facts(FIELDS + 2)  # integers that follow another one: it, how far, and what number is not between
        self._puts = Facts(2 * FIELDS + 2)  # bytes that were put: the byte before, the number, least and largest row
        self._alone = Facts(CELL + 1)  # sums: the one byte in them that is no constant, and its weight
        #: Tensors, and single integers, that follow from one integer alone: by their elements, that of the integer, and
        #: their values [n, ...] for 0 to n - 1.
        self.follows: dict[bytes, tuple[Array, Array]] = {}
        self.of_bytes: dict[bytes, tuple[Array, Array]] = {}  # floats: the bytes, and the values for each of theirs

    # sums

    def product(self, cells: Array, w: Array, ranges: bool = False) -> Array:
        """Elements [..., O, FIELDS]: cells [..., n, CELL] times integers [n, O].

        Args:
            ranges: keep the ranges of the sums.
        """
        total, used, fixed = matrix_product(cells[..., VALUE], w), (w != 0).astype(np.float32), self.fixed(cells)
        if fixed.any() or used.sum(axis=0).min(initial=2) < 2:
            at = np.nonzero((~fixed).astype(np.float32) @ used == 1)
            if len(at[0]):
                source = ((~fixed * np.arange(len(w), dtype=np.float32)) @ used)[at].astype(int)
                self._keep_alone(total[at], cells[(*at[:-1], source)], w[source, at[-1]])
        if ranges and w.any():
            w = w.astype(np.int64)
            given = np.where(fixed, BYTES[np.where(fixed, cells[..., TABLE] - 1, 0)], 0) @ w
            bound, multiple = ~fixed @ (128 * abs(w)), np.full(given.shape, np.gcd.reduce(w.ravel()))
            self._keep_range(total, np.stack([given - bound, given + bound, multiple], axis=-1))
        return total

    def window(self, cells: Array, places: Array, w: Array) -> Array:
        """Elements [..., FIELDS]: cells of a row [m, CELL] at places [..., n] times integers [..., n], broadcast."""
        w = np.broadcast_to(w, places.shape).astype(np.int64)
        total = np.zeros((*w.shape[:-1], FIELDS), np.int64)
        for i in range(w.shape[-1]):
            total += cells[places[..., i], VALUE] * w[..., i, None]
        total = np.asarray(total % PRIMES, np.uint32)
        used = (w != 0) & ~self.fixed(cells)[places]
        at = np.nonzero(np.count_nonzero(used, axis=-1) == 1)
        source = np.argmax(used[at], axis=-1)
        self._keep_alone(total[at], cells[places[(*at, source)]], w[(*at, source)])
        return total

    def added(self, a: Array, b: Array) -> Array:
        """Sums of elements; of two sums with known ranges the range is known."""
        total = np.asarray((a.astype(np.int64) + b) % PRIMES, np.uint32)
        (here, first), (there, second) = self.ranges.find(a), self.ranges.find(b)
        both = here & there
        if both.any():
            first, second = first[both[here]], second[both[there]]
            divisor = np.gcd(first[:, 2], second[:, 2])[:, None]
            self._keep_range(total[both], np.concatenate([first[:, :2] + second[:, :2], divisor], axis=1))
        return total

    def _keep_alone(self, sums: Array, cells: Array, weights: Array) -> None:
        self._alone.keep(sums, np.concatenate([cells, weights[:, None]], axis=1))

    def _keep_range(self, sums: Array, facts: Array) -> None:
        unknown = ~as_integers(sums)[0]
        self.ranges.keep(sums[unknown], facts[unknown])

    def keep_sums(self, acc: Array, least: Array, most: Array) -> None:
        """Keeps that sums [..., FIELDS] lie between two values, broadcast: what requantises them has its name from all
        its results, so that another scale may give them."""
        new = np.stack([np.broadcast_to(x, acc.shape[:-1]).ravel() for x in (least, most)], axis=1)
        self._sums.keep(acc.reshape(-1, FIELDS), new)

    # requantisation

    def requantize(
        self, values: Array, bias: Array, scale: Array, rule: Rule, bounds: tuple[Array, Array] | None = None
    ) -> Array:
        """Cells of `isa.numerics.requantize` of elements [..., FIELDS] and integers, broadcast.

        Args:
            scale: uint32 patterns, broadcast.
            bounds: least and largest value of the sums, where these are known, broadcast.
        """
        zero_point, low, high, rounding = rule
        if rounding == Rounding.EVEN_ZERO_POINT_INSIDE and zero_point == 0:
            rounding = int(Rounding.EVEN)
        bits, bias = (np.broadcast_to(x, values.shape[:-1]) for x in (np.asarray(scale, np.uint32), bias))
        acc = np.asarray((values.astype(np.int64) + bias[..., None] % PRIMES) % PRIMES, np.uint32)
        roots = self.mix(("requantise", int(rounding), int(zero_point)), bits.astype(np.uint64), acc)
        whole = (zero_point, -128, 127, rounding)
        self._by_results(roots, acc, bits, whole)
        if rounding == Rounding.EVEN:
            self._divide(roots, values, bias, bits, zero_point)
        known, value = as_integers(acc)
        known |= numerics.scale_value(bits) == 0
        roots[known] = residues(numerics.requantize(numerics.wrap32(value[known]), bits[known], *whole))
        if bounds is not None and min(bounds[0].min(), -bounds[1].max()) > -(1 << 31):
            ends = [numerics.requantize(end, scale, *whole).astype(np.int64) for end in bounds]
            ends = [np.broadcast_to(f(*ends), bits.shape) for f in (np.minimum, np.maximum)]
            narrow = ~known & ((ends[0] > -128) | (ends[1] < 127))
            self.reach.keep(roots[narrow], np.stack([ends[0][narrow], ends[1][narrow]], axis=1))
        clamp = self.register(np.clip(BYTES, low, high))
        found = self.of_roots(roots, np.full(bits.shape, clamp))
        self._of_one_byte(found, values, bias, bits, (zero_point, low, high, rounding))
        return found

    def _of_one_byte(self, found: Array, values: Array, bias: Array, bits: Array, rule: Rule) -> None:
        """Replaces the results whose sum is a weight times a byte and a constant by a table of the byte."""
        here, facts = self._alone.find(values)
        byte, weight = facts[:, :CELL].astype(np.uint32), facts[:, CELL]
        rest = values[here].astype(np.int64) - byte[:, VALUE].astype(np.int64) * weight[:, None]
        one, added = as_integers(rest % PRIMES)
        here[here] = one
        byte, cells = byte[one], found[here]
        for (w, c, scale), at in cases(np.stack([weight[one], added[one] + bias[here], bits[here]], axis=1)):
            sums = numerics.wrap32(BYTES.astype(np.int64) * w + c)
            cells[at] = self.look_up(byte[at], numerics.requantize(sums, np.uint32(scale), *rule))
        found[here] = cells

    def _by_results(self, roots: Array, acc: Array, bits: Array, rule: Rule) -> None:
        """Names the results of the kept sums by what these are for every value of the sum."""
        for (least, most, scale), at in self._sums.cases(acc, bits):
            results = numerics.requantize(np.arange(least, most + 1), np.uint32(scale), *rule)
            roots[at] = self.mix(("results of a sum", least, digest_of(results.tobytes())), acc[at])

    # integers in bytes

    def _divide(self, roots: Array, values: Array, added: Array, bits: Array, zero_point: int) -> None:
        """Keeps the ranges of quotients of sums by integers, and of what these leave of the sums, by every sum.

        Where always the same is left, the quotient is a sum itself.
        """
        for (least, most, multiple, bias, scale), here in self.ranges.cases(values, added, bits):
            if not 2.0**-24 < (factor := float(numerics.scale_value(np.uint32(scale)))) <= 1:
                continue
            divisor, step = round(1 / factor), multiple if least % multiple == 0 else 1
            if (most - least) // step >= _MOST_SUMS or max(abs(least + bias), abs(most + bias)) >= 1 << 31:
                continue
            self.count("quotient by an integer")
            sums = np.arange(least, most + 1, step)
            quotients = numerics.requantize(sums + bias, np.uint32(scale), zero_point, -128, 127).astype(np.int64)
            left = sums - divisor * quotients
            elements = values[here].astype(np.int64)
            if (left == left[0]).all():
                inverse = np.array([pow(divisor, -1, int(p)) for p in PRIMES])
                roots[here] = (elements - int(left[0])) % PRIMES * inverse % PRIMES
            else:
                rest = (elements - roots[here].astype(np.int64) * divisor) % PRIMES
                self.ranges.keep(rest, np.tile([left.min(), left.max(), max(1, np.gcd.reduce(left))], (len(rest), 1)))
            new = np.tile([quotients.min(), quotients.max(), 1], (len(elements), 1))
            self.ranges.keep(roots[here], new)
            self.reach.keep(roots[here], new[:, :2])

    def bytes_of(self, sums: Array) -> Array:
        """Cells [..., 4, CELL] of the bytes of integers, the lowest first: together they are the integers again."""
        known, value = as_integers(sums)
        parts = [self.mix(("byte of an integer", i), sums).astype(np.int64) for i in range(3)]
        low = (sums - sum(256 ** (i + 1) * (part + 128 * (i < 2)) for i, part in enumerate(parts)) - 128) % PRIMES
        flipped = self.cells(np.stack([low, *parts], axis=-2).astype(np.uint32))
        flipped[..., :3, :] = self.look_up(flipped[..., :3, :], BYTES ^ np.int8(-128))
        fixed = self.bytes[value[..., None] >> np.arange(0, 32, 8) & 255]
        return np.asarray(np.where(known[..., None, None], fixed, flipped), np.uint32)

    def modulo(self, values: Array, n: int) -> Array:
        """Elements of what integers [..., FIELDS] leave modulo n, at least 0."""
        known, value = as_integers(values)
        again, least = self._left.find(values)
        again[again] = least[:, 0] == n
        follows, facts = self._runs.find(values)
        follows[follows] = kept = facts[:, FIELDS + 1] == n
        first, far = facts[kept, :FIELDS].astype(np.uint32), facts[kept, FIELDS, None]
        found = np.where(again[..., None], values, self.mix(("modulo", n), values))
        found[follows] = (self.mix(("modulo", n), first).astype(np.int64) + far) % PRIMES
        self._left.keep(found[~known], np.full((np.count_nonzero(~known), 1), n))
        return np.where(known[..., None], residues(value % n), found)

    def run(self, first: Array, count: int, period: int) -> Array:
        """Elements [count, FIELDS] of an integer and those behind it, which no multiple of `period` parts."""
        far = np.arange(count)[:, None]
        found = np.asarray((first.astype(np.int64) + far) % PRIMES, np.uint32)
        self._runs.keep(found, np.hstack([np.tile(first, (count, 1)), far, np.full((count, 1), period)]))
        return found

    def put(self, old: Array, at: Array, rows: Array, number: Array, new: Array) -> Array:
        """Elements [m, FIELDS] of values of which some may be replaced, as an integer says.

        A value is what it was, and for each row the difference to the new one if the integer is this row. So it does
        not matter in what order rows are put, if they differ.

        Args:
            old: [m, FIELDS].
            at, rows, new: of each new value [k, FIELDS] which one it replaces, and for which integer.
            number: the integer's element.
        """
        ends = np.tile([1 << 62, -1], (len(old), 1))
        np.minimum.at(ends[:, 0], at, rows)
        np.maximum.at(ends[:, 1], at, rows)
        here, facts = self._puts.find(old)
        apart = (ends[here, 0] > facts[:, -1]) | (ends[here, 1] < facts[:, -2])
        here[here] = apart = apart & (facts[:, FIELDS:-2] == number).all(axis=1)
        base, facts = old.copy(), facts[apart]
        base[here] = facts[:, :FIELDS]
        ends[here] = np.stack(
            [np.minimum(ends[here, 0], facts[:, -2]), np.maximum(ends[here, 1], facts[:, -1])], axis=1
        )
        total = old.astype(np.int64)
        differences = self.mix(("row put into others",), base[at], rows.astype(np.uint64), number, new)
        np.add.at(total, at, differences.astype(np.int64))
        found = (total % PRIMES).astype(np.uint32)
        self._puts.keep(found, np.hstack([base, np.tile(number, (len(old), 1)), ends]))
        return found

    def rows(self, number: Array, table: Array) -> Array:
        """Cells of the row that an integer selects of a table int8 [n, ...]: the sum of all rows, each times an element
        for whether it is that one. These elements add up to 1.

        Args:
            number: the elements [..., FIELDS] of integers, which are 0 to n - 1.
        """
        chosen = self.mix(("row of a table",), number[..., None, :], np.arange(len(table), dtype=np.uint64))
        chosen[..., 0, :] = (1 - chosen[..., 1:, :].sum(axis=-2, dtype=np.int64)) % PRIMES
        found = matrix_product(chosen, table.reshape(len(table), -1))
        found = self.of_roots(found, np.zeros(found.shape[:-1], np.int64))
        return found.reshape(*number.shape[:-1], *table.shape[1:], CELL)

    def rows_of(self, integers: Array, table: Array) -> Array | None:
        """Cells [n, ...] of the rows of a table int8 that integers [n, FIELDS] select, modulo its rows; None if it is
        not known what values these may have."""
        found = np.empty((len(integers), *table.shape[1:], CELL), np.uint32)
        groups: dict[bytes, list[tuple[int, Array]]] = {}  # by the integers' values
        for place, integer in enumerate(integers):
            if (follows := self.follows.get(integer.tobytes())) is None:
                return None
            rows = follows[1].ravel().astype(np.int64) % len(table)
            groups.setdefault(rows.tobytes(), []).append((place, follows[0]))
        for values, group in groups.items():
            numbers = np.stack([number for _, number in group])
            found[[place for place, _ in group]] = self.rows(numbers, table[np.frombuffer(values, np.int64)])
        return found

    def opaque(self, key: Sequence[object], operands: Sequence[Array], shape: Sequence[int]) -> Array:
        """Cells of an unknown function of whole tensors: the same for the same key and operands."""
        self.count(str(key[0]))
        parts = (part for x in operands for part in (repr(x.shape).encode(), x[..., VALUE].tobytes()))
        return self.random(shape, "opaque", *key, digest_of(*parts))
