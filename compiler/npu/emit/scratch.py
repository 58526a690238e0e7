"""Allocators of scratchpad rows during emission: a heap for ACT, rings for the other scratchpads.

Allocation never waits: rows are reused as soon as their last use is behind in program order, and the semaphores
(`native/hazards.h`) make the machine respect that. Rows are reused in rotation, so that a wait is mostly for work that
ended long ago.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from operator import attrgetter, itemgetter
from typing import NamedTuple


class ScratchpadFull(Exception):
    """A scratchpad has no room; the caller tries smaller tiles or keeps less on the chip."""


_FIRST, _END, _START = itemgetter(0), itemgetter(1), attrgetter("start")


class Use(NamedTuple):
    """A use of a keyed constant in a ring.

    Attributes:
        key: the constant.
        rows: rows it was put into, 0 if it was found there.
        align: alignment of the allocation.
    """

    key: Hashable
    rows: int = 0
    align: int = 1


class Ring:
    """Allocates rows of a scratchpad in rotation. Constants with a key are found again until their rows are reused.

    Args:
        rows: size in rows.
        align: every allocation starts at a multiple of this.

    Attributes:
        uses: a list to which all uses of keys are appended; None for no list.
    """

    def __init__(self, rows: int, align: int = 1) -> None:
        self.rows = rows
        self.align = align
        self.uses: list[Use] | None = None
        self._next = 0
        self._held: dict[Hashable, int] = {}
        self._spans: list[tuple[int, int, Hashable]] = []  # (start, end, key), sorted, disjoint

    def find(self, key: Hashable) -> int | None:
        """Returns the first row of a key's constant, None if its rows have been reused."""
        at = self._held.get(key)
        if self.uses is not None and at is not None:
            self.uses.append(Use(key))
        return at

    def take(self, count: int, key: Hashable | None = None, align: int | None = None) -> int:
        """Returns the first of `count` rows, whose former contents are forgotten.

        Args:
            count: number of rows.
            key: key of the constant that the caller loads there; None if it is not to be found again.
            align: alignment of this allocation, None for that of the ring.

        Raises:
            ScratchpadFull: the ring has fewer rows.
        """
        if count > self.rows:
            raise ScratchpadFull(f"{count} rows of {self.rows}")
        align = align or self.align
        start = -(-self._next // align) * align
        if start + count > self.rows:
            start = 0
        self._next = start + count
        end = start + count
        spans = self._spans
        low = bisect_right(spans, start, key=_END)
        high = bisect_left(spans, end, lo=low, key=_FIRST)
        for _, _, gone in spans[low:high]:
            del self._held[gone]
        spans[low:high] = [] if key is None else [(start, end, key)]
        if key is not None:
            self._held[key] = start
            if self.uses is not None:
                self.uses.append(Use(key, count, align))
        return start

    def seek(self, row: int) -> None:
        """Makes the next allocation begin at `row` or behind it, or at 0 where the rest is too small."""
        self._next = row

    def reserve(self, count: int) -> int:
        """Excludes the last `count` rows from allocation until `give_back`; returns the first of them.

        Raises:
            ScratchpadFull: the ring has fewer rows.
        """
        if count > self.rows:
            raise ScratchpadFull(f"{count} rows of {self.rows}")
        self.rows -= count
        for start, end, gone in [span for span in self._spans if span[1] > self.rows]:
            del self._held[gone]
            self._spans.remove((start, end, gone))
        return self.rows

    def give_back(self, count: int) -> None:
        """Ends a reservation of `count` rows."""
        self.rows += count

    def invalidate(self) -> None:
        """Forgets all contents: a CPU step or another program may come between."""
        self._held.clear()
        self._spans.clear()


class Allocation(NamedTuple):
    """Allocated rows.

    Attributes:
        start, size: first row and number of rows.
        owner: the heap that takes them back.
    """

    start: int
    size: int
    owner: Heap

    def free(self) -> None:
        """Returns the rows to their heap."""
        self.owner.free(self)


class Heap:
    """Allocates rows first..first+rows-1 of ACT, next fit: each search starts where the last allocation ended."""

    def __init__(self, rows: int, first: int = 0) -> None:
        self.first = first
        self.rows = rows
        self._live: list[Allocation] = []
        self._next = first

    def take(self, count: int) -> Allocation:
        """Allocates the next `count` free rows.

        Raises:
            ScratchpadFull: no gap is large enough.
        """
        for low in (self._next, self.first):
            for start, end in self._gaps():
                at = max(start, low)
                if at + count <= end:
                    self._next = at + count
                    return self._taken(at, count)
        raise ScratchpadFull(f"{count} rows of ACT, {self.free_rows} free")

    def take_low(self, count: int) -> Allocation:
        """Allocates rows at the start of the largest gap, so that the rest of it stays in one piece.

        Raises:
            ScratchpadFull: no gap is large enough.
        """
        start, end = max(self._gaps(), key=lambda gap: gap[1] - gap[0], default=(0, 0))
        if end - start < count:
            raise ScratchpadFull(f"{count} rows of ACT, {self.free_rows} free")
        return self._taken(start, count)

    def take_at(self, start: int, count: int) -> Allocation:
        """Allocates rows start..start+count-1.

        Raises:
            ScratchpadFull: some of them are in use.
        """
        if not any(low <= start and start + count <= high for low, high in self._gaps()):
            raise ScratchpadFull(f"rows {start}..{start + count} of ACT are in use")
        return self._taken(start, count)

    def free(self, rows: Allocation) -> None:
        """Frees an allocation."""
        self._live.remove(rows)

    @property
    def free_rows(self) -> int:
        """The number of free rows, in all gaps together."""
        return self.rows - sum(r.size for r in self._live)

    @property
    def largest_gap(self) -> int:
        """The number of rows in the largest gap."""
        return max((e - s for s, e in self._gaps()), default=0)

    def _taken(self, start: int, count: int) -> Allocation:
        """Marks free rows as allocated; returns the allocation."""
        rows = Allocation(start, count, self)
        insort(self._live, rows, key=_START)
        return rows

    def _gaps(self) -> Iterator[tuple[int, int]]:
        """Yields the (start, end) of runs of free rows, in order."""
        at = self.first
        for rows in self._live:
            if rows.start > at:
                yield at, rows.start
            at = rows.start + rows.size
        if at < self.first + self.rows:
            yield at, self.first + self.rows
