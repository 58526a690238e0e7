"""RESCALE's arithmetic by TOSA's specification, and the proof that the NPU's requantiser does the same.

The specification multiplies by an integer of 31 bits and shifts; the NPU multiplies by a float32 of 24 bits and rounds
ties to even. Both never fall as the sum grows. So they are equal for every sum if they reach each byte at the same
sum: `npu_factor` compares the 255 thresholds of a channel, which proves it for all int32 (or all that can be reached).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from tilewright.isa import numerics

Array = np.ndarray
_STEPS = (0, 1, -1, 2, -2, 3, -3)  # float32 numbers around the factor that are tried
INT32 = np.iinfo(np.int32)


class Scaling(Struct, frozen=True):
    """A RESCALE: `((x - zero) * multiplier + round) >> shift`, plus `out_zero`, clamped to `low`..`high`.

    Attributes:
        multiplier, shift: int64, of one element or one per channel (the last axis).
        zero, out_zero: zero points.
        low, high: limits of the result: those of its type, or closer ones of a CLAMP behind it.
        double: rounds twice where the shift is above 31.
    """

    multiplier: Array
    shift: Array
    zero: int
    out_zero: int
    low: int
    high: int
    double: bool = False

    def clamped(self, low: int, high: int) -> Scaling:
        """The same with closer limits."""
        low, high = min(max(self.low, low), high), max(min(self.high, high), low)
        return Scaling(self.multiplier, self.shift, self.zero, self.out_zero, low, high, self.double)

    def of(self, x: Array, channel: int | None = None) -> Array:
        """The result for integers, int64; of one channel or of tensors whose last axis counts channels."""
        m, s = (v if channel is None or v.size == 1 else v[channel] for v in (self.multiplier, self.shift))
        y = apply_scale(np.asarray(x, np.int64) - self.zero, m, s, self.double) + self.out_zero
        return np.asarray(np.clip(y, self.low, self.high))


def apply_scale(value: Array, multiplier: Any, shift: Any, double: bool) -> Array:
    """TOSA's `apply_scale_32` and, with small multipliers, `apply_scale_16`, on int64."""
    m, s = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    rounding = np.int64(1) << (s - 1)
    if double:
        rounding = rounding + np.where(s > 31, np.where(value >= 0, 1 << 30, -(1 << 30)), 0)
    return np.asarray((value * m + rounding) >> s)


def npu_factors(scaling: Scaling, channels: int, least: Array, most: Array) -> Array | str:
    """The float32 factors with which the NPU's requantiser is this RESCALE, proven for sums from `least` to `most`.

    Args:
        channels: channels of the sums.
        least, most: int64 [channels]: the reach of a channel's sums, without the zero point taken away.

    Returns:
        float32 [channels], or the reason why there are none.
    """
    if scaling.zero:
        return f"RESCALE has the input zero point {scaling.zero}"
    if min(int(least.min()), INT32.min) < INT32.min or int(most.max()) > INT32.max:
        return "the sums may leave 32 bits"
    found = np.zeros(channels, np.float32)
    for channel in range(channels):
        factor = _factor(scaling, channel, int(least[channel]), int(most[channel]))
        if factor is None:
            return f"no float32 factor rounds like the 31-bit multiplier of channel {channel}"
        found[channel] = factor
    return found


def _factor(scaling: Scaling, channel: int, least: int, most: int) -> np.float32 | None:
    """A factor of one channel, None if there is none near the exact one."""
    at = 0 if scaling.multiplier.size == 1 else channel
    multiplier, shift = int(scaling.multiplier[at]), int(scaling.shift[at])
    if multiplier <= 0:
        return None
    # At the limits of 8 bits the machine clamps, so thresholds outside low..high do not count.
    results = np.arange(scaling.low + 1, scaling.high + 1, dtype=np.int64)
    reach = thresholds(scaling, channel, results, least, most)
    inside = np.concatenate([reach, reach - 1, [least, most]])
    inside = np.unique(inside[(inside >= least) & (inside <= most)])
    want = scaling.of(inside, channel)
    nearest = np.float32(np.ldexp(float(multiplier), -shift))
    shifted = 128 if scaling.low >= 0 and scaling.high > 127 else 0  # the machine holds bytes as int8
    for step in _STEPS:
        bits = np.uint32(int(nearest.view(np.uint32)) + step)
        got = numerics.requantize(
            inside, bits, scaling.out_zero - shifted, scaling.low - shifted, scaling.high - shifted
        )
        if np.array_equal(got.astype(np.int64) + shifted, want):
            return np.float32(bits.view(np.float32))
    return None


def thresholds(scaling: Scaling, channel: int, results: Array, least: int, most: int) -> Array:
    """The least sum with each result or a higher one, by bisection; most + 1 where there is none."""
    low, high = np.full(results.shape, least, np.int64), np.full(results.shape, most + 1, np.int64)
    while np.any(low < high):
        middle = (low + high) >> 1
        reached = scaling.of(middle, channel) >= results
        high, low = np.where(reached, middle, high), np.where(reached, low, middle + 1)
    return low
