"""Sums in ACC: their rows, which are taken in rotation around the sums that are alive."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass

from tilewright.compiler.npu.emit.context import Context
from tilewright.kernel.errors import KernelError, Line


@dataclass(eq=False)
class Sums:
    """Sums in ACC: int32 for each channel of some channel blocks, rows and columns.

    Attributes:
        line: the user's line that made them.
        size: channel blocks, rows and columns.
        vector: first vector of ACC.
        strides: vectors of ACC from one column, row and group of channel blocks to the next.
        slices: channel blocks side by side in a row of ACC.
        span: first row of ACC and the one behind the last.
        first_block: number of the first channel block, which selects biases and scales.
    """

    line: Line
    size: tuple[int, int, int]
    vector: int
    strides: tuple[int, int, int]
    slices: int
    span: tuple[int, int]
    first_block: int

    def __repr__(self) -> str:
        return f"the sums of {self.line}, {self.size[0]} x {self.size[1]} x {self.size[2]}"


class Accumulators:
    """Rows of ACC for sums that are alive: those that a name has."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._alive: weakref.WeakSet[Sums] = weakref.WeakSet()

    def add(self, sums: Sums) -> None:
        """Notes sums, which keep their rows while they are alive."""
        self._alive.add(sums)

    def take(self, count: int) -> int:
        """Returns the first of `count` rows that no living sums are in.

        Raises:
            KernelError: there is no such gap.
        """
        ring, rows = self._context.accumulators, self._context.accumulators.rows
        spans = sorted(sums.span for sums in self._alive)
        gaps = [b[0] - a[1] for a, b in itertools.pairwise([(0, 0), *spans, (rows, rows)])]
        held = "; ".join(f"{s!r} has {s.span[1] - s.span[0]}" for s in self._alive) or "no others are alive"
        if count > max(gaps):
            raise KernelError(
                f"{count} rows of sums do not fit the {rows} of ACC: {held} (sums live while a name has them)"
            )
        for _ in range(2 * len(spans) + 2):
            at = ring.take(count)
            over = max((end for first, end in spans if first < at + count and at < end), default=None)
            if over is None:
                return at
            ring.seek(over)
        raise KernelError(f"{count} rows of sums do not fit between the sums that are alive: {held}")
