"""The order in which the array's window mode takes the taps of a depthwise convolution.

The window is a shift register of block_in vectors. A band of the input is pushed line by line, a line being a piece of
a column or of a row, so one line of h pushes yields several outputs and all of them use the same tap positions: a tap
sits (lines to the newest) * h + (places in the line to the newest) pushes back. A 3x3 at stride 1 with h = 6 costs 6
pushes for 4 outputs of 16 channels. Where the window has delay lines, a line of taps lies in each of its segments and
the delay lines make up for the rest of h, which can be long: 16 pushes for 14 outputs. Kernels that do not fit the
window are cut into groups of taps that accumulate; with a stride, taps of one parity form a group so that only every
second vector is pushed.

Where lines go from padding to padding, that behind a line is that before the next one as well, and is pushed once: 15
pushes for 14 outputs. Before the first line nothing was pushed; what its padding adds to the first outputs follows as
an instruction of its own (`WindowPass.missing`).

Where pushes go in pairs (`window_pairs`), one without output costs half a step if the next vector of the line lies in
another bank of ACT, as it does along rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tilewright.compiler.npu.layers.sliding_window import SlidingWindow
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import window_line_steps

#: Largest values of DEPTHWISE's start and step fields.
_MAX_START, _MAX_STEP = 63, 15


class TapGroup(NamedTuple):
    """Taps of one axis that share a pass: first, first + every, ... (`taps` of them).

    Attributes:
        first: first tap.
        every: distance between neighbouring taps in the kernel.
        taps: number of taps.
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
        """The pushes from the oldest to the newest tap."""
        return (self.taps - 1) * self.lag

    def pushes(self, outputs: int) -> int:
        """Returns the number of pushes for `outputs` outputs."""
        return (outputs - 1) * self.emit + self.reach + 1

    def steps(self, outputs: int, shared: int, emits: bool) -> int:
        """Returns the steps of a line of pushes for `outputs` outputs, made in pairs.

        Args:
            shared: pushes of padding that the line before made.
            emits: the line has outputs, else it is one that others need.
        """
        return window_line_steps(self.pushes(outputs) - shared, self.reach - shared, self.emit, emits, alone=False)


class Slots(Struct, frozen=True):
    """The machine's window.

    Attributes:
        count: vectors it multiplies.
        segment: vectors between two delay lines.
        longest: largest number of pushes that a line delays by; 0 without delay lines.
        banks: banks of ACT that two pushes of a step must lie in different ones of; 1 without pairs.
    """

    count: int
    segment: int
    longest: int
    banks: int = 1

    @classmethod
    def of(cls, config: NpuConfig) -> Slots:
        """Returns the window of a machine."""
        banks = config.act_banks if config.window_pairs else 1
        return cls(config.block_in, config.window_segment, config.window_delay, banks)

    def length(self, along: TapGroup, across: TapGroup) -> int | None:
        """Returns the largest number of pushes in a line, None without a limit.

        It is less than `along.reach` if the taps do not fit the window.
        """
        if across.reach == 0:
            return None if along.reach < self.count else 0
        together = (self.count - 1 - along.reach) // across.reach
        others = across.taps - 1
        # A line of taps may begin that many slots later in its segment than the one before.
        later = min(self.segment - 1 - along.reach, self.count - 1 - along.reach - others * self.segment) // others
        apart = (self.segment + self.longest + later) // across.lag if self.longest and later >= 0 else 0
        return max(together, apart)

    def delay(self, along: TapGroup, across: TapGroup, length: int) -> int:
        """Returns the pushes that a delay line delays by, for lines of `length` pushes."""
        if across.reach * length + along.reach < self.count:
            return 0
        return min(across.lag * length - self.segment, self.longest)

    def slot(self, along: TapGroup, across: TapGroup, length: int, back: int, lines: int) -> int:
        """Returns the window slot of a tap.

        Args:
            along, across: taps along and across the lines.
            length: pushes of a line.
            back, lines: taps along, and taps across, from the newest tap to this one.
        """
        return lines * (across.lag * length - self.delay(along, across, length)) + back * along.lag


class Pads(NamedTuple):
    """Padding of a box of the input along an axis.

    Attributes:
        before, behind: vectors before its first and behind its last vector.
    """

    before: int
    behind: int


#: No padding that is pushed once for two lines.
NO_PADS = (Pads(0, 0), Pads(0, 0))


class WindowPass(NamedTuple):
    """One group of taps along the lines of pushes with one group across them.

    Attributes:
        along, across: the taps.
        axis: axis of the lines: 0 = they are pieces of columns, 1 = of rows.
        strip: outputs per line of pushes.
        shared: pushes of padding behind a line that also serve as those before the next one.
    """

    along: TapGroup
    across: TapGroup
    axis: int
    strip: int
    shared: int = 0

    @property
    def rows(self) -> TapGroup:
        """The taps along columns."""
        return (self.along, self.across)[self.axis]

    @property
    def columns(self) -> TapGroup:
        """The taps along rows."""
        return (self.across, self.along)[self.axis]

    def length(self, outputs: int) -> int:
        """Returns the pushes of a line for `outputs` outputs."""
        return self.along.pushes(outputs) - self.shared

    def missing(self) -> np.ndarray:
        """Returns the taps that lie in padding not pushed before the first line, bool [outputs, taps].

        The outputs are those of the first line that miss some taps.
        """
        return _missing(self.shared, self.along)


