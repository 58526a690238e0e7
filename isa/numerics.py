"""The arithmetic of the machine and of the reference runtimes: one function per rule.

Compiler, simulators and RTL tests use these and nothing else. `f32(.)` rounds to float32, RNE is round to nearest,
ties to even. Arrays broadcast as in numpy. The rules and the measurements behind them are explained in
`docs/numerics.md`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.isa.instructions import ROW_QUOTIENT_BITS, ROW_SUM_BITS, Rounding

Array = np.ndarray


def wrap32(value: Any) -> Array:
    """Integers of any width wrapped to int32, as the accumulators do."""
    return np.asarray(value, np.int64).astype(np.uint64).astype(np.uint32).astype(np.int32)


def scale_bits(scale: Any) -> Array:
    """float32 scales as the uint32 patterns that PRM rows hold."""
    return np.asarray(scale, np.float32).view(np.uint32)


def scale_value(bits: Any) -> Array:
    """Converts float32 patterns to the factor (float64, exact) that the requantiser multiplies by.

    Exponent 0 counts as zero, exponent 255 as one more ordinary exponent: the datapath knows no subnormals,
    infinities or NaNs. Compiled programs hold normal numbers only.
    """
    b = np.asarray(bits, np.uint32).astype(np.int64)
    exponent = (b >> 23) & 0xFF
    mantissa = ((b & 0x7FFFFF) | 0x800000).astype(np.float64)
    value = np.where(exponent == 0, 0.0, np.ldexp(mantissa, exponent - 150))
    return np.where(b >> 31 != 0, -value, value)


def requantize(acc: Any, scale: Any, zero_point: Any, low: Any, high: Any, rounding: int = Rounding.EVEN) -> Array:
    """int32 accumulators to int8: `clamp(round(f32(f32(acc) * scale)) + zero_point, low, high)`.

    Args:
        acc: int32, bias included.
        scale: uint32 float32 patterns (see `scale_value`).
        zero_point, low, high: int8 range.
        rounding: EVEN as above with RNE; EVEN_ZERO_POINT_INSIDE `RNE(f32(f32(f32(acc) * scale) + zero_point))`;
            HALF_AWAY rounds ties away from zero before the zero point is added.

    Returns:
        int8 array. Where `low` exceeds `high` the result is `high`.
    """
    product = np.asarray(acc, np.int32).astype(np.float32).astype(np.float64) * scale_value(scale)
    with np.errstate(over="ignore"):
        x = product.astype(np.float32).astype(np.float64)  # 24 x 24 bits are exact in float64: one rounding
    if rounding == Rounding.EVEN:
        y = np.rint(x) + zero_point
    elif rounding == Rounding.EVEN_ZERO_POINT_INSIDE:
        y = np.rint((x + zero_point).astype(np.float32).astype(np.float64))
    elif rounding == Rounding.HALF_AWAY:
        magnitude = np.floor(np.abs(x) + 0.5)
        y = np.copysign(magnitude, x) + zero_point
    else:
        raise ValueError(f"rounding must be one of {list(Rounding)}, not {rounding!r}")
    clamped: Array = np.minimum(np.maximum(y, low), high)
    return clamped.astype(np.int8)


def add_integer(a: Any, b: Any, ma: int, mb: int, c: int, shift: int, low: int, high: int) -> Array:
    """The Add unit: `clamp((a*ma + b*mb + c) >> shift, low, high)`, sums wrapping in int32, shift arithmetic."""
    total = wrap32(np.asarray(a, np.int64) * ma + np.asarray(b, np.int64) * mb + c)
    clamped: Array = np.minimum(np.maximum(total >> shift, low), high)
    return clamped.astype(np.int8)


def row_scale(total: int, numerator: int, exponent: int) -> int:
    """ROW's quotient: the float32 pattern of `numerator * 2**(exponent - 109) / total`, truncated to 24 bits.

    The sum is shifted left until its highest bit of 36 is set, by at most 15; 26 bits of the quotient follow, one by
    one. Where numerator or sum is too small to be normalised the bits are those of the registers.

    Args:
        total: sum of the exponentials, modulo 2**36.
        numerator: 18 bits.  exponent: 8 bits.
    """
    total &= (1 << ROW_SUM_BITS) - 1
    zeros = 0
    for shift in (8, 4, 2, 1):
        if total >> (ROW_SUM_BITS - shift) == 0:
            total <<= shift
            zeros += shift
    found = quotient(numerator << (ROW_SUM_BITS - 18), total)
    large = found >> (ROW_QUOTIENT_BITS - 1)
    mantissa = found >> (ROW_QUOTIENT_BITS - 24 if large else ROW_QUOTIENT_BITS - 25)
    return ((exponent + zeros - (0 if large else 1)) & 0xFF) << 23 | (mantissa & 0x7FFFFF)


def quotient(rest: int, divisor: int) -> int:
    """26 bits of `rest * 2**25 / divisor`, computed bit by bit in registers of 37 and 36 bits."""
    found = 0
    for _ in range(ROW_QUOTIENT_BITS):
        fits = rest >= divisor
        found = found << 1 | fits
        rest = ((rest - divisor if fits else rest) << 1) & ((1 << (ROW_SUM_BITS + 1)) - 1)
    return found


def row_numerator(value: float) -> tuple[int, int] | None:
    """`numerator` and `exponent` of ROW for this dividend, None if it does not fit 18 bits."""
    mantissa, power = math.frexp(value)
    numerator = mantissa * (1 << 18)
    # value = numerator * 2**(power - 18); row_scale gives numerator * 2**(exponent - 109) / total.
    exponent = power - 18 + 109
    if value <= 0 or numerator != int(numerator) or not 0 <= exponent <= 0xFF:
        return None
    return int(numerator), exponent


# Scales, in the order of operations that onnxruntime uses.


def product_scale(sx: Any, sw: Any, sy: Any) -> Array:
    """Convolution, matrix product, Mul: `f32(f32(sx * sw) / sy)`, infinite where float32 ends."""
    with np.errstate(over="ignore"):
        return (np.float32(sx) * np.asarray(sw, np.float32)) / np.float32(sy)


def mean_scale(sx: Any, sy: Any, n: int) -> np.float32:
    """Spatial mean over n elements in onnxruntime: `f32(sx / f32(sy * n))`."""
    return np.float32(sx) / (np.float32(sy) * np.float32(n))


def softmax_levels(sy: Any) -> np.float32:
    """Onnxruntime's factor of Softmax probabilities: `floor(f32(1 / sy))`, 254 for the usual 1/255."""
    return np.float32(np.floor(np.float32(1) / np.float32(sy)))


