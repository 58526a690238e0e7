"""One lane of the VECTOR pipeline."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.requantizer import REQUANTIZE_STAGES, Requantizer
from isa.timing import ACT_READ_CYCLES

# Cycles after the step in which a stage looks at its inputs.
READ_STAGE = ACT_READ_CYCLES  # operands are there
SOURCE_STAGE = READ_STAGE + 1
PRODUCT_STAGE = SOURCE_STAGE + 1
BIAS_STAGE = PRODUCT_STAGE + 1
REQUANTIZE_STAGE = BIAS_STAGE + 1
ADD_STAGE = REQUANTIZE_STAGE + REQUANTIZE_STAGES
ADD_CYCLES = 3
#: Low bits of the factors of Add that are multiplied by themselves.
SPLIT = 17
CLAMP_STAGE = ADD_STAGE + ADD_CYCLES
LUT_STAGE = CLAMP_STAGE + 1
#: The result is registered at the end of this cycle and written to ACT in the next.
RESULT_STAGE = LUT_STAGE + 1


class VectorLane(wiring.Component):
    """Source, bias, requantiser, Add and table look-up of one lane.

    Parameters:
        tables: there are tables; without them `s21_index`, `s22_*` do not exist and the latency is the same.

    Latency: RESULT_STAGE + 1 cycles from the step to `result`. Each port enters at the stage in its name (`s9_scale`
    is looked at in cycle 8 after the step).

    Ports:
        s2_acc, s2_from_acc: word of ACC and whether it is the value.  s2_a, s2_take_a: byte of ACT and whether it was
            asked for; it may come cycles before the other operand.  s2_b, s2_valid: second operand; there is a step.
        s3_valid, s3_mul, s3_sum, s3_max, s3_first, s3_za, s3_zb: source stage; `first` starts a sum or maximum.
        s5_bias: bias, 0 where none is added.
        s9_scale, s13_*, s15_*, s16_low, s16_high: see `Requantizer`.
        s17_requantized: take the requantiser's result, not the value itself.
        s16_mb, s17_c, s17_ma, s19_shift, s19_above, s20_low, s20_high: integer Add; bit i of `above` is set for bits of
            the sum that are above the 8 bits of the shifted sum, without its sign bit.  low <= high.
        s20_add: take its result.  s21_index: to the table.
        s22_lut, s22_value: take the table's value.
        result: chosen of two registers.
    """

    def __init__(self, *, tables: bool = True) -> None:
        self.tables = tables
        look_up = {"s21_index": Out(8), "s22_lut": In(1), "s22_value": In(8)} if tables else {}
        super().__init__(
            {
                "s2_acc": In(signed(32)),
                "s2_from_acc": In(1),
                "s2_a": In(signed(8)),
                "s2_take_a": In(1),
                "s2_b": In(signed(8)),
                "s2_valid": In(1),
                "s3_valid": In(1),
                "s3_mul": In(1),
                "s3_sum": In(1),
                "s3_max": In(1),
                "s3_first": In(1),
                "s3_za": In(signed(8)),
                "s3_zb": In(signed(8)),
                "s5_bias": In(signed(32)),
                "s9_scale": In(32),
                "s13_inside_zero_point": In(signed(8)),
                "s15_window": In(1),
                "s15_away": In(1),
                "s15_zero_point": In(signed(8)),
                "s16_low": In(signed(8)),
                "s16_high": In(signed(8)),
                "s16_mb": In(signed(24)),
                "s17_requantized": In(1),
                "s17_ma": In(signed(24)),
                "s17_c": In(signed(32)),
                "s19_shift": In(5),
                "s19_above": In(31),
                "s20_low": In(signed(8)),
                "s20_high": In(signed(8)),
                "s20_add": In(1),
                **look_up,
                "result": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def register(shape: int | Shape, name: str) -> Signal:
            return Signal(shape, name=name, reset_less=True)

        def delayed(value: Value, cycles: int, name: str) -> Value:
            for n in range(cycles):
                later = register(Value.cast(value).shape(), f"{name}_{n}")
                m.d.sync += later.eq(value)
                value = later
            return value

        # 2 -> 3. Of `acc3` and `a3` the one that is not the value is 0.
        acc3, a3, b3 = register(signed(32), "acc3"), register(signed(8), "a3"), register(signed(8), "b3")
        m.d.sync += acc3.eq(Mux(self.s2_from_acc, self.s2_acc, 0))
        with m.If(self.s2_take_a):
            m.d.sync += a3.eq(self.s2_a)
        with m.If(self.s2_from_acc):
            m.d.sync += a3.eq(0)
        with m.If(self.s2_valid):
            m.d.sync += b3.eq(self.s2_b)

        # 3 -> 4: v4 is also the running sum or maximum, 0 in MUL.
        v4, mul4 = register(signed(32), "v4"), register(1, "mul4")
        factors4 = [register(signed(9), f"factor{n}") for n in range(2)]
        goes_on, smaller = Signal(), Signal()
        m.d.comb += [
            goes_on.eq(self.s3_sum & ~self.s3_first),
            smaller.eq(self.s3_max & ~self.s3_first & (a3 <= v4[:8].as_signed())),
        ]
        with m.If(self.s3_valid & ~smaller):
            m.d.sync += v4.eq((acc3 | (v4 & goes_on.replicate(32))) + a3)
        with m.If(self.s3_valid & self.s3_mul):
            m.d.sync += v4.eq(0)
        m.d.sync += [
            mul4.eq(self.s3_mul),
            factors4[0].eq(a3 - self.s3_za),
            factors4[1].eq(b3 - self.s3_zb),
        ]

        # 4 -> 5: the product of MUL, in registers of the multiplier: nothing but a clock reaches them.
        v5, mul5, product5 = register(signed(32), "v5"), register(1, "mul5"), register(signed(18), "product5")
        m.d.sync += [v5.eq(v4), mul5.eq(mul4), product5.eq(factors4[0] * factors4[1])]

        # 5 -> 6: bias, wrapping.
        v6 = register(signed(32), "v6")
        m.d.sync += v6.eq((v5 | (product5 & mul5.replicate(32))) + self.s5_bias)

        m.submodules.requantizer = requantizer = Requantizer()
        m.d.comb += [
            requantizer.acc.eq(v6),
            requantizer.scale.eq(self.s9_scale),
            requantizer.inside_zero_point.eq(self.s13_inside_zero_point),
            requantizer.window.eq(self.s15_window),
            requantizer.away.eq(self.s15_away),
            requantizer.zero_point.eq(self.s15_zero_point),
            requantizer.low.eq(self.s16_low),
            requantizer.high.eq(self.s16_high),
        ]
        raw = delayed(v6[:8], REQUANTIZE_STAGES, "raw")
        v17 = Signal(signed(8))
        m.d.comb += v17.eq(Mux(self.s17_requantized, requantizer.result, raw))
        b16 = delayed(b3, ADD_STAGE - 1 - SOURCE_STAGE, "b")

        # 16 -> 19: integer Add, wrapping. Multipliers in two parts, as wide as a DSP block takes; the second operand is
        # there earlier, so its part of the sum is made first.
        def scaled(value: Value, factor: Value, name: str) -> tuple[Signal, Signal]:
            """Products with the low bits and the rest of the factor, registered."""
            low, high = register(signed(8 + SPLIT), f"{name}_low"), register(signed(32 - SPLIT), f"{name}_high")
            m.d.sync += [low.eq(value * factor[:SPLIT]), high.eq(value * factor[SPLIT:].as_signed())]
            return low, high

        def summed(value: Value, low: Value, high: Value) -> Value:
            """value + low + (high << SPLIT), 32 bits."""
            return (Cat(value[:SPLIT], (value[SPLIT:] + high)[: 32 - SPLIT]) + low)[:32]

        offset18, total = register(32, "offset18"), register(signed(32), "total")
        m.d.sync += [
            offset18.eq(summed(self.s17_c, *scaled(b16, self.s16_mb, "mb"))),
            total.eq(summed(offset18, *scaled(v17, self.s17_ma, "ma"))),
        ]

        # 19 -> 20: shift, of which 8 bits are kept, and whether they are all of it.
        negative = total[31]
        low20, wide20, negative20 = register(signed(8), "low20"), register(1, "wide20"), register(1, "negative20")
        m.d.sync += [
            low20.eq(total >> self.s19_shift),
            wide20.eq(((total[:31] ^ negative.replicate(31)) & self.s19_above).any()),
            negative20.eq(negative),
        ]

        # 20 -> 21: clamp.
        added = Signal(signed(8))
        with m.If(Mux(wide20, ~negative20, low20 >= self.s20_high)):
            m.d.comb += added.eq(self.s20_high)
        with m.Elif(Mux(wide20, negative20, low20 < self.s20_low)):
            m.d.comb += added.eq(self.s20_low)
        with m.Else():
            m.d.comb += added.eq(low20)
        plain = delayed(v17, ADD_CYCLES, "plain")
        v21 = register(8, "v21")
        m.d.sync += v21.eq(Mux(self.s20_add, added, plain))

        # 21 -> 23: table look-up.
        result = delayed(v21, 2, "result")
        if self.tables:
            m.d.comb += self.s21_index.eq(v21)
            result = Mux(delayed(self.s22_lut, 1, "lut23"), delayed(self.s22_value, 1, "value23"), result)
        m.d.comb += self.result.eq(result)
        return m
