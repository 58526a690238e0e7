"""Conversions between element types, of scalars or vectors."""

from __future__ import annotations

from tilewright.compiler.cpu.expr import FLOATS, SIZES
from tilewright.compiler.cpu.expr.small_types import INTEGERS
from tilewright.compiler.cpu.ir.types import lanes_of, literal, llvm_type, vector
from tilewright.compiler.cpu.ir.writer import Operand, Writer


def cast(w: Writer, v: Operand, source: str, to: str) -> Operand:
    """Converts `v` from the element type `source` to `to`; a vector stays one."""
    lanes = lanes_of(v.type)
    type_ = lambda dtype: vector(llvm_type(dtype), lanes)
    t = type_(to)
    if source in INTEGERS:
        return _from_nibble(w, v, source, to)
    if to in INTEGERS:
        return w.and_(cast(w, v, source, "u8"), 2 ** int(to[1:]) - 1)
    if "bf16" in (source, to):
        return _bf16(w, v, source, to)
    if to == "b":
        zero = constant(0, source, lanes)
        return w.fcmp("une", v, zero) if source in FLOATS else w.icmp("ne", v, zero)
    if {source, to} == {"f16", "f64"} or (source == "f16" and to not in FLOATS):
        return cast(w, cast(w, v, source, "f32"), "f32", to)  # the direct conversion is a library call
    if to == "f16" and source not in FLOATS:
        return cast(w, cast(w, v, source, "f32"), "f32", to)
    if source in FLOATS and to in FLOATS:
        return w.convert("fpext" if SIZES[source] < SIZES[to] else "fptrunc", v, t)
    if source in FLOATS:
        if to == "u64":
            return w.convert("fptoui", v, t)
        wide = 32 if SIZES[to] < 4 or to == "i32" else 64  # as x86 does it: convert wide, then drop bits
        v = w.convert("fptosi", v, type_(f"i{wide}"))
        return v if v.type == t else w.convert("trunc", v, t)
    unsigned = source[0] == "u" or source == "b"
    if to in FLOATS:
        return w.convert("uitofp" if unsigned else "sitofp", v, t)
    if SIZES[to] == SIZES[source] and source != "b":
        return v
    if SIZES[to] < SIZES[source]:
        return w.convert("trunc", v, t)
    return w.convert("zext" if unsigned else "sext", v, t)


def constant(value: float, dtype: str, lanes: int) -> Operand:
    """A number as a scalar, or as a vector of `lanes` lanes."""
    text, type_ = literal(value, dtype), llvm_type(dtype)
    return Operand(f"splat ({type_} {text})" if lanes else text, vector(type_, lanes))


def _from_nibble(w: Writer, v: Operand, source: str, to: str) -> Operand:
    """Converts an integer of less than a byte, whose upper bits are zero."""
    if source[0] == "u":
        return cast(w, v, "u8", to) if to != "u8" else v
    free = 8 - int(source[1:])
    v = w.ashr(w.shl(v, free), free)
    return cast(w, v, "i8", to) if to != "i8" else v


def _bf16(w: Writer, v: Operand, source: str, to: str) -> Operand:
    """Converts to or from bfloat16, which is the upper half of a float32."""
    if source == "bf16":
        f = w.convert("bitcast", w.shl(w.convert("zext", v, "i32"), 16), "float")
        return f if to == "f32" else cast(w, f, "f32", to)
    f = v if source == "f32" else cast(w, v, source, "f32")
    bits = w.convert("bitcast", f, "i32")
    odd = w.and_(w.lshr(bits, 16), 1)
    rounded = w.add(w.add(bits, 32767, ""), odd, "")
    quiet = w.or_(bits, 4194304)
    nan = w.fcmp("uno", f, f)
    return w.convert("trunc", w.lshr(w.select(nan, quiet, rounded), 16), "i16")
