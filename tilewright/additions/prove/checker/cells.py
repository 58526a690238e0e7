"""Cells: names of bytes, as tables of 256 or 65,536 entries of a root; `names.py` says what names are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tilewright.prove.checker.fields import FIELDS, PRIMES, Array, as_integers, residues

VALUE, ROOT, TABLE = slice(0, FIELDS), slice(FIELDS, 2 * FIELDS), 2 * FIELDS
CELL = TABLE + 1
BYTES = np.arange(256, dtype=np.uint8).view(np.int8)
_PLACES = 1 << 22
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64)


def digest_of(*parts: bytes) -> bytes:
    """16 bytes that stand for bytes in names."""
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


def words_of(elements: Array) -> Array:
    """One number for each element [..., FIELDS], for look-ups."""
    return np.asarray(_words(elements)[0])


def _words(elements: Array) -> Array:
    """Numbers [FIELDS / 2, ...] that have all of an element."""
    return np.moveaxis(np.ascontiguousarray(elements[..., :FIELDS], np.uint32).view(np.uint64), -1, 0)


def _scrambled(x: Array) -> Array:
    return np.asarray(x ^ x >> np.uint64(30))


def cases(rows: Array) -> Iterator[tuple[list[int], tuple[Array, ...]]]:
    """The distinct rows of integers [..., m], each with the places where it is."""
    distinct, which = np.unique(rows.reshape(-1, rows.shape[-1]), axis=0, return_inverse=True)
    ends = np.cumsum(np.bincount(which.ravel(), minlength=len(distinct)))
    for row, at in zip(distinct.tolist(), np.split(np.argsort(which.ravel(), kind="stable"), ends[:-1]), strict=False):
        yield row, np.unravel_index(at, rows.shape[:-1])


class Facts:
    """Rows of facts about elements: of each the first that was kept."""

    def __init__(self, *shape: int, kind: type = np.int64) -> None:
        #: Elements' first words, sorted, their second ones, and rows; each block is twice as long as the next.
        self._blocks: list[list[Array]] = []
        self._seen = np.zeros(_PLACES, bool)  # by the last bits of words: most elements have no facts
        self._shape, self._kind = shape, kind

    def keep(self, elements: Array, rows: Array) -> None:
        """Keeps rows [m, ...] of elements [m, FIELDS]."""
        new = ~self.find(elements)[0]
        words, others = _words(elements[new])
        words, at = np.unique(words, return_index=True)
        if not len(words):
            return
        self._seen[self._place(words)] = True
        block = [words, others[at], rows[new][at].astype(self._kind)]
        while self._blocks and len(self._blocks[-1][0]) < 2 * len(block[0]):
            block = [np.concatenate(pair) for pair in zip(self._blocks.pop(), block, strict=True)]
            order = np.argsort(block[0], kind="stable")
            block = [part[order] for part in block]
        self._blocks.append(block)

    def find(self, elements: Array) -> tuple[Array, Array]:
        """Marks elements [..., FIELDS] of which something is known, and gives their rows, [n, ...]."""
        if not self._blocks:
            return np.zeros(elements.shape[:-1], bool), np.zeros((0, *self._shape), self._kind)
        words, others = _words(elements)
        here = np.asarray(self._seen.take(self._place(words)))
        wanted, more = words[here], others[here]
        found: Array = np.zeros(len(wanted), bool)
        rows: Array = np.zeros((len(wanted), *self._shape), self._kind)
        for known, second, facts in self._blocks:
            at = np.searchsorted(known[:-1], wanted)
            same = (known[at] == wanted) & (second[at] == more)
            found |= same
            rows[same] = facts[at[same]]
        here[here] = found
        return here, rows[found]

    def cases(self, elements: Array, *others: Array) -> Iterator[tuple[list[int], tuple[Array, ...]]]:
        """The distinct facts of elements [..., FIELDS] and integers [...] beside them, each with where it is."""
        here, rows = self.find(elements)
        at = np.argwhere(here).T
        for row, some in cases(np.concatenate([rows, *(x[here][:, None].astype(np.int64) for x in others)], axis=1)):
            yield row, tuple(axis[some] for axis in at)

    @staticmethod
    def _place(words: Array) -> Array:
        return (words & np.uint64(_PLACES - 1)).view(np.int64)


class Cells:
    """The elements and tables of one proof.

    Args:
        seed: of all random elements and of the mixing.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._tables: list[Array] = []
        # of each table: its name, least and largest value, number of entries; with room for more
        self._keys, self._ends, self._sizes = np.zeros((512, 2), np.uint64), np.zeros((512, 2), int), np.zeros(512, int)
        #: Roots whose bytes lie between two values.
        self.reach = Facts(2)
        #: Sums, and quotients of sums, that lie between two integers and are multiples of a third.
        self.ranges = Facts(3)
        self._numbers: dict[bytes, int] = {}
        for table in (BYTES, *np.repeat(BYTES[:, None], 256, axis=1)):
            self.register(table)  # number 0 changes nothing, number 1 + byte is a constant
        #: Cells of the 256 bytes, by the byte.
        self.bytes = self.cells(residues(BYTES))
        self.bytes[:, ROOT], self.bytes[:, TABLE] = 0, 1 + np.arange(256)
        #: How often names were made of each kind.
        self.used: dict[str, int] = {}
        #: Rows of Softmax and norms, by what they are: named as ROW computes them.
        self.assumed: dict[str, int] = {}

    def count(self, kind: str) -> None:
        self.used[kind] = self.used.get(kind, 0) + 1

    # elements

    def _key(self, *parts: object) -> Array:
        return np.frombuffer(digest_of(repr((self.seed, *parts)).encode()), np.uint64)

    def random(self, shape: Sequence[int], *label: object) -> Array:
        """Cells of new values: the same for the same label."""
        generator = np.random.default_rng(self._key("random", *label))
        return self.cells(generator.integers(0, PRIMES, (*shape, FIELDS)).astype(np.uint32))

    def cells(self, elements: Array) -> Array:
        """Cells that are these elements, whatever the range of their values."""
        return np.concatenate([elements, elements, np.zeros((*elements.shape[:-1], 1), np.uint32)], axis=-1)

    def constants(self, values: Array) -> Array:
        """Cells of integers."""
        byte = (values >= -128) & (values < 128)
        return np.where(byte[..., None], self.bytes[values & 255], self.cells(residues(values)))

    def mix(self, key: Sequence[object], *operands: Array) -> Array:
        """New elements [..., FIELDS], a function of a key and operands (elements, or uint64 words [...]), broadcast."""
        self.count(str(key[0]))
        a, b = self._key(*key)
        words = [w for x in operands for w in ([x] if x.dtype == np.uint64 else _words(x))]
        with np.errstate(over="ignore"):
            for number, word in enumerate(words):
                a = _scrambled((a ^ word) * _MIX[0]) + np.uint64(number)
                b = _scrambled((b + word * _MIX[1]) * _MIX[2]) + np.uint64(number)
            halves = [
                _scrambled((x + _scrambled(y) * _MIX[3]) * _MIX[i]) * _MIX[2 - i] >> np.uint64(1)
                for x, y in ((a, b), (b, a))
                for i in range(FIELDS // 2)
            ]
        return np.asarray(np.stack(halves, axis=-1) % PRIMES.astype(np.uint64), np.uint32)

    # functions of bytes

    @staticmethod
    def _constant(tables: Array) -> Array:
        return np.asarray(tables.astype(np.uint32) - np.uint32(1) < 256)

    def fixed(self, cells: Array) -> Array:
        """Marks bytes that are constants."""
        return self._constant(cells[..., TABLE])

    def limits(self, roots: Array, numbers: Array) -> tuple[Array, Array]:
        """The least and the largest value of tables of these numbers, by what is known of their roots."""
        ends = self._ends[numbers]
        here, facts = self.reach.find(roots)

        def part(table: int, least: int, most: int) -> int:
            values = self.table(table)[np.arange(least - 128, most - 127) & 255].astype(np.int64)
            return int(values.min() * 256 + values.max() + (128 << 8) + 128)

        both = self.by_groups([numbers[here], *(facts.T + 128)], part)
        ends[here] = np.stack([both >> 8, both & 255], axis=-1) - 128
        return ends[..., 0], ends[..., 1]

    def register(self, table: Array) -> int:
        """The number of a table, int8[256] or int8[65536]. That of one value is one of 256 entries."""
        least, most = int(table.min()), int(table.max())
        content = (table[:256] if least == most else table).tobytes()
        if (digest := digest_of(content)) not in self._numbers:
            self._numbers[digest] = number = len(self._tables)
            if number == len(self._sizes):
                self._keys, self._ends = (np.resize(x, (2 * number, 2)) for x in (self._keys, self._ends))
                self._sizes = np.resize(self._sizes, 2 * number)
            self._tables.append(np.frombuffer(content, np.int8))
            self._keys[number], self._ends[number] = self._key("table", digest), (least, most)
            self._sizes[number] = len(self._tables[-1])
        return self._numbers[digest]

    def table(self, number: int) -> Array:
        return self._tables[number]

    def within(self, roots: Array, numbers: Array) -> Array:
        """The numbers of tables of roots, one for all tables that are the same on what is known of the root: beyond it
        the table goes on as at its ends, and one that changes nothing there is number 0."""
        numbers = numbers.copy()
        for (least, most, number), at in self.reach.cases(roots, numbers):
            places = np.clip(BYTES.astype(np.int64), least, most) & 255
            table = self.table(number)[places]
            same = least < most and np.array_equal(table, BYTES[places])
            numbers[at] = 0 if same else self.register(table)
        return numbers

    def of_roots(self, roots: Array, numbers: Array) -> Array:
        """Cells that are the tables of these numbers of roots. Those of one value are constants."""
        known, value = as_integers(roots)
        if known.any():
            numbers = numbers.copy()
            numbers[known] = self.by_groups(
                [numbers[known], value[known] & 255], lambda t, v: 1 + (int(self.table(t)[v]) & 255)
            )
        numbers = self.within(roots, numbers)
        found = np.empty((*roots.shape[:-1], CELL), np.uint32)
        found[..., ROOT], found[..., TABLE] = roots, numbers
        keys = self._keys[numbers]
        mixed = self.mix(("table",), keys[..., 0], keys[..., 1], roots)
        found[..., VALUE] = np.where((numbers == 0)[..., None], roots, mixed)
        for (least, most, _, number), at in self.ranges.cases(roots, numbers):  # sums of roots, where these are linear
            if (line := self.line(self.table(number), least, most)) is not None:
                found[..., VALUE][at] = (roots[at].astype(np.int64) * line[0] + line[1]) % PRIMES
        fixed = self.fixed(found)
        found[fixed] = self.bytes[found[fixed][:, TABLE] - 1]
        return found

    @staticmethod
    def line(table: Array, least: int, most: int) -> tuple[int, int] | None:
        """Factor and constant of a table of bytes that is linear between two integers, None if it is not."""
        places = np.arange(least, most + 1)
        values = table[places & 255].astype(np.int64)
        factor = int(values[1] - values[0]) if len(values) > 1 else 0
        constant = int(values[0]) - factor * least
        return (factor, constant) if (values == factor * places + constant).all() else None

    def by_groups(self, keys: Sequence[Array], function: Callable[..., int]) -> Array:
        """`function` of the keys (integers >= 0) for every combination that occurs: int64, of the keys' shape."""
        if keys[0].size == 0:
            return np.zeros(keys[0].shape, np.int64)
        sizes = [int(k.max()) + 1 for k in keys]
        codes, place = np.unique(np.ravel_multi_index([k.astype(np.int64) for k in keys], sizes), return_inverse=True)
        parts = np.stack(np.unravel_index(codes, sizes), axis=1).tolist()
        return np.array([function(*part) for part in parts], np.int64)[place].reshape(keys[0].shape)

    def look_up(self, cells: Array, table: Array) -> Array:
        """Cells of `table` (int8[256], in the order of the bytes 0..255) of cells."""
        if cells.size == 0 or np.array_equal(table, BYTES):
            return cells
        by_byte = np.asarray(table, np.int8)
        numbers = self.by_groups([cells[..., TABLE]], lambda t: self.register(by_byte[self.table(t).view(np.uint8)]))
        return self.of_roots(cells[..., ROOT], numbers)

    def clamp(self, cells: Array, low: int, high: int) -> Array:
        """min(max(value, low), high)."""
        return self.look_up(cells, np.minimum(np.maximum(BYTES, low), high).astype(np.int8))
