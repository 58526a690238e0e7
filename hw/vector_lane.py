"""One lane of the VECTOR pipeline."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.requantizer import REQUANTIZE_STAGES, Requantizer

# Cycles after the step in which a stage looks at its inputs.
READ_STAGE = 1  # scratchpad data is there
SOURCE_STAGE = 2
PRODUCT_STAGE = 3
BIAS_STAGE = 4
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
        tables: there are tables; without them `s20_index`, `s21_*` do not exist and the latency is the same.

    Latency: RESULT_STAGE + 1 cycles from the step to `result`. Each port enters at the stage in its name (`s8_scale`
    is looked at in cycle 8 after the step).

    Ports:
        s1_acc, s1_from_acc: word of ACC and whether it is the value.  s1_a, s1_take_a: byte of ACT and whether it was
            asked for; it may come cycles before the other operand.  s1_b, s1_valid: second operand; there is a step.
        s2_valid, s2_mul, s2_sum, s2_max, s2_first, s2_za, s2_zb: source stage; `first` starts a sum or maximum.
        s4_bias: bias, 0 where none is added.
        s8_scale, s12_*, s14_*, s15_low, s15_high: see `Requantizer`.
        s16_requantized: take the requantiser's result, not the value itself.
        s15_mb, s16_c, s16_ma, s18_shift, s18_above, s19_low, s19_high: integer Add; bit i of `above` is set for bits of
            the sum that are above the 8 bits of the shifted sum, without its sign bit.  low <= high.
        s19_add: take its result.  s20_index: to the table.
        s21_lut, s21_value: take the table's value.
        result: chosen of two registers.
    """

    def __init__(self, *, tables: bool = True) -> None:
        self.tables = tables
        look_up = {"s20_index": Out(8), "s21_lut": In(1), "s21_value": In(8)} if tables else {}
        super().__init__(
            {
                "s1_acc": In(signed(32)),
                "s1_from_acc": In(1),
                "s1_a": In(signed(8)),
                "s1_take_a": In(1),
                "s1_b": In(signed(8)),
                "s1_valid": In(1),
                "s2_valid": In(1),
                "s2_mul": In(1),
                "s2_sum": In(1),
                "s2_max": In(1),
                "s2_first": In(1),
                "s2_za": In(signed(8)),
                "s2_zb": In(signed(8)),
                "s4_bias": In(signed(32)),
                "s8_scale": In(32),
                "s12_inside_zero_point": In(signed(8)),
                "s14_window": In(1),
                "s14_away": In(1),
                "s14_zero_point": In(signed(8)),
                "s15_low": In(signed(8)),
                "s15_high": In(signed(8)),
                "s15_mb": In(signed(24)),
                "s16_requantized": In(1),
                "s16_ma": In(signed(24)),
                "s16_c": In(signed(32)),
                "s18_shift": In(5),
                "s18_above": In(31),
                "s19_low": In(signed(8)),
                "s19_high": In(signed(8)),
                "s19_add": In(1),
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

        # 1 -> 2. Of `acc2` and `a2` the one that is not the value is 0.
        acc2, a2, b2 = register(signed(32), "acc2"), register(signed(8), "a2"), register(signed(8), "b2")
        m.d.sync += acc2.eq(Mux(self.s1_from_acc, self.s1_acc, 0))
        with m.If(self.s1_take_a):
            m.d.sync += a2.eq(self.s1_a)
        with m.If(self.s1_from_acc):
            m.d.sync += a2.eq(0)
        with m.If(self.s1_valid):
            m.d.sync += b2.eq(self.s1_b)

        # 2 -> 3: v3 is also the running sum or maximum, 0 in MUL.
        v3, mul3 = register(signed(32), "v3"), register(1, "mul3")
        factors3 = [register(signed(9), f"factor{n}") for n in range(2)]
        goes_on, smaller = Signal(), Signal()
        m.d.comb += [
            goes_on.eq(self.s2_sum & ~self.s2_first),
            smaller.eq(self.s2_max & ~self.s2_first & (a2 <= v3[:8].as_signed())),
        ]
        with m.If(self.s2_valid & ~smaller):
            m.d.sync += v3.eq((acc2 | (v3 & goes_on.replicate(32))) + a2)
        with m.If(self.s2_valid & self.s2_mul):
            m.d.sync += v3.eq(0)
        m.d.sync += [
            mul3.eq(self.s2_mul),
            factors3[0].eq(a2 - self.s2_za),
            factors3[1].eq(b2 - self.s2_zb),
        ]

        # 3 -> 4: the product of MUL, in registers of the multiplier: nothing but a clock reaches them.
        v4, mul4, product4 = register(signed(32), "v4"), register(1, "mul4"), register(signed(18), "product4")
        m.d.sync += [v4.eq(v3), mul4.eq(mul3), product4.eq(factors3[0] * factors3[1])]

        # 4 -> 5: bias, wrapping.
        v5 = register(signed(32), "v5")
        m.d.sync += v5.eq((v4 | (product4 & mul4.replicate(32))) + self.s4_bias)

        m.submodules.requantizer = requantizer = Requantizer()
        m.d.comb += [
            requantizer.acc.eq(v5),
            requantizer.scale.eq(self.s8_scale),
            requantizer.inside_zero_point.eq(self.s12_inside_zero_point),
            requantizer.window.eq(self.s14_window),
            requantizer.away.eq(self.s14_away),
            requantizer.zero_point.eq(self.s14_zero_point),
            requantizer.low.eq(self.s15_low),
            requantizer.high.eq(self.s15_high),
        ]
        raw = delayed(v5[:8], REQUANTIZE_STAGES, "raw")
        v16 = Signal(signed(8))
        m.d.comb += v16.eq(Mux(self.s16_requantized, requantizer.result, raw))
        b15 = delayed(b2, ADD_STAGE - 1 - SOURCE_STAGE, "b")

        # 15 -> 18: integer Add, wrapping. Multipliers in two parts, as wide as a DSP block takes; the second operand is
        # there earlier, so its part of the sum is made first.
        def scaled(value: Value, factor: Value, name: str) -> tuple[Signal, Signal]:
            """Products with the low bits and the rest of the factor, registered."""
            low, high = register(signed(8 + SPLIT), f"{name}_low"), register(signed(32 - SPLIT), f"{name}_high")
            m.d.sync += [low.eq(value * factor[:SPLIT]), high.eq(value * factor[SPLIT:].as_signed())]
            return low, high

        def summed(value: Value, low: Value, high: Value) -> Value:
            """value + low + (high << SPLIT), 32 bits."""
            return (Cat(value[:SPLIT], (value[SPLIT:] + high)[: 32 - SPLIT]) + low)[:32]

        offset17, total = register(32, "offset17"), register(signed(32), "total")
        m.d.sync += [
            offset17.eq(summed(self.s16_c, *scaled(b15, self.s15_mb, "mb"))),
            total.eq(summed(offset17, *scaled(v16, self.s16_ma, "ma"))),
        ]

        # 18 -> 19: shift, of which 8 bits are kept, and whether they are all of it.
        negative = total[31]
        low19, wide19, negative19 = register(signed(8), "low19"), register(1, "wide19"), register(1, "negative19")
        m.d.sync += [
            low19.eq(total >> self.s18_shift),
            wide19.eq(((total[:31] ^ negative.replicate(31)) & self.s18_above).any()),
            negative19.eq(negative),
        ]

        # 19 -> 20: clamp.
        added = Signal(signed(8))
        with m.If(Mux(wide19, ~negative19, low19 >= self.s19_high)):
            m.d.comb += added.eq(self.s19_high)
        with m.Elif(Mux(wide19, negative19, low19 < self.s19_low)):
            m.d.comb += added.eq(self.s19_low)
        with m.Else():
            m.d.comb += added.eq(low19)
        plain = delayed(v16, ADD_CYCLES, "plain")
        v20 = register(8, "v20")
        m.d.sync += v20.eq(Mux(self.s19_add, added, plain))

        # 20 -> 22: table look-up.
        result = delayed(v20, 2, "result")
        if self.tables:
            m.d.comb += self.s20_index.eq(v20)
            result = Mux(delayed(self.s21_lut, 1, "lut22"), delayed(self.s21_value, 1, "value22"), result)
        m.d.comb += self.result.eq(result)
        return m