def softmax_exponentials(sx: Any, n: int) -> Array:
    """float32[256]: exp of -d steps of the input, d = 0..255, in onnxruntime's Softmax over n elements.

    All are multiplied by the same large factor, with which n of the greatest add up to 1/148 of the largest float32.
    """
    scale = float(np.float32(sx))
    most = np.float32(np.finfo(np.float32).max) / np.float32(n)
    shift = max(0.0, float(np.float32(math.log(most))) - 5) / scale
    return np.array([math.exp((-d + shift) * scale) for d in range(256)], np.float64).astype(np.float32)


def softmax_overflow(zero_point: int, low: int, high: int) -> int:
    """The integer that onnxruntime's Softmax makes of an infinite quotient, in a type of this range.

    x86 converts an infinity to the least int32 (for int8) or to 0 (for uint8); adding a negative zero point wraps.
    """
    if low == 0:
        return zero_point
    return high if zero_point < 0 else low


def mean_may_tie(sx: Any, zx: int, sy: Any, n: int, low: int, high: int, divided: bool = True) -> bool:
    """True if a mean of n integers in low..high can lie so close to a tie that sums of floats round another way.

    Floats are dequantised, added in any order, divided by n and by sy; each step is off by 2^-24 of its result at most.
    Of a scale that is a power of two all but the divisions are exact. Sums of more than 2^22 possible values are not
    examined and give True.

    Args:
        divided: False for a sum, which is not divided by n.
    """
    least, most = n * (low - zx), n * (high - zx)
    if most - least > 1 << 22:
        return True
    sums = np.arange(least, most + 1, dtype=np.float64)
    factor = float(np.float32(sx)) / (float(np.float32(sy)) * (n if divided else 1))
    magnitudes = np.minimum(max(most, -least), np.abs(sums) + 2 * max(0, min(most, -least)))
    partial = (magnitudes + np.abs(sums)) / 2
    added = 0 if math.frexp(float(np.float32(sx)))[0] == 0.5 else magnitudes + (n - 1) * partial
    error = (added + 5 * np.abs(sums)) * factor * 2.0**-24 * 1.01
    means = sums * factor
    seen = np.abs(means) <= 257  # others saturate
    close = np.abs(means - np.floor(means) - 0.5) <= error + 2.0**-16  # adding the zero point rounds, too
    return bool((close & seen).any())


def litert_multiplier(real: float) -> tuple[int, int]:
    """LiteRT's `QuantizeMultiplier` of a factor: a mantissa m of 31 bits and a left shift, m * 2^(shift - 31).

    A factor below 2^-32 is 0.
    """
    mantissa, shift = math.frexp(real)
    q = math.floor(mantissa * (1 << 31) + 0.5)
    if q == 1 << 31:
        q, shift = q // 2, shift + 1
    return (q, shift) if shift >= -31 else (0, 0)


