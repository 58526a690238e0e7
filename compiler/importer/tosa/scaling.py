"""RESCALE's arithmetic by TOSA's specification."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

Array = np.ndarray


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
        return replace(self, low=low, high=high)

    def of(self, x: Array) -> Array:
        """The result for integers, int64; the last axis of x counts channels if there are several multipliers."""
        y = apply_scale(np.asarray(x, np.int64) - self.zero, self.multiplier, self.shift, self.double) + self.out_zero
        return np.asarray(np.clip(y, self.low, self.high))


def apply_scale(value: Array, multiplier: Any, shift: Any, double: bool) -> Array:
    """TOSA's `apply_scale_32` and, with small multipliers, `apply_scale_16`, on int64."""
    m, s = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    rounding = np.int64(1) << (s - 1)
    if double:
        rounding = rounding + np.where(s > 31, np.where(value >= 0, 1 << 30, -(1 << 30)), 0)
    return np.asarray((value * m + rounding) >> s)
