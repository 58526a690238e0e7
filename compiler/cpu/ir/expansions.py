"""Expands operations that a target has no instruction for into those it has: exact, without calling a library."""

from __future__ import annotations

from tilewright.compiler.cpu.ir.writer import Operand, Writer, i64

_INTEGER = {"float": "i32", "double": "i64"}
_LIMIT = {"float": "0x4160000000000000", "double": "0x4330000000000000"}  # 2^23, 2^52: from here all are integers


def expand(w: Writer, name: str, *a: Operand) -> Operand | None:
    """The value of the intrinsic in plain operations, None where the target has it."""
    target, type_ = w.module.target, a[0].type
    if name == "fma" and type_ == "float" and not target.has_fma:
        return _fma(w, *a)
    if target.triple.startswith(("arm", "riscv32")):
        if name == "roundeven" and type_ in _LIMIT:
            return _round_even(w, *a)
        if name in ("minimum", "maximum") and (type_ == "double" or target.triple.startswith("riscv32")):
            return _extreme(w, name, *a)
    return None


def _fma(w: Writer, x: Operand, y: Operand, z: Operand) -> Operand:
    """float32 fma in float64: the product is exact there; the sum is rounded to odd, so that rounding again is exact
    (S. Boldo, G. Melquiond, "Emulation of a FMA and Correctly Rounded Sums", 2008)."""
    x, y, z = (w.convert("fpext", v, "double") for v in (x, y, z))
    nothing = Operand("0.0", "double")
    product = w.fmul(x, y)
    s = w.fadd(product, z)
    # What the sum lost, by Knuth's two-sum.
    added = w.fsub(s, product)
    low = w.fsub(z, added)
    high = w.fsub(product, w.fsub(s, added))
    lost = w.fadd(high, low)
    bits = w.convert("bitcast", s, "i64")
    even = w.icmp("eq", w.and_(bits, 1), 0)
    inexact = w.fcmp("one", lost, nothing)
    up = w.fcmp("ogt", lost, nothing)
    positive = w.fcmp("ogt", s, nothing)
    away = w.icmp("eq", up, positive)
    step = w.select(away, i64(1), i64(-1))
    step = w.select(w.and_(even, inexact), step, i64(0))
    odd = w.convert("bitcast", w.add(bits, step, ""), "double")
    return w.convert("fptrunc", odd, "float")


def _round_even(w: Writer, x: Operand) -> Operand:
    """Rounds to an integer, ties to even, by adding and subtracting 2^23 (2^52) with x's sign."""
    limit = Operand(_LIMIT[x.type], x.type)
    magic = w.intrinsic("copysign", limit, x)
    rounded = w.fsub(w.fadd(x, magic), magic)
    signed = w.intrinsic("copysign", rounded, x)  # -0.3 becomes -0
    small = w.fcmp("olt", w.intrinsic("fabs", x), limit)
    return w.select(small, signed, x)


def _extreme(w: Writer, name: str, x: Operand, y: Operand) -> Operand:
    """IEEE 754-2019 minimum or maximum: a NaN wins, and -0 is less than +0."""
    integer = _INTEGER[x.type]
    chosen = w.fcmp("olt" if name == "minimum" else "ogt", x, y)
    value = w.select(chosen, x, y)
    a, b = (w.convert("bitcast", v, integer) for v in (x, y))
    both = w.or_(a, b) if name == "minimum" else w.and_(a, b)  # of equal ones only zeros differ
    zero = w.convert("bitcast", both, x.type)
    value = w.select(w.fcmp("oeq", x, y), zero, value)
    nan = w.fadd(x, y)
    return w.select(w.fcmp("uno", x, y), nan, value)
