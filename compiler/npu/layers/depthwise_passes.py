"""In which order the array's window mode takes the taps of a depthwise convolution.

The window is a shift register of block_in vectors. A band of input rows is pushed column by column, so one column of
h pushes yields several outputs and all of them use the same tap positions: tap (ky, kx) sits
(columns to the newest) * h + (rows to the newest) pushes back. A 3x3 at stride 1 with h = 6 costs 6 pushes for 4
outputs of 16 channels. Where the window has delay lines, a column of taps lies in each of its segments and the lines
make up for the rest of h, which can be long: 16 pushes for 14 outputs. Kernels that do not fit the window are cut into
groups of taps that accumulate; with a stride, taps of one parity form a group so that only every second vector is
pushed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from compiler.npu.layers.sliding_window import SlidingWindow
from isa.config import NpuConfig

#: Largest values of DEPTHWISE's start and step fields.
_MAX_START, _MAX_STEP = 63, 15


class TapGroup(NamedTuple):
    """Taps of one axis that share a pass: first, first + every, ... (`taps` of them).

    Attributes:
        push: input positions between neighbouring pushes.
        lag: pushes between neighbouring taps.
        emit: pushes between neighbouring outputs.
    """

    first: int
    every: int
    taps: int
    push: int
    lag: int
    emit: int

    @property
    def reach(self) -> int:
        """Pushes from the oldest to the newest tap."""
        return (self.taps - 1) * self.lag

    def pushes(self, outputs: int) -> int:
        """Pushes that so many outputs take."""
        return (outputs - 1) * self.emit + self.reach + 1


@dataclass(frozen=True)
class Slots:
    """The machine's window.

    Attributes:
        count: vectors it multiplies.
        segment: those between two delay lines.
        longest: pushes by which a line delays at most; 0 = there are none.
    """

    count: int
    segment: int
    longest: int

    @classmethod
    def of(cls, config: NpuConfig) -> Slots:
        return cls(config.block_in, config.window_segment, config.window_delay)

    def height(self, rows: TapGroup, columns: TapGroup) -> int | None:
        """Most pushes in a column, None if nothing limits them; less than `rows.reach` if these taps do not fit."""
        if columns.reach == 0:
            return None if rows.reach < self.count else 0
        together = (self.count - 1 - rows.reach) // columns.reach
        others = columns.taps - 1
        # A column of taps may begin that many slots later in its segment than the one before.
        later = min(self.segment - 1 - rows.reach, self.count - 1 - rows.reach - others * self.segment) // others
        apart = (self.segment + self.longest + later) // columns.lag if self.longest and later >= 0 else 0
        return max(together, apart)

    def delay(self, rows: TapGroup, columns: TapGroup, height: int) -> int:
        """What a line has to delay by if a column has `height` pushes."""
        if columns.reach * height + rows.reach < self.count:
            return 0
        return min(columns.lag * height - self.segment, self.longest)

    def slot(self, rows: TapGroup, columns: TapGroup, height: int, row: int, column: int) -> int:
        """Of the tap that is so many taps before the newest."""
        return column * (columns.lag * height - self.delay(rows, columns, height)) + row * rows.lag


class WindowPass(NamedTuple):
    """One group of rows with one group of columns; `strip` output rows per column of pushes."""

    rows: TapGroup
    columns: TapGroup
    strip: int


def _axis_options(kernel: int, stride: int, dilation: int) -> Iterator[list[TapGroup]]:
    """Ways to cut the taps of one axis into groups."""
    if stride <= _MAX_STEP:
        for parts in range(1, kernel + 1):
            size = -(-kernel // parts)
            yield [TapGroup(f, 1, min(size, kernel - f), 1, dilation, stride) for f in range(0, kernel, size)]
    if stride > 1:
        every = stride // math.gcd(stride, dilation)
        lag = every * dilation // stride
        for most in range(1, -(-kernel // every) + 1):
            groups = []
            for residue in range(min(every, kernel)):
                taps = list(range(residue, kernel, every))
                groups += [
                    TapGroup(taps[i], every, len(taps[i : i + most]), stride, lag, 1) for i in range(0, len(taps), most)
                ]
            yield groups
    elif dilation > 1 or kernel > 1:
        yield [TapGroup(t, 1, 1, 1, 1, 1) for t in range(kernel)]


@functools.lru_cache(maxsize=1024)
def plan_passes(slots: Slots, window: SlidingWindow, out: tuple[int, int]) -> tuple[tuple[WindowPass, ...], int]:
    """The cheapest passes for a band of `out` rows and columns, and their pushes per channel block."""
    kernel, stride, dilation = window.kernel, window.stride, window.dilation
    best: tuple[tuple[WindowPass, ...], int] | None = None
    for rows in _axis_options(kernel[0], stride[0], dilation[0]):
        for columns in _axis_options(kernel[1], stride[1], dilation[1]):
            passes, total = [], 0
            for r in rows:
                for c in columns:
                    choice = _best_strip(slots, r, c, out)
                    if choice is None:
                        break
                    passes.append(WindowPass(r, c, choice[0]))
                    total += choice[1]
                else:
                    continue
                break
            else:
                if best is None or total < best[1]:
                    best = tuple(passes), total
    assert best is not None  # single taps always fit
    return best


def _best_strip(slots: Slots, r: TapGroup, c: TapGroup, out: tuple[int, int]) -> tuple[int, int] | None:
    """(output rows per column of pushes, pushes) of the cheapest pass, None if these taps do not fit the window.

    A plane in n strips takes rows * emit + n * (reach + 1 - emit) pushes per column, and 2 more for each strip.
    """
    if r.reach > _MAX_START or c.reach > _MAX_START:
        return None
    longest = slots.height(r, c)  # pushes of a column that fit
    if longest is None:
        longest = r.pushes(out[0])
    if longest < r.pushes(1):
        return None
    most = min(out[0], (longest - r.reach - 1) // r.emit + 1)
    columns = c.pushes(out[1])
    per_strip = (r.reach + 1 - r.emit) * columns + 2
    strips = -(-out[0] // most) if per_strip > 0 else out[0]
    return -(-out[0] // strips), out[0] * r.emit * columns + strips * per_strip
