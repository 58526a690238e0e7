"""Norms of rows in integers: the statistics that ROW keeps with MOMENTS and POWER, and the results of NORM.

With n elements u = q + 128 of a row, S their sum and Q the sum of their squares, n * Q - S**2 is n**2 times the
variance, exactly. Everything behind that is a root and two quotients, bit by bit as registers compute them, so that
their results have one definition also where no compiled program gets.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tilewright.isa.numerics import Array, quotient, scale_value, wrap32
from tilewright.isa.row_bits import (
    BIAS_FRACTION,
    COUNT_BITS,
    EPSILON_FRACTION,
    FACTOR_BITS,
    MEAN_BITS,
    MEAN_FRACTION,
    RADICAND_BITS,
    ROOT_BITS,
    SHIFTS,
    SQUARES_BITS,
    SUM_FRACTION,
    TOTAL_BITS,
)

#: A row's factor is 2**(FACTOR_SCALE - exponent) / sqrt(n**2 * variance).
FACTOR_SCALE = 42
#: Average relative error of truncated factors: log-uniform between 2**22 and 2**23, half a bit.
TRUNCATION = 0.5 * 2.0**-23 / math.log(2)
#: Elements of a row for which no sum is too large.
MAX_COUNT = 4096


class RowNorm(NamedTuple):
    """STAT of a row: NORM starts from `(q * factor + offset) * 2**exponent`.

    Attributes:
        factor: FACTOR_BITS bits.  offset: int32.  exponent: 0 to SHIFTS.
    """

    factor: int
    offset: int
    exponent: int


def mean_of(total: int, count: int) -> int:
    """total / count with MEAN_FRACTION bits of a fraction, truncated; below 256 in compiled programs.

    The remainder's register has COUNT_BITS bits and starts with the bits of the total above the lowest 8.
    """
    rest, mean = total >> 8, 0
    low = (total & 0xFF) << MEAN_FRACTION
    for place in reversed(range(MEAN_BITS)):
        rest = rest << 1 | (low >> place & 1)
        fits = rest >= count
        mean = mean << 1 | fits
        rest = (rest - count if fits else rest) & ((1 << COUNT_BITS) - 1)
    return mean


def row_norm(squares: int, total: int, count: int, epsilon: int, centred: bool) -> RowNorm:
    """The statistics that MOMENTS (`centred`) and POWER keep of a row.

    Args:
        squares, total: sums of the fields of the row's words; 28 and 20 bits of them count.
        count: elements of the row, 13 bits.
        epsilon: int32 and EPSILON_FRACTION bits of a fraction, added to count**2 times the variance (the mean of
            squares). The highest RADICAND_BITS of the shifted sum count.
    """
    squares, total, count = squares % (1 << SQUARES_BITS), total % (1 << TOTAL_BITS), count % (1 << COUNT_BITS)
    variance = count * squares - (total * total if centred else 0)
    radicand = ((variance << EPSILON_FRACTION) + epsilon) % (1 << RADICAND_BITS + EPSILON_FRACTION)
    exponent = 0
    for _ in range(SHIFTS):
        if radicand >> (RADICAND_BITS + EPSILON_FRACTION - 2) == 0:
            radicand <<= 2
            exponent += 1
    # The lowest bit is set, so that the reciprocal of a power of two does not need a bit more.
    root = math.isqrt(radicand >> EPSILON_FRACTION << (2 * ROOT_BITS - RADICAND_BITS)) | 1
    factor = quotient(1 << 33, root << 10) % (1 << FACTOR_BITS)  # 2**48 / root
    # To nearest, so that nothing is added in a row of equal elements.
    product = (mean_of(total, count) - (128 << MEAN_FRACTION)) * factor
    offset = ~((product - (1 << MEAN_FRACTION - 1)) >> MEAN_FRACTION)
    return RowNorm(factor, int(wrap32(offset)), exponent)


def normalise(values: Any, row: RowNorm, bias: Any, scale: Any, zero_point: Any, low: Any, high: Any) -> Array:
    """NORM: `clamp(RNE(f32(f32(q*factor + offset) * scale * 2**exponent) + bias * 2**-23) + zero_point, low, high)`.

    A larger magnitude of the product counts as 2**8 to 2**9, by its mantissa; below 2**-26 only zero or not counts.

    Args:
        values: int8.
        bias: int32, with BIAS_FRACTION bits of a fraction.  scale: uint32 float32 patterns.
        zero_point, low, high: int8 range.

    Returns:
        int8 array. Where `low` exceeds `high` the result is `high`.
    """
    start = wrap32(np.asarray(values, np.int64) * row.factor + row.offset)
    mantissa, power = np.frexp(start.astype(np.float32).astype(np.float64) * scale_value(scale))
    rounded = np.abs(mantissa.astype(np.float32)).astype(np.float64)
    exact = np.ldexp(rounded, np.minimum(power + row.exponent, 9) + SUM_FRACTION)
    fixed = np.floor(exact).astype(np.int64)
    fixed |= fixed != exact
    total = np.where(mantissa < 0, -fixed, fixed) + (np.asarray(bias, np.int64) << (SUM_FRACTION - BIAS_FRACTION))
    whole, rest, half = total >> SUM_FRACTION, total & ((1 << SUM_FRACTION) - 1), 1 << (SUM_FRACTION - 1)
    y = whole + ((rest > half) | ((rest == half) & (whole & 1 == 1))) + zero_point
    clamped: Array = np.minimum(np.maximum(y, low), high)
    return clamped.astype(np.int8)
