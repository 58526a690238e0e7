"""One lane of the VECTOR pipeline."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.requantizer import REQUANTIZE_STAGES, Requantizer

# Cycles after the step in which a stage looks at its inputs.
READ_STAGE = 1  # scratchpad data is there
SOURCE_STAGE = 2
BIAS_STAGE = 3
REQUANTIZE_STAGE = 4
ADD_STAGE = REQUANTIZE_STAGE + REQUANTIZE_STAGES
ADD_CYCLES = 3
#: Low bits of the factors of Add that are multiplied by themselves.
SPLIT = 17
LUT_STAGE = ADD_STAGE + ADD_CYCLES
#: The result is registered at the end of this cycle and written to ACT in the next.
RESULT_STAGE = LUT_STAGE + 1


class VectorLane(wiring.Component):
    """Source, bias, requantiser, Add and table look-up of one lane.

    Parameters:
        tables: there are tables; without them `s17_index`, `s18_*` do not exist and the latency is the same.

    Latency: RESULT_STAGE + 1 cycles from the step to `result`. Each port enters at the stage in its name (`s7_scale`
    is looked at in cycle 7 after the step).

    Ports:
        s1_acc, s1_from_acc: word of ACC and whether it is the value.  s1_a, s1_take_a: byte of ACT and whether it was
            asked for; it may come cycles before the other operand.  s1_b, s1_valid: second operand; there is a step.
        s2_valid, s2_mul, s2_sum, s2_max, s2_first, s2_za, s2_zb: source stage; `first` starts a sum or maximum.
        s3_bias: bias, 0 where none is added.
        s7_scale, s11_*, s12_*, s13_low, s13_high: see `Requantizer`.
        s14_requantized: take the requantiser's result, not the value itself.
        s13_mb, s14_c, s14_ma, s16_shift, s16_above, s17_low, s17_high: integer Add; bit i of `above` is set for bits of
            the sum that are above the 8 bits of the shifted sum, without its sign bit.  low <= high.
        s17_add: take its result.  s17_index: to the table.
        s18_lut, s18_value: take the table's value.
        result: chosen of two registers.
    """

    def __init__(self, *, tables: bool = True) -> None:
        self.tables = tables
        look_up = {"s17_index": Out(8), "s18_lut": In(1), "s18_value": In(8)} if tables else {}
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
                "s3_bias": In(signed(32)),
                "s7_scale": In(32),
                "s11_inside_zero_point": In(signed(8)),
                "s12_window": In(1),
                "s12_away": In(1),
                "s12_zero_point": In(signed(8)),
                "s13_low": In(signed(8)),
                "s13_high": In(signed(8)),
                "s13_mb": In(signed(24)),
                "s14_requantized": In(1),
                "s14_ma": In(signed(24)),
                "s14_c": In(signed(32)),
                "s16_shift": In(5),
                "s16_above": In(31),
                "s17_low": In(signed(8)),
                "s17_high": In(signed(8)),
                "s17_add": In(1),
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

        # 2 -> 3: v3 is also the running sum or maximum, product3 the product of MUL; one of them is 0.
        v3, product3 = register(signed(32), "v3"), register(signed(18), "product3")
        goes_on, smaller = Signal(), Signal()
        m.d.comb += [
            goes_on.eq(self.s2_sum & ~self.s2_first),
            smaller.eq(self.s2_max & ~self.s2_first & (a2 <= v3[:8].as_signed())),
        ]
        with m.If(self.s2_valid & ~smaller):
            m.d.sync += v3.eq((acc2 | (v3 & goes_on.replicate(32))) + a2)
        with m.If(self.s2_valid & self.s2_mul):
            m.d.sync += v3.eq(0)
        m.d.sync += product3.eq(Mux(self.s2_mul, (a2 - self.s2_za) * (b2 - self.s2_zb), 0))

        # 3 -> 4: bias, wrapping.
        v4 = register(signed(32), "v4")
        m.d.sync += v4.eq((v3 | product3) + self.s3_bias)

        m.submodules.requantizer = requantizer = Requantizer()
        m.d.comb += [
            requantizer.acc.eq(v4),
            requantizer.scale.eq(self.s7_scale),
            requantizer.inside_zero_point.eq(self.s11_inside_zero_point),
            requantizer.window.eq(self.s12_window),
            requantizer.away.eq(self.s12_away),
            requantizer.zero_point.eq(self.s12_zero_point),
            requantizer.low.eq(self.s13_low),
            requantizer.high.eq(self.s13_high),
        ]
        raw = delayed(v4[:8], REQUANTIZE_STAGES, "raw")
        v14 = Signal(signed(8))
        m.d.comb += v14.eq(Mux(self.s14_requantized, requantizer.result, raw))
        b13 = delayed(b2, ADD_STAGE - 1 - SOURCE_STAGE, "b")

        # 13 -> 16: integer Add, wrapping. Multipliers in two parts, as wide as a DSP block takes; the second operand is
        # there earlier, so its part of the sum is made first.
        def scaled(value: Value, factor: Value, name: str) -> tuple[Signal, Signal]:
            """Products with the low bits and the rest of the factor, registered."""
            low, high = register(signed(8 + SPLIT), f"{name}_low"), register(signed(32 - SPLIT), f"{name}_high")
            m.d.sync += [low.eq(value * factor[:SPLIT]), high.eq(value * factor[SPLIT:].as_signed())]
            return low, high

        def summed(value: Value, low: Value, high: Value) -> Value:
            """value + low + (high << SPLIT), 32 bits."""
            return (Cat(value[:SPLIT], (value[SPLIT:] + high)[: 32 - SPLIT]) + low)[:32]

        offset15, total = register(32, "offset15"), register(signed(32), "total")
        m.d.sync += [
            offset15.eq(summed(self.s14_c, *scaled(b13, self.s13_mb, "mb"))),
            total.eq(summed(offset15, *scaled(v14, self.s14_ma, "ma"))),
        ]

        # 16 -> 17: shift, of which 8 bits are kept, and whether they are all of it.
        negative = total[31]
        low17, wide17, negative17 = register(signed(8), "low17"), register(1, "wide17"), register(1, "negative17")
        m.d.sync += [
            low17.eq(total >> self.s16_shift),
            wide17.eq(((total[:31] ^ negative.replicate(31)) & self.s16_above).any()),
            negative17.eq(negative),
        ]

        # 17: clamp, table look-up.
        added = Signal(signed(8))
        with m.If(Mux(wide17, ~negative17, low17 >= self.s17_high)):
            m.d.comb += added.eq(self.s17_high)
        with m.Elif(Mux(wide17, negative17, low17 < self.s17_low)):
            m.d.comb += added.eq(self.s17_low)
        with m.Else():
            m.d.comb += added.eq(low17)
        plain = delayed(v14, ADD_CYCLES, "plain")
        v17 = Signal(8)
        m.d.comb += v17.eq(Mux(self.s17_add, added, plain))
        result = delayed(v17, 2, "result")
        if self.tables:
            m.d.comb += self.s17_index.eq(v17)
            result = Mux(delayed(self.s18_lut, 1, "lut19"), delayed(self.s18_value, 1, "value19"), result)
        m.d.comb += self.result.eq(result)
        return m
