"""Operations a target has no instruction for, written out in those it has: exact, and without a call to a library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.cpu.lower import Function

_INTEGER = {"float": "i32", "double": "i64"}
_LIMIT = {"float": "0x4160000000000000", "double": "0x4330000000000000"}  # 2^23, 2^52: from here all are integers


def expand(f: Function, name: str, type_: str, a: tuple[str, ...]) -> str | None:
    """The value of the intrinsic in plain operations, None where the target has it."""
    target = f.module.target
    if name == "fma" and type_ == "float" and not target.has_fma:
        return _fma(f, *a)
    if target.triple.startswith("arm"):
        if name == "roundeven" and type_ in _LIMIT:
            return _round_even(f, type_, *a)
        if name in ("minimum", "maximum") and type_ == "double":
            return _extreme(f, name, type_, *a)
    return None


def _fma(f: Function, x: str, y: str, z: str) -> str:
    """float32 fma in float64: the product is exact there; the sum is rounded to odd, so that rounding again is exact
    (S. Boldo, G. Melquiond, "Emulation of a FMA and Correctly Rounded Sums", 2008)."""
    x, y, z = (f.op(f"fpext float {v} to double") for v in (x, y, z))
    product = f.op(f"fmul double {x}, {y}")
    s = f.op(f"fadd double {product}, {z}")
    # What the sum lost, by Knuth's two-sum.
    added = f.op(f"fsub double {s}, {product}")
    low = f.op(f"fsub double {z}, {added}")
    high = f.op(f"fsub double {product}, {f.op(f'fsub double {s}, {added}')}")
    lost = f.op(f"fadd double {high}, {low}")
    bits = f.op(f"bitcast double {s} to i64")
    even = f.op(f"icmp eq i64 {f.op(f'and i64 {bits}, 1')}, 0")
    inexact = f.op(f"fcmp one double {lost}, 0.0")
    up = f.op(f"fcmp ogt double {lost}, 0.0")
    positive = f.op(f"fcmp ogt double {s}, 0.0")
    away = f.op(f"icmp eq i1 {up}, {positive}")
    step = f.op(f"select i1 {away}, i64 1, i64 -1")
    step = f.op(f"select i1 {f.op(f'and i1 {even}, {inexact}')}, i64 {step}, i64 0")
    odd = f.op(f"bitcast i64 {f.op(f'add i64 {bits}, {step}')} to double")
    return f.op(f"fptrunc double {odd} to float")


def _round_even(f: Function, type_: str, x: str) -> str:
    """Adding and taking away 2^23 (2^52) with x's sign rounds to an integer, ties to even."""
    magic = f.intrinsic("copysign", type_, _LIMIT[type_], x)
    rounded = f.op(f"fsub {type_} {f.op(f'fadd {type_} {x}, {magic}')}, {magic}")
    signed = f.intrinsic("copysign", type_, rounded, x)  # -0.3 becomes -0
    small = f.op(f"fcmp olt {type_} {f.intrinsic('fabs', type_, x)}, {_LIMIT[type_]}")
    return f.op(f"select i1 {small}, {type_} {signed}, {type_} {x}")


def _extreme(f: Function, name: str, type_: str, x: str, y: str) -> str:
    """IEEE 754-2019 minimum or maximum: a NaN wins, and -0 is less than +0."""
    integer = _INTEGER[type_]
    chosen = f.op(f"fcmp {'olt' if name == 'minimum' else 'ogt'} {type_} {x}, {y}")
    value = f.op(f"select i1 {chosen}, {type_} {x}, {type_} {y}")
    a, b = (f.op(f"bitcast {type_} {v} to {integer}") for v in (x, y))
    both = f.op(f"{'or' if name == 'minimum' else 'and'} {integer} {a}, {b}")  # of equal ones only zeros differ
    zero = f.op(f"bitcast {integer} {both} to {type_}")
    value = f.op(f"select i1 {f.op(f'fcmp oeq {type_} {x}, {y}')}, {type_} {zero}, {type_} {value}")
    nan = f.op(f"fadd {type_} {x}, {y}")
    return f.op(f"select i1 {f.op(f'fcmp uno {type_} {x}, {y}')}, {type_} {nan}, {type_} {value}")
