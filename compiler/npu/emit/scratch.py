"""Allocation of scratchpad rows during emission: a heap for ACT, rings for the other scratchpads.

Nothing here waits: rows are handed out again as soon as their last use is behind in program order, and the semaphores
(`hazards.py`) make the machine keep to that. Rows are handed out in rotation, so that a wait is mostly for something
long done.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


class ScratchpadFull(Exception):
    """Raised where there is no room; the caller tries smaller tiles or keeps less on the chip."""


class Ring:
    """Rows of a scratchpad that are handed out in rotation. What was put under a key is found again until its rows
    are handed out anew.

    Args:
        rows: size.
        align: every allocation starts at a multiple.
    """

    def __init__(self, rows: int, align: int = 1) -> None:
        self.rows = rows
        self.align = align
        self._next = 0
        self._held: dict[Hashable, tuple[int, int]] = {}

    def find(self, key: Hashable) -> int | None:
        """First row of what was put under a key, None if it is no longer there."""
        held = self._held.get(key)
        return None if held is None else held[0]

    def take(self, count: int, key: Hashable | None = None) -> int:
        """`count` rows, forgetting whatever was held there."""
        if count > self.rows:
            raise ScratchpadFull(f"{count} rows of {self.rows}")
        start = -(-self._next // self.align) * self.align
        if start + count > self.rows:
            start = 0
        self._next = start + count
        end = start + count
        for gone in [k for k, (s, e) in self._held.items() if s < end and start < e]:
            del self._held[gone]
        if key is not None:
            self._held[key] = (start, end)
        return start

    def forget(self) -> None:
        """Contents are no longer known (a CPU step or another program may come between)."""
        self._held.clear()


@dataclass(frozen=True)
class Allocation:
    """Allocated rows, which `owner` takes back."""

    start: int
    count: int
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
        gaps = self._gaps()
        for low in (self._next, self.first):
            for start, end in gaps:
                at = max(start, low)
                if at + count <= end:
                    rows = Allocation(at, count, self)
                    self._live.append(rows)
                    self._live.sort(key=lambda r: r.start)
                    self._next = at + count
                    return rows
        raise ScratchpadFull(f"{count} rows of ACT, {self.free_rows} free")

    def take_low(self, count: int) -> Allocation:
        """Rows from the start of the largest gap, so that the rest of it stays in one piece."""
        start, end = max(self._gaps(), key=lambda gap: gap[1] - gap[0], default=(0, 0))
        if end - start < count:
            raise ScratchpadFull(f"{count} rows of ACT, {self.free_rows} free")
        rows = Allocation(start, count, self)
        self._live.append(rows)
        self._live.sort(key=lambda r: r.start)
        return rows

    def take_at(self, start: int, count: int) -> Allocation:
        """Rows start..start+count-1."""
        if not any(low <= start and start + count <= high for low, high in self._gaps()):
            raise ScratchpadFull(f"rows {start}..{start + count} of ACT are in use")
        rows = Allocation(start, count, self)
        self._live.append(rows)
        self._live.sort(key=lambda r: r.start)
        return rows

    def free(self, rows: Allocation) -> None:
        self._live.remove(rows)

    @property
    def free_rows(self) -> int:
        return self.rows - sum(r.count for r in self._live)

    @property
    def largest_gap(self) -> int:
        return max((e - s for s, e in self._gaps()), default=0)

    def _gaps(self) -> list[tuple[int, int]]:
        gaps, at = [], self.first
        for rows in self._live:
            if rows.start > at:
                gaps.append((at, rows.start))
            at = rows.start + rows.count
        if at < self.first + self.rows:
            gaps.append((at, self.first + self.rows))
        return gaps
