"""Allocation of scratchpad rows during emission: a heap for ACT, rings for the other scratchpads.

Nothing here waits: rows are handed out again as soon as their last use is behind in program order, and the semaphores
(`native/hazards.h`) make the machine keep to that. Rows are handed out in rotation, so that a wait is mostly for what
is long done.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from operator import attrgetter, itemgetter
from typing import NamedTuple


class ScratchpadFull(Exception):
    """Raised where there is no room; the caller tries smaller tiles or keeps less on the chip."""


_FIRST, _END, _START = itemgetter(0), itemgetter(1), attrgetter("start")


class Use(NamedTuple):
    """A use of what has a key in a ring: it was found there (no rows), or put there in so many rows."""

    key: Hashable
    rows: int = 0
    align: int = 1


class Ring:
    """Rows of a scratchpad that are handed out in rotation. What was put under a key is found again until its rows
    are handed out anew.

    Args:
        rows: size.
        align: every allocation starts at a multiple.

    Attributes:
        uses: where there is a list, all uses of a key are appended to it.
    """

    def __init__(self, rows: int, align: int = 1) -> None:
        self.rows = rows
        self.align = align
        self.uses: list[Use] | None = None
        self._next = 0
        self._held: dict[Hashable, int] = {}
        self._spans: list[tuple[int, int, Hashable]] = []  # start, end, key; sorted, none overlaps another

    def find(self, key: Hashable) -> int | None:
        """First row of what was put under a key, None if it is no longer there."""
        at = self._held.get(key)
        if self.uses is not None and at is not None:
            self.uses.append(Use(key))
        return at

    def take(self, count: int, key: Hashable | None = None, align: int | None = None) -> int:
        """`count` rows, forgetting whatever was held there.

        Args:
            align: of this allocation, where it is not that of all.
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

    def reserve(self, count: int) -> int:
        """The last `count` rows, which are not handed out until they are given back; returns the first.

        Raises:
            ScratchpadFull: there are no so many.
        """
        if count > self.rows:
            raise ScratchpadFull(f"{count} rows of {self.rows}")
        self.rows -= count
        for start, end, gone in [span for span in self._spans if span[1] > self.rows]:
            del self._held[gone]
            self._spans.remove((start, end, gone))
        return self.rows

    def give_back(self, count: int) -> None:
        """Ends a reservation."""
        self.rows += count

    def forget(self) -> None:
        """Contents are no longer known (a CPU step or another program may come between)."""
        self._held.clear()
        self._spans.clear()


class Allocation(NamedTuple):
    """Allocated rows, which `owner` takes back."""

    start: int
    size: int
    owner: Heap

    def free(self) -> None:
        self.owner.free(self)


class Heap:
    """Rows first..first+rows-1 of ACT, allocated next fit: each time from where the last allocation ended."""

    def __init__(self, rows: int, first: int = 0) -> None:
        self.first = first
        self.rows = rows
        self._live: list[Allocation] = []
        self._next = first

    def take(self, count: int) -> Allocation:
        """The next rows that are free.

        Raises:
            ScratchpadFull: no gap is large enough; so do the other ways to take rows.
        """
        for low in (self._next, self.first):
            for start, end in self._gaps():
                at = max(start, low)
                if at + count <= end:
                    self._next = at + count
                    return self._taken(at, count)
        raise ScratchpadFull(f"{count} rows of ACT, {self.free_rows} free")

    def take_low(self, count: int) -> Allocation:
        """Rows from the start of the largest gap, so that the rest of it stays in one piece."""
        start, end = max(self._gaps(), key=lambda gap: gap[1] - gap[0], default=(0, 0))
        if end - start < count:
            raise ScratchpadFull(f"{count} rows of ACT, {self.free_rows} free")
        return self._taken(start, count)

    def take_at(self, start: int, count: int) -> Allocation:
        """Rows start..start+count-1."""
        if not any(low <= start and start + count <= high for low, high in self._gaps()):
            raise ScratchpadFull(f"rows {start}..{start + count} of ACT are in use")
        return self._taken(start, count)

    def free(self, rows: Allocation) -> None:
        self._live.remove(rows)

    @property
    def free_rows(self) -> int:
        return self.rows - sum(r.size for r in self._live)

    @property
    def largest_gap(self) -> int:
        return max((e - s for s, e in self._gaps()), default=0)

    def _taken(self, start: int, count: int) -> Allocation:
        rows = Allocation(start, count, self)
        insort(self._live, rows, key=_START)
        return rows

    def _gaps(self) -> Iterator[tuple[int, int]]:
        at = self.first
        for rows in self._live:
            if rows.start > at:
                yield at, rows.start
            at = rows.start + rows.size
        if at < self.first + self.rows:
            yield at, self.first + self.rows