#: The polynomial of degree 3 for 2**(r / 32) in glibc's expf, and the values of 2**(i / 32) that it multiplies.
_EXPF_TERMS = tuple(
    float.fromhex(term) / 32**power
    for power, term in ((3, "0x1.c6af84b912394p-5"), (2, "0x1.ebfce50fac4f3p-3"), (1, "0x1.62e42ff0c52d6p-1"))
)
_EXPF_ROOTS = np.exp2(np.arange(32) / 32)
_EXPF_STEPS = 32 * float.fromhex("0x1.71547652b82fep+0")  # 32 / log(2)


def litert_exponentials(step: Any) -> Array:
    """float32[256]: exp of -d steps of the input, d = 0..255, in LiteRT's Softmax: `expf(f32(-step * d))`.

    expf is that of glibc, which rounds one value in 2,000 to its second nearest float32.

    Args:
        step: change of the exponent by one step of the input, float32.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        x = np.float32(-step) * np.arange(256, dtype=np.float32)
        scaled = x.astype(np.float64) * _EXPF_STEPS
        whole = np.rint(scaled)
        number, r = np.clip(np.nan_to_num(whole), -(1 << 16), 0).astype(np.int64), scaled - whole
        cubic, square, linear = _EXPF_TERMS
        values = (cubic * r + square) * (r * r) + (linear * r + 1)
        result: Array = (values * np.ldexp(_EXPF_ROOTS[number % 32], number // 32)).astype(np.float32)
    return np.where(np.isneginf(x), np.float32(0), result)


def litert_mean_scale(sx: Any, sy: Any, n: int) -> np.float32:
    """Spatial mean over n elements in LiteRT: `f32(f32(sx / sy) * f32(1 / n))`."""
    return np.float32((np.float32(sx) / np.float32(sy)) * (np.float32(1) / np.float32(n)))


def litert_mean_offset(factor: Any, zx: int, zy: int, n: int) -> np.float32:
    """The offset that LiteRT adds to the scaled sum of the stored integers: `f32(zy - f32(f32(n*zx) * factor))`."""
    return np.float32(np.float32(zy) - np.float32(np.float32(n * zx) * np.float32(factor)))


def litert_mean(total: Any, factor: Any, offset: Any, low: int, high: int) -> Array:
    """LiteRT's Mean of stored integers with this sum: `clamp(RNE(f32(f32(f32(total) * factor) + offset)))`."""
    scaled = np.asarray(total).astype(np.float32) * np.float32(factor)
    clamped: Array = np.clip(np.rint(scaled + np.float32(offset)), low, high)
    return clamped.astype(np.int32)


def litert_mean_on_machine(
    n: int, factor: Any, zx: int, zy: int, low: int, high: int
) -> tuple[np.float32, Rounding] | None:
    """A factor and a rounding with which `requantize` of `total - n*zx` is `litert_mean`, proven for all sums.

    Args:
        n: elements of a sum.
        zx, zy: zero points.
        low, high: range of the stored integers, in and out.

    Returns:
        None if there are none near LiteRT's factor.
    """
    total = np.arange(low * n, high * n + 1, dtype=np.int64)
    want = litert_mean(total, factor, litert_mean_offset(factor, zx, zy, n), low, high)
    shift = low + 128  # the machine holds bytes as int8
    bits = int(np.float32(factor).view(np.uint32))
    for step in (0, 1, -1, 2, -2, 3, -3):
        near = np.uint32(bits + step)
        for rounding in (Rounding.EVEN, Rounding.EVEN_ZERO_POINT_INSIDE):
            got = requantize(total - n * zx, near, zy - shift, low - shift, high - shift, rounding)
            if np.array_equal(got.astype(np.int32) + shift, want):
                return near.view(np.float32), rounding
    return None


def litert_add_constants(
    sa: Any, za: int, sb: Any, zb: int, sy: Any, zy: int, subtract: bool = False
) -> dict[str, int] | None:
    """LiteRT's Add (Sub): `clamp(((a*ma + b*mb + c) >> shift) + zy)` as one sum, zy inside c.

    Returns:
        {"ma", "mb", "c", "shift"}, or None where LiteRT does not use this rule (ratios outside 2^-10..2^8).
    """
    ra, rb = np.float32(sa) / np.float32(sy), np.float32(sb) / np.float32(sy)
    if not all(2.0**-10 <= float(r) < 2.0**8 for r in (ra, rb)):
        return None
    shift = 20 - int(np.floor(np.log2(np.float64(max(ra, rb)))))
    ma, mb = int(np.rint(float(ra) * 2.0**shift)), int(np.rint(float(rb) * 2.0**shift))
    mb = -mb if subtract else mb
    return {"ma": ma, "mb": mb, "c": (1 << (shift - 1)) - ma * za - mb * zb + (zy << shift), "shift": shift}


