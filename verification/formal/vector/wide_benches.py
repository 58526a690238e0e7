"""Benches of VECTOR_WIDE: its requantiser, and the sums of a lane that go into it."""

from __future__ import annotations

from amaranth.hdl import Array, C, Cat, Const, Mux, Signal, Value, signed

from tilewright.hw.vector.lane import REQUANTIZE_STAGE, SOURCE_STAGE, VectorLane
from tilewright.hw.vector.requantizer import REQUANTIZE_STAGES, SCALE_STAGE
from tilewright.hw.vector.wide_requantizer import LIMIT_STAGE, MULTIPLIER, SUM, WideRequantizer
from tilewright.isa.wide_bits import WIDE_BIAS_BIT, WIDE_SHIFT_BIT
from verification.formal.bench import Bench, implies, opened
from verification.formal.engine import Cut


def requantizer(only: str | None) -> Bench:
    """The requantiser with any value, scale and limits. A product is the sum of the products with the two digits of the
    value that the part has."""
    b = Bench(only)
    part = WideRequantizer()
    acc, scale = b.free(signed(SUM), "acc"), b.free(32, "scale")
    low, high, upper = b.free(signed(16), "low"), b.free(signed(16), "high"), b.free(1, "upper")
    at_limits = LIMIT_STAGE - SCALE_STAGE
    b.part(
        "part",
        part,
        acc=acc,
        scale=scale,
        low=b.past(low, "low", at_limits),
        high=b.past(high, "high", at_limits),
        upper=b.past(upper, "upper", at_limits),
    )
    # In the cycle in which the scale is there.
    value = Signal(signed(SUM), name="value")
    b.m.d.comb += value.eq(b.past(acc, "value", SCALE_STAGE) + (scale[WIDE_BIAS_BIT:].as_signed() << 32))
    half = SUM // 2
    whole, factor = b.past(value, "whole"), b.past(scale[:MULTIPLIER], "factor")
    digits = (whole[:half] * factor, whole[half:].as_signed() * Cat(factor, Const(0, 1)).as_signed())
    digits = tuple(b.past(x, f"digit{n}") for n, x in enumerate(digits))
    product = Signal(signed(SUM + MULTIPLIER), name="exact")
    b.m.d.comb += product.eq((digits[1] << half) + digits[0])
    # round(product / 2**t), ties upwards.
    shift = b.past(scale[WIDE_SHIFT_BIT:WIDE_BIAS_BIT], "shift", 2)
    rounded = (product + (C(1) << shift)) >> shift >> 1
    least, most = b.past(low, "least", 2), b.past(high, "most", 2)
    y = Signal(signed(16), name="y")
    b.m.d.comb += y.eq(Mux(rounded > most, most, Mux(rounded < least, Mux(least > most, most, least), rounded)))
    result = Signal(8, name="expected")
    b.m.d.comb += result.eq(Mux(b.past(upper, "which", 2), y >> 8, (y & 255) - 128))
    there = b.past(C(1), "there", REQUANTIZE_STAGES)
    b.check(
        "result",
        implies(there, part.result == b.past(result, "result", REQUANTIZE_STAGES - SCALE_STAGE - 2)),
        "VECTOR_WIDE: the byte of clamp(round((v + h * 2**32) * m / 2**t), low, high), ties upwards, in "
        "wrapping 48 bits",
        Cut("part.fine", 13),
    )
    return b


def sums(only: str | None, passes: int) -> Bench:
    """The sums of a lane, of any groups, in `passes`."""
    b = Bench(only)
    lane = VectorLane(passes=passes, wide=True)
    module = opened(lane)
    for name in ("requantizer", "wide_requantizer"):
        b.cut(getattr(module.submodules, name), name)
    b.part("lane", lane)
    lane_control, wide = lane.control, module.submodules.wide_requantizer
    turn = Signal(range(passes), name="turn")
    with b.m.If(lane_control.valid):
        b.m.d.sync += turn.eq(Mux(turn == passes - 1, 0, turn + 1))
    so_far = Array(Signal(signed(SUM), name=f"so_far{n}") for n in range(passes))
    value = Signal(signed(SUM), name="v")
    b.m.d.comb += value.eq(Mux(lane_control.first, 0, so_far[turn] << 8) + lane.acc)
    some = Signal(name="some")
    with b.m.If(lane_control.valid):
        b.m.d.sync += [so_far[turn].eq(value), some.eq(1)]
    b.assume(implies(lane_control.valid & ~some, lane_control.first))
    cycles = REQUANTIZE_STAGE - SOURCE_STAGE
    there = b.past(lane_control.valid, "there", cycles)
    given: Value = b.past(value, "given", cycles) + b.past(lane.bias, "bias")
    b.check(
        "value",
        implies(there, wide.acc == given[:SUM].as_signed()),
        "VECTOR_WIDE: a lane gives it the sum of ACC since the group began, shifted left by 8 before each"
        " further row, plus the bias, in wrapping 48 bits",
        Cut("lane.wide5"),
    )
    return b
