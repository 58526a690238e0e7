"""One lane of the VECTOR pipeline."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Shape, Signal, Value, signed
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
LUT_STAGE = ADD_STAGE + ADD_CYCLES
#: The result is registered at the end of this cycle and written to ACT in the next.
RESULT_STAGE = LUT_STAGE + 1


def clamp(m: Module, target: Signal, value: Value, low: Value, high: Value) -> None:
    """target <= min(max(value, low), high), registered."""
    with m.If((value > high) | (low > high)):
        m.d.sync += target.eq(high)
    with m.Elif(value < low):
        m.d.sync += target.eq(low)
    with m.Else():
        m.d.sync += target.eq(value)


class VectorLane(wiring.Component):
    """Source, bias, requantiser, Add and table look-up of one lane.

    Parameters:
        tables: there are tables; without them `s17_index`, `s18_*` do not exist and the latency is the same.

    Latency: RESULT_STAGE + 1 cycles from the step to `result`. Each port enters at the stage in its name (`s7_scale`
    is looked at in cycle 7 after the step).

    Ports:
        s1_acc, s1_a, s1_b, s1_valid, s1_from_acc: scratchpad data; what to take.
        s2_valid, s2_mul, s2_sum, s2_max, s2_first, s2_za, s2_zb: source stage; `first` starts a sum or maximum.
        s3_biased, s3_bias: adds the bias.
        s7_scale, s11_*, s12_*, s13_*: see `Requantizer`.
        s14_requantized: take the requantiser's result, not the value itself.
        s14_ma, s14_mb, s15_c, s16_shift, s16_low, s16_high: integer Add.
        s17_add: take its result.  s17_index: to the table.
        s18_lut, s18_value: take the table's value.
        result: registered.
    """

    def __init__(self, *, tables: bool = True) -> None:
        self.tables = tables
        look_up = {"s17_index": Out(8), "s18_lut": In(1), "s18_value": In(8)} if tables else {}
        super().__init__(
            {
                "s1_acc": In(signed(32)),
                "s1_a": In(signed(8)),
                "s1_b": In(signed(8)),
                "s1_valid": In(1),
                "s1_from_acc": In(1),
                "s2_valid": In(1),
                "s2_mul": In(1),
                "s2_sum": In(1),
                "s2_max": In(1),
                "s2_first": In(1),
                "s2_za": In(signed(8)),
                "s2_zb": In(signed(8)),
                "s3_biased": In(1),
                "s3_bias": In(signed(32)),
                "s7_scale": In(32),
                "s11_inside": In(1),
                "s11_zero_point": In(signed(8)),
                "s12_window": In(1),
                "s13_rounding": In(2),
                "s13_zero_point": In(signed(8)),
                "s13_low": In(signed(8)),
                "s13_high": In(signed(8)),
                "s14_requantized": In(1),
                "s14_ma": In(signed(24)),
                "s14_mb": In(signed(24)),
                "s15_c": In(signed(32)),
                "s16_shift": In(5),
                "s16_low": In(signed(8)),
                "s16_high": In(signed(8)),
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

        # 1 -> 2.
        v2, b2 = register(signed(32), "v2"), register(signed(8), "b2")
        with m.If(self.s1_valid):
            m.d.sync += [v2.eq(Mux(self.s1_from_acc, self.s1_acc, self.s1_a)), b2.eq(self.s1_b)]

        # 2 -> 3: v3 is also the running sum or maximum.
        v3 = register(signed(32), "v3")
        with m.If(self.s2_valid):
            m.d.sync += v3.eq(v2)
            with m.If(self.s2_mul):
                m.d.sync += v3.eq((v2[:8].as_signed() - self.s2_za) * (b2 - self.s2_zb))
            with m.If(self.s2_sum & ~self.s2_first):
                m.d.sync += v3.eq(v3 + v2)
            with m.If(self.s2_max & ~self.s2_first):
                m.d.sync += v3.eq(Mux(v3[:8].as_signed() > v2[:8].as_signed(), v3, v2))

        # 3 -> 4: bias, wrapping.
        v4 = register(signed(32), "v4")
        m.d.sync += v4.eq(v3 + Mux(self.s3_biased, self.s3_bias, 0))

        m.submodules.requantizer = requantizer = Requantizer()
        m.d.comb += [
            requantizer.acc.eq(v4),
            requantizer.scale.eq(self.s7_scale),
            requantizer.inside.eq(self.s11_inside),
            requantizer.inside_zero_point.eq(self.s11_zero_point),
            requantizer.window.eq(self.s12_window),
            requantizer.rounding.eq(self.s13_rounding),
            requantizer.zero_point.eq(self.s13_zero_point),
            requantizer.low.eq(self.s13_low),
            requantizer.high.eq(self.s13_high),
        ]
        raw = delayed(v4[:8], REQUANTIZE_STAGES, "raw")
        v14 = Signal(signed(8))
        m.d.comb += v14.eq(Mux(self.s14_requantized, requantizer.result, raw))
        b14 = delayed(b2, ADD_STAGE - SOURCE_STAGE, "b")

        # 14 -> 17: integer Add, wrapping.
        pa, pb = register(signed(32), "pa"), register(signed(32), "pb")
        total = register(signed(32), "total")
        added = register(signed(8), "added")
        m.d.sync += [
            pa.eq(v14 * self.s14_ma),
            pb.eq(b14 * self.s14_mb),
            total.eq(pa + pb + self.s15_c),
        ]
        clamp(m, added, total >> self.s16_shift, self.s16_low, self.s16_high)

        # 17: table look-up.
        plain = delayed(v14, ADD_CYCLES, "plain")
        v17 = Signal(8)
        m.d.comb += v17.eq(Mux(self.s17_add, added, plain))
        v18 = delayed(v17, 1, "v18")
        if self.tables:
            m.d.comb += self.s17_index.eq(v17)
            v18 = Mux(self.s18_lut, self.s18_value, v18)
        m.d.sync += self.result.eq(v18)
        return m