def half_away_scale(n: int, low: int, high: int) -> np.float32 | None:
    """A float32 factor with which HALF_AWAY of `sum * factor` is sum / n rounded, ties away from zero.

    Args:
        low, high: range of the sums to prove it for.

    Returns:
        The factor, or None if there is none.
    """
    sums = np.arange(low, high + 1, dtype=np.int64)
    expected = np.sign(sums) * ((2 * np.abs(sums) + n) // (2 * n))
    nearest = np.float32(1) / np.float32(n)
    for factor in (nearest, np.nextafter(nearest, np.float32(1)), np.nextafter(nearest, np.float32(0))):
        x = (sums.astype(np.float32) * factor).astype(np.float64)
        if np.array_equal(np.copysign(np.floor(np.abs(x) + 0.5), x), expected):
            return np.float32(factor)
    return None


# Reference forms of the operations that have an integer or table form on the machine.


def fma32(a: Any, b: Any, c: Any) -> Array:
    """float32 fused multiply-add. The product is exact in float64; the sum is rounded to odd there, so that the
    final rounding to float32 is the only one that counts."""
    product = np.asarray(a, np.float32).astype(np.float64) * np.asarray(b, np.float32).astype(np.float64)
    addend = np.asarray(c, np.float32).astype(np.float64)
    total = product + addend
    virtual = total - product  # TwoSum: exact error of the float64 sum
    error = (product - (total - virtual)) + (addend - virtual)
    bits = np.asarray(total).view(np.int64)
    inexact_even = (error != 0) & (bits & 1 == 0)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where(inexact_even, bits + toward, bits).view(np.float64)
    return odd.astype(np.float32)


def add_reference(a: Any, b: Any, sa: Any, za: int, sb: Any, zb: int, sy: Any, zy: int, low: int, high: int) -> Array:
    """onnxruntime's QLinearAdd on integers a, b; the zero point is inside the rounding. Returns int32 in range."""
    ra, rb = np.float32(sa) / np.float32(sy), np.float32(sb) / np.float32(sy)
    fx = np.float32(zy) - fma32(ra, np.float32(za), rb * np.float32(zb))
    inner = fma32(np.asarray(b, np.float32), rb, fx)
    y = np.rint(fma32(np.asarray(a, np.float32), ra, inner))
    clamped: Array = np.clip(y, low, high)
    return clamped.astype(np.int32)


def mul_reference(a: Any, b: Any, sa: Any, za: int, sb: Any, zb: int, sy: Any, zy: int, low: int, high: int) -> Array:
    """onnxruntime's QLinearMul: `RNE(f32(f32(f32((a-za)*(b-zb)) * s) + zy))`. Returns int32 in range."""
    product = ((np.asarray(a, np.int32) - za) * (np.asarray(b, np.int32) - zb)).astype(np.float32)
    y = np.rint(product * product_scale(sa, sb, sy) + np.float32(zy))
    clamped: Array = np.clip(y, low, high)
    return clamped.astype(np.int32)


def add_floats(a: Any, b: Any, sa: Any, za: int, sb: Any, zb: int, sy: Any, zy: int, low: int, high: int) -> Array:
    """Add in float32 between DequantizeLinear and QuantizeLinear. Returns int32 in range."""
    return _quantized(dequantize(a, sa, za) + dequantize(b, sb, zb), sy, zy, low, high)


def mul_floats(a: Any, b: Any, sa: Any, za: int, sb: Any, zb: int, sy: Any, zy: int, low: int, high: int) -> Array:
    """Mul in float32 between DequantizeLinear and QuantizeLinear. Returns int32 in range."""
    return _quantized(dequantize(a, sa, za) * dequantize(b, sb, zb), sy, zy, low, high)


def _quantized(x: Array, sy: Any, zy: int, low: int, high: int) -> Array:
    with np.errstate(over="ignore"):
        clamped: Array = np.clip(np.rint(x / np.float32(sy)).astype(np.float64) + zy, low, high)
    return clamped.astype(np.int32)


def quantize(x: Any, scale: Any, zero_point: Any, dtype: Any) -> Array:
    """ONNX QuantizeLinear: `sat(RNE(f32(x / scale)) + zero_point)`."""
    info = np.iinfo(dtype)
    y = np.rint(np.asarray(x, np.float32) / np.asarray(scale, np.float32)).astype(np.float64) + zero_point
    clamped: Array = np.clip(y, info.min, info.max)
    return clamped.astype(dtype)


def dequantize(q: Any, scale: Any, zero_point: Any) -> Array:
    """ONNX DequantizeLinear: `f32((q - zero_point) * scale)`."""
    return (np.asarray(q, np.int32) - np.asarray(zero_point, np.int32)).astype(np.float32) * np.asarray(
        scale, np.float32
    )
