"""The arithmetic of 16-bit results, as VECTOR_WIDE makes them: one function per rule, as in
`tilewright.isa.numerics`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.isa.instructions import WideByte
from tilewright.isa.numerics import Array, litert_multiplier, wrap32
from tilewright.isa.wide_bits import WIDE_BIAS_BIT, WIDE_SHIFT_BIT


def wide_multiplier(real: float) -> tuple[int, int]:
    """A factor as LiteRT applies it to 64-bit sums: 15 bits of a multiplier, and the right shift behind it.

    It is rounded twice, like in LiteRT: to 31 bits (`litert_multiplier`), then to 15.
    """
    q, exponent = litert_multiplier(real)
    return ((q + (1 << 15)) >> 16 if q < 0x7FFF0000 else 0x7FFF), 15 - exponent


def requantize_wide(acc: Any, multiplier: Any, shift: Any, low: int, high: int) -> Array:
    """Sums of 16-bit activations and 8-bit weights to int16: `clamp((acc * m + 2^(t-1)) >> t, low, high)`.

    LiteRT's `MultiplyByQuantizedMultiplier` of 64 bits, which its reference convolutions use.

    Args:
        acc: int64 below 2^47, bias included.
        multiplier, shift: m and t of `wide_multiplier`, t from 8 to 46.
    """
    m, t = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    y = (np.asarray(acc, np.int64) * m + (np.int64(1) << (t - 1))) >> t
    return np.asarray(np.clip(y, low, high), np.int16)


def requantize_wide_product(acc: Any, factor: Any, low: int, high: int) -> Array:
    """Sums of 16-bit activations and 8-bit weights to int16: `clamp(round(f64(acc) * factor), low, high)`, ties away
    from zero, in float64: LiteRT's reference FULLY_CONNECTED.

    Args:
        acc: int64, bias included.
        factor: float64, see `wide_factor`.
    """
    v = np.asarray(acc, np.int64).astype(np.float64) * np.asarray(factor, np.float64)
    whole = np.trunc(v)
    y = whole + np.where(np.abs(v - whole) >= 0.5, np.sign(v), 0.0)
    return np.asarray(np.clip(y, low, high), np.int16)


def wrap48(value: Any) -> Array:
    """Wraps int64 to 48 bits, like the sums of VECTOR_WIDE."""
    return np.asarray((np.asarray(value, np.int64) << 16) >> 16)


#: The largest magnitude of a bias.
WIDE_BIAS_MOST = (1 << 41) - (1 << 31) - 1


def wide_parameters(bias: Any, multiplier: Any, shift: Any) -> tuple[Array, Array]:
    """PRM rows of VECTOR_WIDE: biases (int32) and patterns of scales (uint32).

    Args:
        bias: int64 up to WIDE_BIAS_MOST.
        multiplier, shift: m and t of `wide_multiplier`, t from 1 to 64.

    Raises:
        ValueError: a value beyond these limits.
    """
    whole = np.asarray(bias, np.int64)
    most_bias = (-WIDE_BIAS_MOST, WIDE_BIAS_MOST)
    for name, value, (least, most) in (
        ("bias", bias, most_bias), ("multiplier", multiplier, (0, 0x7FFF)), ("shift", shift, (1, 64)),
    ):  # fmt: skip
        found = np.asarray(value, np.int64)
        beyond = found[(found < least) | (found > most)]
        if beyond.size:
            raise ValueError(f"{name} {beyond[0]} for VECTOR_WIDE; {least} to {most} are accepted")
    low = wrap32(whole)
    high = (whole - low) >> 32
    pattern = np.asarray(multiplier, np.int64) | (np.asarray(shift, np.int64) - 1) << WIDE_SHIFT_BIT
    return low, ((pattern | high << WIDE_BIAS_BIT) & 0xFFFFFFFF).astype(np.uint32)


def requantize_wide_bits(acc: Any, scale: Any, low: int, high: int) -> Array:
    """`requantize_wide` by a pattern of `wide_parameters`, of any value, like on the machine.

    Args:
        acc: int64 of 48 bits, the lower part of the bias included.
        scale: uint32.
        low, high: where `low` exceeds `high` the result is `high`.
    """
    bits = np.asarray(scale, np.uint32).astype(np.int64)
    upper = np.asarray(scale, np.uint32).view(np.int32).astype(np.int64) >> WIDE_BIAS_BIT
    product = wrap48(np.asarray(acc, np.int64) + (upper << 32)) * (bits & 0x7FFF)
    y = ((product >> ((bits >> WIDE_SHIFT_BIT) & 63)) + 1) >> 1
    return np.asarray(np.minimum(np.maximum(y, low), high)).astype(np.int16)


def wide_byte(value: Any, byte: int) -> Array:
    """One byte of int16 as int8: the high one, or the low one less 128, so that value = 256 * high + low + 128."""
    v = np.asarray(value, np.int16).astype(np.int64)
    return ((v >> 8) if byte == WideByte.HIGH else (v & 255) - 128).astype(np.int8)


def wide_factor(sx: Any, sw: Any, sy: Any) -> Array:
    """`sx * sw / sy` in float64 of float32 scales, in LiteRT's order."""
    a, b, c = (np.asarray(s, np.float32).astype(np.float64) for s in (sx, sw, sy))
    return np.asarray(a * b / c)
