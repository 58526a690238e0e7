"""Operands of the requantiser that are hard to get right: ties, what lies a step beside them, extremes."""

from __future__ import annotations

import functools

import numpy as np

#: Bits of a float32's mantissa.
MANTISSA = 24
_BIAS = 127


def random_operands(count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random and adversarial operands: ties, values one step beside them, extremes of exponents and int32.

    Returns:
        int64 arrays [count]: `acc`, `scale` (float32 patterns), `zero_point`, `low`, `high`, `rounding`.
    """
    acc = rng.integers(-(1 << 31), 1 << 31, count, dtype=np.int64) >> rng.integers(0, 31, count)
    scale = (rng.integers(0, 1 << 23, count) | (rng.integers(100, 140, count) << 23)).astype(np.uint32)
    scale |= (rng.integers(0, 2, count).astype(np.uint32) << 31).astype(np.uint32)
    # Products next to n + 1/2: scale chosen as (n + 1/2) / acc in float32, plus or minus a few steps.
    near = rng.random(count) < 0.6
    target = rng.integers(-140, 140, count) + 0.5 - np.where(rng.random(count) < 0.2, rng.integers(-128, 128, count), 0)
    safe = np.where(acc == 0, 1, acc)
    steps = rng.integers(-3, 4, count)
    close = (target / safe).astype(np.float32).view(np.uint32).astype(np.int64) + steps
    scale = np.where(near, close & 0xFFFFFFFF, scale).astype(np.uint32)
    # Exact ties: acc odd, scale a power of two.
    exact = rng.random(count) < 0.1
    acc = np.where(exact, rng.integers(-600, 600, count), acc)
    scale = np.where(exact, rng.integers(124, 128, count).astype(np.uint32) << 23, scale).astype(np.uint32)
    # Tiny values beside a tie given by the zero point, and extremes.
    wild = rng.random(count) < 0.1
    acc = np.where(
        wild, rng.choice([0, 1, -1, (1 << 31) - 1, -(1 << 31), 1 << 24, (1 << 24) + 1, -((1 << 25) + 3)], count), acc
    )
    scale = np.where(
        wild,
        rng.choice([0, 1, 0x7FFFFF, 0x800000, 0x7F800000, 0x7FFFFFFF, 0xFF800001, 0x80000000, 0x3F7FFFFF], count),
        scale,
    ).astype(np.uint32)
    full = rng.random(count) < 0.8
    return {
        "acc": acc,
        "scale": scale.astype(np.int64),
        "zero_point": rng.integers(-128, 128, count),
        "low": np.where(full, -128, rng.integers(-128, 128, count)),
        "high": np.where(full, 127, rng.integers(-128, 128, count)),
        "rounding": rng.integers(0, 3, count),
    }


def _pattern(mantissa: int, exponent: int) -> int:
    """Returns the float32 of mantissa * 2**exponent, for mantissas of at most 24 bits."""
    length = mantissa.bit_length()
    return (exponent + length - 1 + _BIAS) << (MANTISSA - 1) | (mantissa << (MANTISSA - length)) & 0x7FFFFF


@functools.cache
def beside_ties() -> tuple[tuple[int, int], ...]:
    """Pairs (acc, scale pattern) whose exact product is n + 1/2 in all bits of a float32, and half a step of its last
    place more, and nothing, or one bit, below that. Rounded to float32 it is n + 1/2 (a tie again) or a step above it.

    First those in which acc has the bits (25 to 32 of them, scale is a power of two), then those in which only the
    product has.
    """
    found: list[tuple[int, int]] = []
    for n in (0, 1, 2, 3, 5, 6, 12, 21, 37, 52, 85, 106):
        tie = (2 * n + 1) << (MANTISSA - (2 * n + 1).bit_length())  # (n + 1/2) * 2**places
        places = MANTISSA - (2 * n + 1).bit_length() + 1
        for room in range(8):
            for low in [0, *(1 << bit for bit in range(room - 1)), *([(1 << room) - 1] if room else [])]:
                acc = (tie << room) + (1 << room >> 1) + low
                if acc < 1 << 31:
                    found.append((acc, _pattern(1, -places - room)))
        found += _products(tie, places)
    return tuple(found + [(-acc, scale) for acc, scale in found])


def _products(tie: int, places: int) -> list[tuple[int, int]]:
    """Returns the two factors of 24 bits that give 2 * tie + 1, shifted to 47 or 48 bits, plus one bit or none."""
    wanted, found = 2 * tie + 1, []
    for shift in (MANTISSA - 2, MANTISSA - 1):  # of the product's 47 or 48 bits
        product = wanted << shift
        first = np.arange(max(1 << 23, -(-product // (1 << 24))) | 1, 1 << 24, 2, dtype=np.int64)
        second = -(-product // first)
        rest = first * second - product  # 0 <= rest < first
        single = (rest & (rest - 1) == 0) & (second < 1 << 24)
        for bit in np.unique(rest[single]):
            one = np.flatnonzero(single & (rest == bit))[0]
            found.append((int(first[one]), _pattern(int(second[one]), -places - 1 - shift)))
    return found


def carries(count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Pairs (acc, scale pattern) whose product lies so little below a power of two that it is rounded to it: all bits
    of the mantissa carry. From tiny products, all of which is lost, to such as saturate; half of them are negative."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        first = int(rng.integers(1 << (MANTISSA - 1), 1 << MANTISSA))
        power = 2 * MANTISSA - 1
        second = ((1 << power) - 1) // first
        if second < 1 << MANTISSA and (1 << power) - first * second <= 1 << (power - MANTISSA - 1):
            sign = -1 if len(found) % 2 else 1
            found.append((sign * first, _pattern(second, int(rng.integers(-36, 11)) - power)))
    return found
