"""Types of a byte or less without arithmetic of their own: float8, float4 and integers of 4 and 2 bits.

Every element takes a byte, as in ml_dtypes; integers below a byte keep their upper bits zero. Kernels move them as
bytes. Computations convert them first, by `convert`.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from msgspec import Struct

from tilewright.compiler.cpu.expr.dtypes import FLOATS
from tilewright.compiler.cpu.expr.form import Buffer, Dynamic, Expr, Index, call, const, load, select

INTEGERS = ("i4", "u4", "i2", "u2")


class SmallFloat(Struct, frozen=True):
    """A format with `mantissa` fraction bits.

    Attributes:
        lowest: exponent of the smallest normal number.
        largest: finite value.
        overflow: code of a too large value (without sign), None where it always saturates.
        nan: code of NaN.
        signed_zero: there is a -0.
    """

    mantissa: int
    lowest: int
    largest: float
    overflow: int | None
    nan: int
    signed_zero: bool = True


FORMATS = {
    "f8e4m3fn": SmallFloat(3, -6, 448.0, 0x7F, 0x7F),
    "f8e4m3fnuz": SmallFloat(3, -7, 240.0, 0x80, 0x80, signed_zero=False),
    "f8e5m2": SmallFloat(2, -14, 57344.0, 0x7C, 0x7E),
    "f8e5m2fnuz": SmallFloat(2, -15, 57344.0, 0x80, 0x80, signed_zero=False),
    "f4e2m1fn": SmallFloat(1, 0, 6.0, None, 0x08),
}
NUMPY = {
    "f8e4m3fn": ml_dtypes.float8_e4m3fn, "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "f8e8m0fnu": ml_dtypes.float8_e8m0fnu, "f4e2m1fn": ml_dtypes.float4_e2m1fn,
    "i4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "i2": ml_dtypes.int2, "u2": ml_dtypes.uint2,
}  # fmt: skip


def is_small_float(dtype: str) -> bool:
    return dtype in FORMATS or dtype == "f8e8m0fnu"


def code_of(value: float, dtype: str) -> int:
    """The byte that encodes a number."""
    return int(np.asarray(value, np.float32).astype(NUMPY[dtype]).view(np.uint8))


def number_of(data: np.ndarray) -> float | int:
    """The number that one element of a small type encodes."""
    value = float(data.reshape(()).astype(np.float32))
    return value if "float" in data.dtype.name else int(value)


def convert(x: Expr, to: str, saturate: bool = True, rounding: str = "up") -> Expr:
    """Converts `x` to another type, also to and from small floats.

    Args:
        saturate: a value too large for a small float becomes its largest value, else NaN or infinity.
        rounding: rounding of float8e8m0: "up", "down" or "nearest".
    """
    if is_small_float(x.dtype) and x.dtype != to:
        x = _decode(x)
    if not is_small_float(to) or x.dtype == to:
        return x.to(to)
    wide = "f64" if x.dtype in ("f64", "i32", "u32", "i64", "u64") else "f32"
    if to == "f8e8m0fnu":
        return _encode_power(x.to("f32"), saturate, rounding).bits(to)
    return _encode(x.to(wide), FORMATS[to], saturate).bits(to)


def _decode(x: Expr) -> Expr:
    """The float32 value of a code, from a table of all 256."""
    table = np.arange(256, dtype=np.uint8).view(NUMPY[x.dtype]).astype(np.float32)
    code = Dynamic(x.bits("u8").to("i64"), 0, 255)
    return load(Buffer("", "f32", 256, "baked", table), Index.of(code))


def _encode(x: Expr, form: SmallFloat, saturate: bool) -> Expr:
    """The code of a float32 or float64, rounded to nearest even once."""
    integer, fraction, bias = ("u32", 23, 127) if x.dtype == "f32" else ("u64", 52, 1023)
    a = call("fabs", x)
    exponent = a.bits(integer).shr(fraction)  # biased
    low, high = const(form.lowest + bias, integer), const(2 * bias, integer)  # infinity counts as the largest power
    exponent = select(exponent > low, select(exponent < high, exponent, high), low)
    steps = call("roundeven", a * (const(2 * bias + form.mantissa, integer) - exponent).shl(fraction).bits(x.dtype))
    rounded = steps * (exponent - form.mantissa).shl(fraction).bits(x.dtype)
    normal = rounded.bits(integer).shr(fraction - form.mantissa) - ((bias + form.lowest - 1) << form.mantissa)
    code = select(rounded >= 2.0**form.lowest, normal, steps.to("i32").to(integer)).to("u8")
    most = code_of_largest(form)
    over = most if saturate or form.overflow is None else form.overflow
    code = select(rounded > form.largest, const(over, "u8"), code)
    sign = x.bits(integer).shr(8 * (4 if x.dtype == "f32" else 8) - 1).to("u8").shl(3 if form.mantissa == 1 else 7)
    if not form.signed_zero:
        sign = select(code.eq(0) | code.eq(form.nan), const(0, "u8"), sign)
    return select(x.eq(x), code | sign, const(form.nan, "u8"))


def code_of_largest(form: SmallFloat) -> int:
    exponent = int(np.floor(np.log2(form.largest)))
    fraction = int(form.largest / 2.0 ** (exponent - form.mantissa)) - (1 << form.mantissa)
    return ((exponent - form.lowest + 1) << form.mantissa) + fraction


def _encode_power(x: Expr, saturate: bool, rounding: str) -> Expr:
    """The exponent of a float32 as float8e8m0, which has neither sign nor zero; NaN and infinities become NaN."""
    bits = x.bits("u32")
    exponent, fraction = bits.shr(23) & 0xFF, bits & 0x7FFFFF
    if rounding == "up":
        more = fraction.ne(0)
    elif rounding == "nearest":
        # Ties go up, but not from the subnormal numbers.
        more = select(exponent.eq(0), fraction > 0x400000, fraction >= 0x400000)
    else:
        more = const(0, "b")
    if saturate:
        more = more & (exponent < 0xFE)
    return select(exponent.eq(0xFF), exponent, exponent + more.to("u32")).to("u8")


def round_through(x: Expr, dtype: str) -> Expr:
    """`x` as float32 after rounding to a float type, for computations in that type."""
    return x.to(dtype).to("f32") if dtype in FLOATS and dtype != "f64" else x
