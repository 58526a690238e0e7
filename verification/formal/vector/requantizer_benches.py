"""Benches of the requantiser, cut before and behind its multiplier, so that each half has the same product.

They chain to `tilewright.isa.numerics.requantize`: `convert` makes f32(acc) of an accumulator, `multiply` the product
of that and a scale, `rounded` the result of a product: f32, zero point, rounding, limits. A product of more than two
digits is stated as the sum of the products of its digits (digits of 12 bits, those the multipliers of the part have).
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed

from tilewright.hw.vector.requantizer import BIAS, HALF, INTEGER, MANTISSA, START, Requantizer
from tilewright.isa.instructions import Rounding
from tilewright.isa.row_bits import BIAS_FRACTION
from verification.formal.bench import Bench, implies
from verification.formal.engine import Cut

#: Fraction bits of every product that is not 0: the least has the exponent -126, and 24 bits.
FRACTION = 126 + MANTISSA - 1


def select(cases: list[tuple[Any, Any]], otherwise: Any) -> Value:
    """Returns the value of the first case whose condition holds."""
    result = Value.cast(otherwise)
    for condition, value in reversed(cases):
        result = Mux(condition, value, result)
    return result


def even(value: Value, bits: int) -> Value:
    """`value` / 2**bits, rounded to the nearest integer, ties to even; 0 and more."""
    return (value + ((1 << bits) - 1 >> 1) + value[bits]) >> bits if bits else value


def _stages(b: Bench, rows: bool) -> tuple[Requantizer, Module]:
    """Returns a requantiser of which the bench makes the stages it is about, with free ports."""
    part, module = Requantizer(rows=rows), Module()
    part.elaborate = lambda platform: module  # type: ignore[method-assign]
    b.m.submodules.part = part
    return part, module


def _drive(b: Bench, part: Requantizer, **ports: Any) -> None:
    b.m.d.comb += [getattr(part, name).eq(value) for name, value in ports.items()]


def convert(only: str | None) -> Bench:
    """Stages 1 to 3, with a free `start`."""
    b = Bench(only)
    part, m = _stages(b, True)
    mantissa, offset = part._normalise(m, *part._magnitude(m)[:2])
    acc, start = b.free(signed(32), "acc"), b.free(8, "start")
    _drive(b, part, acc=acc, start=start)
    there = b.past(C(1), "there", 3)
    number = b.past(acc, "number", 3)
    magnitude = Signal(32, name="of")
    b.m.d.comb += magnitude.eq(Mux(number < 0, -number, number))
    # With the highest bit at place p the value is 1.f * 2**p.
    tops = [(magnitude[p], p) for p in reversed(range(32))]
    expected = select([(t, even(magnitude, p - 23) if p > 23 else magnitude << (23 - p)) for t, p in tops], 0)
    b.check(
        "mantissa",
        implies(there, mantissa == expected),
        "Requantiser: the mantissa is that of f32(acc)",
        Cut("part.nibbles"),
    )
    shift = b.past(start, "start_before") + 31 - select(tops, 0)
    b.check(
        "exponent",
        implies(there & (magnitude != 0), offset == shift[:8]),
        "Requantiser: so is the exponent",
        Cut("part.zeros2"),
    )
    b.check(
        "normal",
        implies(there, (mantissa == 0) | ((mantissa >= 1 << 23) & (mantissa <= 1 << 24))),
        "Requantiser: the mantissa is 0 or from 2**23 to 2**24",
        Cut("part.partly"),
    )
    return b


def multiply(only: str | None) -> Bench:
    """Stages 4 and 5, with any mantissa that `convert` makes, any shift and any scale."""
    b = Bench(only)
    part, m = _stages(b, False)
    mantissa, offset, negative = b.free(25, "mantissa"), b.free(8, "offset"), b.free(1, "negative")
    b.assume((mantissa == 0) | ((mantissa >= 1 << 23) & (mantissa <= 1 << 24)))
    scale = b.free(32, "scale")
    _drive(b, part, scale=scale)
    ins = [Signal.like(x, name=f"given_{x.name}") for x in (mantissa, offset, negative)]
    b.m.d.comb += [to.eq(x) for to, x in zip(ins, (mantissa, offset, negative))]
    product, below, distance, sign = part._multiply(m, *ins)
    there = b.past(C(1), "there", 3)
    # The sum of the products of digits, made of the same digits as those of the part; what is below the second digit of
    # the sum comes from the lowest product alone.
    fraction = Cat(scale[:23], C(1, 1))
    digits = [[mantissa[:HALF], mantissa[HALF:]], [fraction[:HALF], fraction[HALF:]]]
    places = [[b.past(x * y, f"digits{i}{j}", 2) for j, y in enumerate(digits[1])] for i, x in enumerate(digits[0])]
    exponent = b.past(scale[23:31], "exponent", 2)
    upper = (places[0][0] >> HALF) + (places[1][1] << HALF) + (places[0][1] + places[1][0])
    zero = exponent == 0
    b.check(
        "product",
        implies(there, product == Mux(zero, 0, upper[: len(product)])),
        "Requantiser: mantissa times that of the scale, 0 where its exponent is 0",
        Cut("part.part01"),
    )
    b.check("product", implies(there, below == Mux(zero, 0, places[0][0][:HALF].any())))
    b.check(
        "exponent",
        implies(there, distance == b.past(offset, "shift", 2) - exponent),
        "Requantiser: that of the scale is subtracted from the shift",
        Cut("part.offset4"),
    )
    was = b.past(negative, "was_negative", 3)
    b.check(
        "sign",
        implies(there, sign == was ^ b.past(scale, "scale_before")[31]),
        "Requantiser: the product is negative if one of its factors is",
        Cut("part.negative4"),
    )
    b.check(
        "normal",
        implies(there, Mux(product == 0, ~below, product >= 1 << 34)),
        "Requantiser: the product is 0 or has its highest bit in one of two places",
        Cut("part.part11"),
    )
    return b


def _float(value: Value, bits: int) -> Value:
    """Returns a magnitude below 2**(INTEGER + 1) with FRACTION bits of a fraction, rounded to float32; below 1/2 it
    stays as it is, which no rounding to integers behind it can tell."""
    cases = []
    for top in range(FRACTION + INTEGER, FRACTION - 2, -1):
        drop = top - (MANTISSA - 1)
        cases.append((value[top], even(value, drop) << drop))
    return select(cases, value)[:bits]


#: The result of each rounding; None = NORM.
MODES: dict[Rounding | None, str] = {
    Rounding.EVEN: "clamp(round(f32(product)) + zp), ties to even",
    Rounding.EVEN_ZERO_POINT_INSIDE: "clamp(round(f32(f32(product) + zp))), ties to even",
    Rounding.HALF_AWAY: "clamp(round(f32(product)) + zp), ties away from zero",
    None: "clamp(round(f32(product) + bias / 2**23) + zp), ties to even, of products below 2**9",
}


def mode_name(mode: Rounding | None) -> str:
    """Returns the name of a rounding."""
    return mode.name if mode is not None else "NORM"


def rounded(only: str | None, mode: Rounding | None) -> Bench:
    """Stages 6 to 11, with any product that `multiply` makes. Magnitudes from 2**9 on count as 2**9, which is beyond
    both limits with any zero point; without a mode it is NORM, of which `tilewright.isa.row_norm.normalise` says the
    same with the mantissa at 2**8, and what is added inside is any bias."""
    b = Bench(only)
    norm = mode is None
    part, m = _stages(b, norm)
    product, below, offset = b.free(36, "product"), b.free(1, "below"), b.free(signed(10), "offset")
    negative, zero_point = b.free(1, "negative"), b.free(signed(8), "zero_point")
    low, high = b.free(signed(8), "low"), b.free(signed(8), "high")
    b.assume(Mux(product == 0, ~below, product >= 1 << 34))
    b.assume((offset <= INTEGER - 1 + 126) & (offset >= INTEGER - 1 - (190 if norm else 159)))
    b.assume(low <= high)
    if norm:
        addend = b.free(signed(32), "addend")
        _drive(b, part, addend=b.past(addend, "addend", 3))
    sign_in = Signal(name="given_negative")  # it leaves the multiplier a cycle before the product
    ins = [Signal.like(x, name=f"given_{x.name}") for x in (product, below, offset)]
    b.m.d.comb += [to.eq(b.past(x, f"in_{x.name}")) for to, x in zip(ins, (product, below, offset))]
    b.m.d.comb += sign_in.eq(negative)
    mantissa, distance = part._round_product(m, *ins)
    part._round(m, part._fixed_point(m, mantissa, distance, sign_in))
    inside = mode == Rounding.EVEN_ZERO_POINT_INSIDE
    _drive(
        b,
        part,
        inside_zero_point=b.past(zero_point, "inside_zero_point", 3) if inside else 0,
        zero_point=0 if inside else b.past(zero_point, "outside_zero_point", 5),
        window=int(inside),
        away=int(mode == Rounding.HALF_AWAY),
        low=b.past(low, "low", 6),
        high=b.past(high, "high", 6),
    )

    def then(value: Value, name: str) -> Value:
        return b.past(value, f"{name}_then", 7)

    # f32(product) = mantissa * 2**(exponent - 23); the product has 46 - 12 bits behind its 1.
    whole = Cat(then(below, "below"), then(product, "product"))
    double = whole[36]
    kept = Mux(double, even(whole, 13), even(whole, 12))
    exponent = Signal(signed(12), name="exponent")
    b.m.d.comb += exponent.eq(INTEGER - 1 - then(offset, "offset") + double)
    width = INTEGER + 1 + FRACTION
    x, total = Signal(width, name="x"), Signal(width + 1, name="total")
    large, top = exponent >= INTEGER, INTEGER - 1
    if norm:
        large, capped = C(0), Mux(exponent > top, top, exponent)
    else:
        capped = Mux(large, 0, exponent)
    exact = kept << (capped + 126)[:8].as_unsigned()
    b.m.d.comb += x.eq(
        Mux(kept == 0, 0, Mux(large | (exact >> (INTEGER + FRACTION)).any(), 1 << (INTEGER + FRACTION), exact))
    )
    minus, zp = then(negative, "negative"), then(zero_point, "zero_point")
    if inside:
        signed_sum = Mux(minus, -x, x) + (zp << FRACTION)
        minus = signed_sum < 0
        b.m.d.comb += total.eq(Mux(minus, -signed_sum, signed_sum))
        integer = even(_float(total, width + 1), FRACTION)
        zp = C(0)
    elif norm:
        signed_sum = Mux(minus, -x, x) + (then(addend, "added") << (FRACTION - BIAS_FRACTION))
        minus = signed_sum < 0
        b.m.d.comb += total.eq(Mux(minus, -signed_sum, signed_sum))
        integer = even(total, FRACTION)
    elif mode == Rounding.HALF_AWAY:
        integer = (x + (1 << (FRACTION - 1))) >> FRACTION
    else:
        integer = even(x, FRACTION)
    y = Mux(minus, -integer, integer) + zp
    least, most = then(low, "least"), then(high, "most")
    expected = Mux(y > most, most, Mux(y < least, least, y))
    b.check(
        "result",
        implies(b.past(C(1), "there", 7), part.result == expected),
        f"Requantiser, {mode_name(mode)}: {MODES[mode]}",
        Cut("part.near10"),
    )
    return b


assert START == INTEGER - 1 - 31 + BIAS