@functools.cache
def _missing(shared: int, along: TapGroup) -> np.ndarray:
    outputs, taps = np.arange(-(-shared // along.emit))[:, None], np.arange(along.taps)
    found: np.ndarray = outputs * along.emit + taps * along.lag < shared
    return found


def _axis_options(kernel: int, stride: int, dilation: int) -> Iterator[list[TapGroup]]:
    """Yields the ways to cut the taps of one axis into groups."""
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


@functools.lru_cache(maxsize=4096)
def plan_passes(
    slots: Slots, window: SlidingWindow, out: tuple[int, int], pads: tuple[Pads, Pads] = NO_PADS
) -> tuple[tuple[WindowPass, ...], int]:
    """Returns the cheapest passes for a band of `out` rows and columns, and their pushes per channel block.

    Args:
        slots: the machine's window.
        window: the sliding window of the layer.
        out: rows and columns of the output.
        pads: padding of the band's input along columns and rows that may be pushed once for two lines.
    """
    kernel, stride, dilation = window.kernel, window.stride, window.dilation
    best: tuple[tuple[WindowPass, ...], int] | None = None
    for axis in (0, 1):
        other = 1 - axis
        extent = window.extent(*out)[axis]
        all_across = [*_axis_options(kernel[other], stride[other], dilation[other])]
        for along in _axis_options(kernel[axis], stride[axis], dilation[axis]):
            shared = [_shared(group, out[axis], dilation[axis], extent, pads[axis]) for group in along]
            for across in all_across:
                if best is not None and len(along) * len(across) * out[0] * out[1] >= best[1]:
                    continue  # a push makes one output of a pass at most
                passes, total = [], 0
                for group, once in zip(along, shared, strict=True):
                    for lines in across:
                        # Rows between pushes in ACT, if the plane has no more columns than the band needs.
                        apart = group.push * (1 if axis else window.extent(*out)[1])
                        size = out[axis], out[other]
                        choice = _best_pass(slots, group, lines, axis, size, once, apart % slots.banks != 0)
                        if choice is None:
                            break
                        passes.append(choice[0])
                        total += choice[1]
                        if best is not None and total >= best[1]:
                            break
                    else:
                        continue
                    break
                else:
                    if best is None or total < best[1]:
                        best = tuple(passes), total
    assert best is not None  # single taps always fit
    return best


def _shared(along: TapGroup, outputs: int, dilation: int, extent: int, pads: Pads) -> int:
    """Returns the pushes at the end of a line that can also serve as those before the next line.

    Both are padding, and they are no more than the outputs of one line miss.

    Args:
        extent: vectors of the input along the line, padding included.
    """
    first, pushes = along.first * dilation, along.pushes(outputs)
    before = -(-(pads.before - first) // along.push)
    behind = pushes - max(0, -(-(extent - pads.behind - first) // along.push))
    return max(0, min(before, behind, along.reach, outputs * along.emit))


def _best_pass(
    slots: Slots, along: TapGroup, across: TapGroup, axis: int, out: tuple[int, int], shared: int, pairs: bool
) -> tuple[WindowPass, int] | None:
    """Returns the cheapest pass over `out` outputs along and across, and its steps; None if these taps do not fit.

    Args:
        pairs: pushes are made in pairs.
    """
    strip = _best_strip(slots, along, across, out, pairs)
    best = None if strip is None else (WindowPass(along, across, axis, strip[0]), strip[1])
    if shared and max(along.reach, across.reach) <= _MAX_START:
        whole = WindowPass(along, across, axis, out[0], shared)
        longest = slots.length(along, across)
        steps = _steps(along, across, out, shared, pairs) + 2 + len(whole.missing()) * shared
        fits = longest is None or along.reach < whole.length(out[0]) <= longest
        if fits and (best is None or steps < best[1]):
            best = whole, steps
    return best


def _steps(along: TapGroup, across: TapGroup, out: tuple[int, int], shared: int, pairs: bool) -> int:
    """Returns the steps of a strip of `out` outputs along and across."""
    lines = across.pushes(out[1])
    if not pairs:
        return lines * (along.pushes(out[0]) - shared)
    return out[1] * along.steps(out[0], shared, True) + (lines - out[1]) * along.steps(out[0], shared, False)


def _best_strip(
    slots: Slots, along: TapGroup, across: TapGroup, out: tuple[int, int], pairs: bool = False
) -> tuple[int, int] | None:
    """Returns the (outputs per line of pushes, steps) of the cheapest pass; None if these taps do not fit the window.

    A plane in n strips takes lines * emit + n * (reach + 1 - emit) pushes per line, and 2 more for each strip.
    """
    if along.reach > _MAX_START or across.reach > _MAX_START:
        return None
    longest = slots.length(along, across)  # pushes of a line that fit
    if longest is None:
        longest = along.pushes(out[0])
    if longest < along.pushes(1):
        return None
    most = min(out[0], (longest - along.reach - 1) // along.emit + 1)
    lines = across.pushes(out[1])
    per_strip = (along.reach + 1 - along.emit) * lines + 2
    strips = -(-out[0] // most) if per_strip > 0 else out[0]
    if pairs:
        sizes = {-(-out[0] // min(strips + more, out[0])) for more in (0, 1, out[0])}
        return min(((size, _steps_of_strips(along, across, out, size)) for size in sorted(sizes)), key=lambda s: s[1])
    return -(-out[0] // strips), out[0] * along.emit * lines + strips * per_strip


def _steps_of_strips(along: TapGroup, across: TapGroup, out: tuple[int, int], size: int) -> int:
    """Returns the steps of strips of `size` outputs along the lines, made in pairs."""
    full, rest = divmod(out[0], size)
    steps = full * (_steps(along, across, (size, out[1]), 0, True) + 2)
    return steps + (_steps(along, across, (rest, out[1]), 0, True) + 2 if rest else 0)
