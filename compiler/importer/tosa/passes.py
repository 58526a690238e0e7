"""The NPU's requantiser as a RESCALE, proven: one pass over the sums where one is enough, else several that are added.

The specification multiplies a sum by an integer of 31 bits, adds a half (and in its double rounding another fraction,
away from zero) and shifts. The NPU adds an integer to the sum, multiplies by a float32 of 24 bits and rounds ties to
even. Both never fall as the sum grows, so they are equal for all sums if each byte begins at the same sum: comparing
the sums before and at each of the 255 beginnings proves it.

A pass is clamped to some of the bytes, so it has to be right there only, and it may have any zero point: that moves the
line `factor * sum` by a fraction of a step. Passes that each begin where the last one ends are added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tilewright.compiler.importer.tosa.scaling import Array, Scaling
from tilewright.isa import numerics

LIMIT = 16
"""Passes at most: where it takes more, a RESCALE stays on the CPU."""
INT32 = np.iinfo(np.int32)
_STEPS = np.arange(-3, 4)  # float32 numbers around a factor that are tried
_SHIFTS = np.arange(-1, 3)  # integers around the offset of a sum that are tried
_ZEROS = range(-128, 128, 8)  # zero points that are tried beside the RESCALE's own
_PROBE = 8  # channels by which zero points are compared first


class Pass(Struct, frozen=True):
    """A requantisation `clamp(round((sum + offset) * factor) + zero, low, high)`.

    Attributes:
        zero, low, high: bytes, as the RESCALE's result.
        factors: float32 [channels].
        offsets: int64 [channels].
    """

    zero: int
    low: int
    high: int
    factors: Array
    offsets: Array


def npu_passes(
    scaling: Scaling, least: Array, most: Array, limit: int = LIMIT, biased: bool = True
) -> list[Pass] | str:
    """The passes whose sum, less the byte at which two of them meet, is this RESCALE for all sums of a reach.

    Args:
        least, most: int64 [channels]: the reach of a channel's sums, without the zero point taken away.
        limit: passes at most.
        biased: whether an offset can be added to the sums.

    Returns:
        The passes, the lowest bytes first, or the reason why there are none.
    """
    if scaling.zero:
        return f"RESCALE has the input zero point {scaling.zero}"
    if int(least.min()) < INT32.min or int(most.max()) > INT32.max:
        return "the sums may leave 32 bits"
    if int(scaling.multiplier.min()) <= 0:
        return "a multiplier is 0"
    stored = 128 if scaling.high > 127 else 0  # the machine holds bytes as int8
    moved = replace(scaling, out_zero=scaling.out_zero - stored, low=scaling.low - stored, high=scaling.high - stored)
    search = _Search(moved, least, most)
    zeros = [moved.out_zero, *(z for z in _ZEROS if biased and z != moved.out_zero)]
    shifts = _SHIFTS if biased else np.zeros(1, np.int64)
    if not len(search.results):
        return [
            Pass(scaling.out_zero, scaling.low, scaling.high, search.exact.astype(np.float32), np.zeros_like(least))
        ]
    found: list[Pass] = []
    end = 0
    while end < len(search.results):
        made, end = search.longest(end, zeros, shifts) if len(found) < limit else (None, end)
        if made is None:
            done = f"{len(found)} passes have {end} of {len(search.results)} steps"
            return f"no float32 factors round like its 31-bit multipliers; {done}"
        found.append(replace(made, zero=made.zero + stored, low=made.low + stored, high=made.high + stored))
    return found


class _Search:
    """The search of passes for one RESCALE, whose bytes are those of int8.

    Attributes:
        results: bytes above the lowest, int64 [results].
        first: the least sum of each channel with that byte or a higher one, most + 1 where there is none,
            int64 [results, channels].
    """

    def __init__(self, scaling: Scaling, least: Array, most: Array) -> None:
        self.scaling, self.least, self.most = scaling, least, most
        self.results = np.arange(scaling.low + 1, scaling.high + 1, dtype=np.int64)
        low = np.broadcast_to(least, (len(self.results), len(least))).copy()
        high = np.broadcast_to(most + 1, low.shape).copy()
        while np.any(low < high):
            middle = (low + high) >> 1
            reached = scaling.of(middle) >= self.results[:, None]
            high, low = np.where(reached, middle, high), np.where(reached, low, middle + 1)
        self.first = low
        exact = np.ldexp(scaling.multiplier.astype(np.float64), -scaling.shift.astype(np.int64))
        self.exact = np.broadcast_to(exact, least.shape)

    def longest(self, begin: int, zeros: Sequence[int], shifts: Array) -> tuple[Pass | None, int]:
        """The pass from a byte on with the most bytes, and its end."""
        best, last = self._tried(begin, zeros[0], shifts)
        if last == len(self.results):
            return best, last
        some = np.arange(len(self.least))[:: max(len(self.least) // _PROBE, 1)]
        bounds = {z: begin + int(self._interval(begin, z, shifts, some)[2].max(axis=0).min()) for z in zeros[1:]}
        for z in sorted(bounds, key=lambda z: -bounds[z]):
            if bounds[z] > last:
                made, end = self._tried(begin, z, shifts)
                if end > last:
                    best, last = made, end
        return best, last

    def _interval(self, begin: int, zero: int, shifts: Array, channels: Array) -> tuple[Array, Array, Array]:
        """The effect of real numbers as factors.

        Returns:
            The least and the largest factor with which all bytes from `begin` to one are right, float64
            [results, shifts, channels]; how many bytes have one, int64 [shifts, channels].
        """
        first = self.first[begin:, None, channels]
        offsets = self._offsets(zero, shifts)[:, channels]
        half = (self.results[begin:] - zero - 0.5)[:, None, None]
        above, below = np.full(first.shape, -np.inf), np.full(first.shape, np.inf)
        for sums, reaches, counts in (
            (first, True, first <= self.most[channels]), (first - 1, False, first > self.least[channels])
        ):  # fmt: skip
            x = (sums + offsets).astype(np.float64)
            with np.errstate(divide="ignore"):
                factor = half / x  # infinite where the sum is the zero point, which is right or wrong for any factor
            wrong = counts & (x == 0) & ((half <= 0) != reaches)
            at_least = counts & (x != 0) & ((x > 0) == reaches)
            at_most = counts & (x != 0) & ((x > 0) != reaches)
            above = np.maximum(above, np.where(wrong, np.inf, np.where(at_least, factor, -np.inf)))
            below = np.minimum(below, np.where(at_most, factor, np.inf))
        above, below = np.maximum.accumulate(above, axis=0), np.minimum.accumulate(below, axis=0)
        fits = (offsets + self.least[channels] >= INT32.min) & (offsets + self.most[channels] <= INT32.max)
        return above, below, ((above <= below) & (below > 0)).sum(axis=0) * fits

    def _offsets(self, zero: int, shifts: Array) -> Array:
        """Offsets with which a zero point may take the place of the RESCALE's, int64 [shifts, channels]."""
        away = (self.scaling.out_zero - zero) / self.exact
        return np.asarray(np.floor(away).astype(np.int64) + shifts[:, None])

    def _tried(self, begin: int, zero: int, shifts: Array) -> tuple[Pass | None, int]:
        """The pass with a zero point, by the machine's own arithmetic, and its end."""
        every = np.arange(len(self.least))
        above, below, counts = self._interval(begin, zero, shifts, every)
        common = int(counts.max(axis=0).min())
        if not common:
            return None, begin
        shift, channel = np.nonzero(counts >= common)
        low, high = above[common - 1, shift, channel], below[common - 1, shift, channel]
        exact = self.exact[channel]
        between = np.isfinite(low) & np.isfinite(high)
        middle = exact.copy()
        middle[between] = (low[between] + high[between]) / 2
        near = np.stack([np.clip(exact, low, high), middle]).astype(np.float32).view(np.uint32).astype(np.int64)
        bits = (near[:, None] + _STEPS[:, None]).reshape(-1, 1, len(channel)).astype(np.uint32)
        offset = self._offsets(zero, shifts)[shift, channel]
        first = self.first[begin : begin + common, channel]
        results = self.results[begin : begin + common, None]
        got = [numerics.requantize(sums + offset, bits, zero, -128, 127) for sums in self._inside(first, channel)]
        right = ((got[0] >= results) | (first > self.most[channel])) & (
            (got[1] < results) | (first <= self.least[channel])
        )
        lengths = np.where(right.all(axis=1), common, right.argmin(axis=1))
        factors, offsets, end = np.zeros(len(every), np.float32), np.zeros(len(every), np.int64), common
        for c in every:
            of = np.flatnonzero(channel == c)
            k, pair = np.unravel_index(lengths[:, of].argmax(), (len(bits), len(of)))
            factors[c], offsets[c] = bits[k, 0, of[pair]].view(np.float32), offset[of[pair]]
            end = min(end, int(lengths[k, of[pair]]))
        if not end:
            return None, begin
        made = Pass(zero, int(self.results[begin]) - 1, int(self.results[begin + end - 1]), factors, offsets)
        return made, begin + end

    def _inside(self, first: Array, channel: Array) -> tuple[Array, Array]:
        """The sums at which bytes begin and those before, moved into the reach."""
        return np.minimum(first, self.most[channel]), np.maximum(first - 1, self.least[channel])
