"""Functions of two bytes, and maxima, which have one name in whatever steps they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np

from tilewright.prove.checker.cells import BYTES, CELL, ROOT, TABLE, VALUE, Cells, Facts, cases, words_of
from tilewright.prove.checker.fields import FIELDS, PRIMES, Array

#: The bytes in the order of their values, -128 to 127.
_ORDER = np.roll(np.arange(256), 128)
_LARGER = np.maximum(BYTES[:, None], BYTES[None])


class Functions(Cells):
    """A proof that knows of pairs of roots, and of sets of them.

    Args:
        seed: of all random elements and of the mixing.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._pairs = Facts(2, FIELDS, kind=np.uint32)  # roots of two bytes: the two
        self._of_pairs = Facts(FIELDS + 1, kind=np.uint32)  # roots that are maxima: their pair, and its table
        self._of_values = Facts(FIELDS + 1, kind=np.uint32)  # functions of two bytes: the one that they are a table of
        self._others = Facts(FIELDS + 1, kind=np.uint32)  # functions of two bytes: those of another pair that they are
        self._maxima: dict[int, Facts] = {}  # by number of operands: roots that are maxima, and of what
        self._forms: dict[int, list[tuple[tuple[Array, Array], Array]]] = {}  # what `_maxima_of` found of tables
        self._inverse = self.register(~BYTES)

    def combine(self, a: Array, b: Array, function: Array) -> Array:
        """Cells of a function of two bytes, int8[256, 256] in the order of bytes."""
        shape = np.broadcast_shapes(a.shape, b.shape)
        a, b = (np.broadcast_to(x, shape).reshape(-1, CELL).copy() for x in (a, b))
        for step in (self._exchange, self._unfold, self._lift, self._follow):
            step(a, b)
            step(b, a)
        apart = (a[:, ROOT] != b[:, ROOT]).any(axis=1)
        wide, tables = ([apart & marked(x) for x in (a, b)] for marked in (self._wide, self._is_of_value))
        found = self._simplified(*self._of_both(a, b, wide, function))
        at = ((tables[0] | tables[1]) & ~(wide[0] | wide[1])).nonzero()
        other = self._of_both(a[at], b[at], [each[at] for each in tables], function)
        self._others.keep(found[at][:, VALUE], np.column_stack(other))
        return found.reshape(shape)

    def _of_both(self, a: Array, b: Array, folded: Sequence[Array], function: Array) -> tuple[Array, Array]:
        """Roots and tables of a function of cells [n, CELL], of which those marked are tables of a value."""
        (roots, tables_a), (roots_b, tables_b) = (self._folded(x, marked) for x, marked in zip((a, b), folded))
        same = (roots == roots_b).all(axis=1)
        swap = np.zeros(len(same), bool)
        roots[~same], swap[~same] = self._paired(roots[~same], roots_b[~same])

        def number(ta: int, tb: int, exchanged: int, one: int) -> int:
            left, right = self.table(ta).view(np.uint8), self.table(tb).view(np.uint8)
            if one:  # a constant has 256 entries, also beside a function of two bytes
                size = max(len(left), len(right))
                return self.register(function[tuple(t if len(t) == size else t[:1] for t in (left, right))])
            both = function[left[:, None], right[None, :]]
            return self.register((both.T if exchanged else both).ravel())

        return roots, self.by_groups([tables_a, tables_b, swap, same], number)

    def look_up(self, cells: Array, table: Array) -> Array:
        """Cells of a table; a function of two bytes may become one of one byte by it."""
        found = super().look_up(cells, table)
        if found is cells:
            return found
        at, form = self._others.find(cells[..., VALUE])
        self._keep_table(self._others, found[at], form[:, :FIELDS], form[:, FIELDS], table)
        if (wide := self._wide(found)).any():
            found[wide] = self._simplified(found[wide][:, ROOT], found[wide][:, TABLE].astype(np.int64))
            wide &= ~self.fixed(found)
            self._keep_table(self._of_values, found[wide], *self._folded(cells[wide], np.ones(wide.sum(), bool)), table)
        return found

    def _keep_table(self, facts: Facts, found: Array, roots: Array, tables: Array, table: Array) -> None:
        """Keeps that cells are a table of tables of roots."""
        tables = self.by_groups([tables], lambda t: self.register(table[self.table(t).view(np.uint8)]))
        facts.keep(found[:, VALUE], np.column_stack([roots, self.within(roots, tables)]))

    def _is_of_value(self, cells: Array) -> Array:
        """Marks tables of a function of two bytes, also those that are one of one byte."""
        return self._of_values.find(cells[:, VALUE])[0]

    def _exchange(self, cells: Array, others: Array) -> None:
        """Makes functions of two bytes those of another pair that they are, too, where the other operand is of it."""
        here, form = self._others.find(cells[:, VALUE])
        near = (form[:, :FIELDS] == others[here][:, ROOT]).all(axis=1)
        here[here] = near
        cells[here, ROOT], cells[here, TABLE] = form[near, :FIELDS], form[near, FIELDS]

    def _simplified(self, roots: Array, numbers: Array) -> Array:
        """Cells of tables of roots, which change with it."""
        numbers = self._within_pairs(roots, numbers)
        for chosen in np.unique(numbers):
            self._simplify(roots, numbers, int(chosen))
        return self.of_roots(roots, numbers)

    def _within_pairs(self, roots: Array, numbers: Array) -> Array:
        """`within` for tables of pairs, by what is known of their two roots."""
        numbers, at = numbers.copy(), np.flatnonzero(self._sizes[numbers] > 256)
        known, ends = self._reach_of(self._pairs.find(roots[at])[1])
        at, ends = at[known.any(axis=1)], ends[known.any(axis=1)]
        for (*both, number), here in cases(np.column_stack([ends.reshape(-1, 4), numbers[at]])):
            a, b = (np.clip(BYTES.astype(np.int64), both[i], both[i + 1]) & 255 for i in (0, 2))
            numbers[at[here]] = self.register(self.table(number).reshape(256, 256)[np.ix_(a, b)].ravel())
        return numbers

    def _reach_of(self, roots: Array) -> tuple[Array, Array]:
        """Marks roots [m, n] of which something is known, and gives the least and largest value of all [m, n, 2]."""
        ends = np.tile(np.array([-128, 127]), (*roots.shape[:-1], 1))
        known, facts = self.reach.find(roots)
        ends[known] = facts
        return known, ends

    def _wide(self, cells: Array) -> Array:
        """Marks functions of two bytes."""
        return np.asarray(self._sizes[cells[..., TABLE]] > 256)

    def _folded(self, cells: Array, wide: Array) -> tuple[Array, Array]:
        """Roots and tables of cells; those that are marked are values of their own, or tables of such ones."""
        roots, tables = cells[..., ROOT].copy(), cells[..., TABLE].astype(np.int64)
        own = cells[wide][:, VALUE]
        self._of_values.keep(own, np.hstack([own, np.zeros((len(own), 1), np.uint32)]))
        self.reach.keep(own, self._ends[cells[wide][:, TABLE]])
        known = self._of_values.find(own)[1]
        roots[wide], tables[wide] = known[:, :FIELDS], known[:, FIELDS]
        return roots, tables

    def _paired(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Roots of two bytes, and marks those whose second byte is that of `a`."""
        swap = words_of(a) > words_of(b)
        parts = np.stack([np.where(swap[:, None], b, a), np.where(swap[:, None], a, b)], axis=1)
        roots = self.mix(("function of two bytes",), parts[:, 0], parts[:, 1])
        self._pairs.keep(roots, parts)
        return roots, swap

    def _unfold(self, cells: Array, others: Array) -> None:
        """Makes tables of maxima the functions of a pair that they are, where the other operand is of it, too."""
        here, forms = self._of_pairs.find(cells[:, ROOT])
        pairs, roots = forms[:, :FIELDS], np.stack([others[here][:, ROOT]] * 2, axis=1)
        maxima, of = self._of_pairs.find(roots[:, 1])
        roots[maxima, 1] = of[:, :FIELDS]
        near = np.concatenate([self._pairs.find(pairs)[1], pairs[:, None]], axis=1)
        near = (words_of(near)[:, :, None] == words_of(roots)[:, None]).any(axis=(1, 2))
        at = np.flatnonzero(here)[near]
        tables = self.by_groups([forms[near, FIELDS], cells[at, TABLE]], self._composed)
        cells[at, ROOT], cells[at, TABLE] = pairs[near], tables

    def _lift(self, cells: Array, others: Array) -> None:
        """Makes functions of a byte those of a pair, where the other operand is one of this pair."""
        at = np.flatnonzero(self._wide(others) & (cells[:, ROOT] != others[:, ROOT]).any(axis=1))
        known, parts = self._pairs.find(others[at][:, ROOT])
        at = at[known]
        own, tables = self._folded(cells[at], self._wide(cells[at]))
        for side, spread in ((0, lambda t: np.repeat(t, 256)), (1, lambda t: np.tile(t, 256))):
            inside = (parts[:, side] == own).all(axis=1)

            def number(table: int, spread: Callable[[Array], Array] = spread) -> int:
                return self.register(spread(self.table(table)))

            cells[at[inside], TABLE] = self.by_groups([tables[inside]], number)
            cells[at[inside], ROOT] = others[at[inside], ROOT]

    def _follow(self, cells: Array, others: Array) -> None:
        """Makes constants functions of the other operand's root."""
        fixed = self.fixed(cells)
        cells[fixed, ROOT] = others[fixed, ROOT]

    def _simplify(self, roots: Array, numbers: Array, number: int) -> None:
        """Replaces pairs and a function of theirs by one of their roots, if it depends on this only, and by the maximum
        of a set, if it is a table of the larger of functions of both."""
        table, at = self.table(number), np.flatnonzero(numbers == number)
        if len(table) == 256:
            return
        square, parts = table.reshape(256, 256), self._pairs.find(roots[at])[1]
        for side, line in ((0, square[:, :1]), (1, square[:1])):
            if (square == line).all():
                roots[at], numbers[at] = parts[:, side], self.register(line.ravel())
                return
        if number not in self._forms:
            self._forms[number] = list(self._maxima_of(square))
        for tables, after in self._forms[number]:
            sides = np.broadcast_to([self.register(table) for table in tables], parts.shape[:2])
            largest = self.maximum(self.of_roots(parts, sides))
            found = self.look_up(largest, after)
            self._keep_pairs(largest, roots[at], parts, sides)
            roots[at], numbers[at] = found[:, ROOT], found[:, TABLE]
            return

    def _keep_pairs(self, largest: Array, pairs: Array, parts: Array, sides: Array) -> None:
        """Keeps that the roots of maxima are functions of pairs, where these are the maximum's own operands, or the
        maximum is the root itself."""
        inner, whole = sides.copy(), largest[:, TABLE] == 0
        here, sets = self._maxima.get(2, Facts(2, FIELDS + 1)).find(largest[:, ROOT])
        own = (sets[..., :FIELDS] == parts[here]).all(axis=(1, 2))
        here[here] = own
        inner[here] = sets[own][..., FIELDS]
        at = here | whole
        form = self.by_groups(
            [inner[at, 0], inner[at, 1]],
            lambda f, g: self.register(np.maximum(self.table(f)[:, None], self.table(g)[None]).ravel()),
        )
        self._of_pairs.keep(largest[at][:, ROOT], np.hstack([pairs[at], form[:, None].astype(np.uint32)]))

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
            if (table == line[_LARGER.view(np.uint8)]).all():
                yield (f, g), line

    # maxima

    def maximum(self, cells: Array) -> Array:
        """The largest of n cells [..., n, CELL], by the set of operands.

        Operands are tables of distinct roots, none of which is itself a maximum: what takes several steps is one set.
        No table is below the least value of the maximum. A table that all have in common is outside.
        """
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
        least, most = np.moveaxis(self._reach_of(roots)[1], -1, 0)
        floor = np.broadcast_to(self.limits(roots, tables)[0].max(axis=1)[:, None] + 128, tables.shape)
        tables = self.within(roots, self.by_groups([tables, floor], self._floored))
        dropped = self._constant(tables)
        words = np.where(dropped, ~np.uint64(0), words_of(roots))
        order = np.argsort(words, axis=1)
        words, tables, dropped, least, most = (
            np.take_along_axis(x, order, axis=1) for x in (words, tables, dropped, least, most)
        )
        roots = np.take_along_axis(roots, order[..., None], axis=1)
        again = (roots[:, 1:] == roots[:, :-1]).all(axis=2) & ~dropped[:, 1:]
        for i in np.flatnonzero(again.any(axis=0)):  # one root twice: the larger of both tables
            at = again[:, i]
            tables[at, i + 1] = self.by_groups(
                [tables[at, i], tables[at, i + 1]], lambda a, b: self.register(np.maximum(self.table(a), self.table(b)))
            )
            tables[at, i + 1] = self.within(roots[at, i + 1], tables[at, i + 1])
        dropped[:, :-1] |= again
        left, one = (~dropped).sum(axis=1), (np.arange(len(tables)), np.argmin(dropped, axis=1))
        first, way, outer = tables[one], np.zeros(len(tables), np.int64), np.zeros(len(tables), np.int64)
        # a table of all: the one that reaches as far as the maximum of a rising table does, or as that of a falling one
        for slope, far in ((1, np.where(dropped, -129, most)), (2, np.where(dropped, -129, -1 - least))):
            of = np.take_along_axis(tables, far.argmax(axis=1)[:, None], axis=1)
            of = self.by_groups([np.broadcast_to(of, tables.shape), floor], self._floored)
            every = ((self.within(roots, of) == tables) | dropped).all(axis=1) & (way == 0)
            chosen = every & (self.by_groups([of[:, 0]], self._slope) == slope)
            way[chosen], outer[chosen] = slope, of[chosen, 0]
        outer = np.where(way == 2, self.by_groups([outer], lambda t: self._composed(self._inverse, t)), outer)
        inner = np.where(way[:, None] == 0, tables, np.where(way == 2, self._inverse, 0)[:, None])
        keys = self._keys[inner]
        terms = self.mix(("operand of a maximum",), keys[..., 0], keys[..., 1], roots).astype(np.int64)
        total = np.asarray(np.where(dropped[..., None], 0, terms).sum(axis=1) % PRIMES, np.uint32)
        total = self.mix(("maximum",), total)  # no sum: two maxima added are not that of all operands
        total[left == 1] = roots[one][left == 1]
        ends = [np.where(dropped, -128, end).max(axis=1) for end in self.limits(roots, inner)]
        self.reach.keep(total[left > 1], np.stack(ends, axis=1)[left > 1])
        found = self.of_roots(total, np.where(left < 2, first, outer))
        order = np.argsort(dropped, axis=1, kind="stable")
        sets = np.concatenate([roots, inner[..., None].astype(np.uint32)], axis=2)
        for width in set(left.tolist()) - {0, 1}:
            at = np.flatnonzero(left == width)
            facts = self._maxima.setdefault(width, Facts(width, FIELDS + 1, kind=np.uint32))
            facts.keep(total[at], sets[at[:, None], order[at, :width]])
        return found

    def _floored(self, number: int, floor: int) -> int:
        """A table, at least `floor` - 128."""
        return self.register(np.maximum(self.table(number), BYTES[floor - 128]))

    def _slope(self, number: int) -> int:
        """Returns 1 for a table of a byte that never falls with the value, 2 for one that never rises, 0 for others."""
        steps = np.diff(self.table(number)[_ORDER].astype(np.int64)) if len(self.table(number)) == 256 else np.zeros(0)
        return 0 if not len(steps) else 1 if (steps >= 0).all() else 2 if (steps <= 0).all() else 0
