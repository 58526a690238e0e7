"""Results of 16 bits, a byte at a time: a lane of VECTOR_WIDE, equal to
`tilewright.isa.wide_numerics.requantize_wide_bits`."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.vector.requantizer import REQUANTIZE_STAGES, SCALE_STAGE
from tilewright.isa.instructions import BY_NAME
from tilewright.isa.wide_bits import WIDE_BIAS_BIT, WIDE_SHIFT_BIT

#: Bits of the sums, and of the multipliers.
SUM, MULTIPLIER = 48, 15
#: Cycles after `acc` at which the limits and the byte are looked at.
LIMIT_STAGE = SCALE_STAGE + 6
#: Cycles from `acc` to the result, before it waits for the other requantiser.
_STAGES = LIMIT_STAGE + 1
LIMIT_BITS = {name: BY_NAME["VECTOR_WIDE"].by_name[name].bits for name in ("low", "high")}


class WideRequantizer(wiring.Component):
    """48 bits to 16: multiplication, right shift, rounding upwards, clamp, and one byte of what comes out.

    Stages (one register each): until the scale is there; upper part of the bias; two partial products; product; shift
    by multiples of 16; by the rest; rounding; clamp and byte; until the other requantiser would have its result.

    Latency: REQUANTIZE_STAGES cycles, one value per cycle. Parameters enter when their stage looks at them.

    Ports:
        acc: value, in cycle 0.
        scale: multiplier, shift and upper part of the bias as `tilewright.isa.wide_numerics.wide_parameters` has them;
            in cycle SCALE_STAGE.
        low, high, upper: limits; which byte. In cycle LIMIT_STAGE.
        result: in cycle REQUANTIZE_STAGES.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "acc": In(signed(SUM)),
                "scale": In(32),
                "low": In(signed(LIMIT_BITS["low"])),
                "high": In(signed(LIMIT_BITS["high"])),
                "upper": In(1),
                "result": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def stage(shape: int | Shape, name: str) -> Signal:
            return Signal(shape, name=name, reset_less=True)

        value: Signal = self.acc
        for n in range(SCALE_STAGE):
            later = stage(signed(SUM), f"acc{n}")
            m.d.sync += later.eq(value)
            value = later
        half, product_bits = SUM // 2, SUM + MULTIPLIER
        whole, scale = stage(signed(SUM), "whole"), stage(WIDE_BIAS_BIT, "scale_now")
        upper_part = value[32:] + self.scale[WIDE_BIAS_BIT:].as_signed()
        m.d.sync += [whole.eq(Cat(value[:32], upper_part[: SUM - 32])), scale.eq(self.scale)]
        multiplier = scale[:MULTIPLIER]
        lower, higher = stage(unsigned(half + MULTIPLIER), "lower"), stage(signed(half + MULTIPLIER), "higher")
        shift1 = stage(6, "shift1")
        m.d.sync += [
            lower.eq(whole[:half] * multiplier),
            higher.eq(whole[half:].as_signed() * Cat(multiplier, Const(0, 1)).as_signed()),
            shift1.eq(scale[WIDE_SHIFT_BIT:]),
        ]
        product, shift2 = stage(signed(product_bits), "product"), stage(6, "shift2")
        m.d.sync += [product.eq((higher << half) + lower), shift2.eq(shift1)]
        coarse, shift3 = stage(signed(product_bits), "coarse"), stage(4, "shift3")
        m.d.sync += [coarse.eq(product >> Cat(Const(0, 4), shift2[4:])), shift3.eq(shift2[:4])]
        fine = stage(signed(product_bits), "fine")
        m.d.sync += fine.eq(coarse >> shift3)
        rounded = stage(signed(product_bits), "rounded")
        m.d.sync += rounded.eq((fine + 1) >> 1)
        raised, clamped = Signal(signed(product_bits)), Signal(signed(LIMIT_BITS["high"]))
        m.d.comb += [
            raised.eq(Mux(rounded < self.low, self.low, rounded)),
            clamped.eq(Mux(raised > self.high, self.high, raised)),
        ]
        made = stage(8, "made")
        m.d.sync += made.eq(Mux(self.upper, clamped[8:16], Cat(clamped[:7], ~clamped[7])))
        for n in range(REQUANTIZE_STAGES - _STAGES):
            later = stage(8, f"made{n}")
            m.d.sync += later.eq(made)
            made = later
        m.d.comb += self.result.eq(made)
        return m
