"""The float32 requantiser of one lane, bit-exact to `isa.numerics.requantize`."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Shape, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from isa.instructions import Rounding

#: Cycles from `acc` to `result`.
REQUANTIZE_STAGES = 10
#: Cycles after `acc` at which `scale`, zero point (to be added inside), and final parameters are looked at.
SCALE_STAGE = 3
INSIDE_STAGE = 7
WINDOW_STAGE = 8
FINAL_STAGE = 9

MANTISSA = 24
INTEGER = 9  # magnitudes of 2**INTEGER and more saturate whatever is done with them
FRACTION = 26  # fraction bits of the fixed-point value; the lowest holds "anything below"
#: float32 exponent bias, such that value = 1.f * 2**(exponent field - BIAS).
BIAS = 127


class Requantizer(wiring.Component):
    """int32 to int8: float32 conversion, float32 multiplication, rounding, zero point, clamp.

    Stages (one register each): magnitude; normalise; normalise and round to 24 bits; two partial products; product;
    normalise and round to 24 bits; shift to fixed point; sign (and zero point, in mode ZERO_POINT_INSIDE); distance
    from the tie; increment, zero point and clamp.

    With the zero point inside, the sum is rounded to float32 before it is rounded to an integer. That matters only next
    to a tie n + 1/2: sums within half a unit in the last place of it are moved onto the tie, then go to even.

    Latency: REQUANTIZE_STAGES cycles, one value per cycle. Parameters enter when their stage looks at them.

    Ports:
        acc: value, in cycle 0.
        scale: float32 pattern, in cycle SCALE_STAGE.
        inside, inside_zero_point: mode and zero point, in cycle INSIDE_STAGE.
        window: mode is ZERO_POINT_INSIDE, in cycle WINDOW_STAGE.
        rounding, zero_point, low, high: in cycle FINAL_STAGE.
        result: in cycle REQUANTIZE_STAGES.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "acc": In(signed(32)),
                "scale": In(32),
                "inside": In(1),
                "inside_zero_point": In(signed(8)),
                "window": In(1),
                "rounding": In(2),
                "zero_point": In(signed(8)),
                "low": In(signed(8)),
                "high": In(signed(8)),
                "result": Out(signed(8)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def stage(shape: int | Shape, name: str) -> Signal:
            return Signal(shape, name=name, reset_less=True)

        def delayed(value: Signal, cycles: int) -> Signal:
            for _ in range(cycles):
                later = Signal.like(value, name=value.name + "_d", reset_less=True)
                m.d.sync += later.eq(value)
                value = later
            return value

        # 0 -> 1: magnitude.
        magnitude, negative1 = stage(32, "magnitude"), stage(1, "negative1")
        m.d.sync += [
            negative1.eq(self.acc[31]),
            magnitude.eq(Mux(self.acc[31], -self.acc, self.acc)),
        ]

        # 1 -> 2: normalise by 16, 8, 4.
        value, shifts = magnitude, []
        for distance in (16, 8, 4):
            empty = Signal(name=f"empty{distance}")
            shifted = Signal(32, name=f"normal{distance}")
            m.d.comb += [empty.eq(value[32 - distance :] == 0), shifted.eq(Mux(empty, value << distance, value))]
            value = shifted
            shifts.append(empty)
        partly, zeros2 = stage(32, "partly"), stage(3, "zeros2")
        m.d.sync += [partly.eq(value), zeros2.eq(Cat(reversed(shifts)))]

        # 2 -> 3: normalise by 2, 1, round to 24 bits.
        value, shifts = partly, []
        for distance in (2, 1):
            empty = Signal(name=f"empty{distance}")
            shifted = Signal(32, name=f"normal{distance}")
            m.d.comb += [empty.eq(value[32 - distance :] == 0), shifted.eq(Mux(empty, value << distance, value))]
            value = shifted
            shifts.append(empty)
        zeros = Signal(5)
        rounded = Signal(MANTISSA + 1)
        m.d.comb += [
            zeros.eq(Cat(reversed(shifts), zeros2)),
            rounded.eq(value[8:] + (value[7] & (value[:7].any() | value[8]))),
        ]
        mantissa, exponent3, zero3 = stage(MANTISSA, "mantissa"), stage(signed(7), "exponent3"), stage(1, "zero3")
        m.d.sync += [
            mantissa.eq(Mux(rounded[MANTISSA], 1 << (MANTISSA - 1), rounded)),
            # value = 1.f * 2**(31 - leading zeros + carry)
            exponent3.eq(31 - zeros + rounded[MANTISSA]),
            zero3.eq(~value[31]),
        ]

        # 3 -> 4: partial products, exponents added.
        half = MANTISSA // 2
        factor = Cat(self.scale[: MANTISSA - 1], C(1, 1))
        scale_exponent = self.scale[MANTISSA - 1 : 31]
        low4, high4 = stage(MANTISSA + half, "low4"), stage(MANTISSA + half, "high4")
        exponent4, zero4, negative4 = stage(signed(10), "exponent4"), stage(1, "zero4"), stage(1, "negative4")
        negative3 = delayed(negative1, 2)
        m.d.sync += [
            low4.eq(mantissa * factor[:half]),
            high4.eq(mantissa * factor[half:]),
            exponent4.eq(exponent3 + scale_exponent - BIAS),
            zero4.eq(zero3 | (scale_exponent == 0)),
            negative4.eq(negative3 ^ self.scale[31]),
        ]

        # 4 -> 5: product.
        product = stage(2 * MANTISSA, "product")
        m.d.sync += product.eq(low4 + (high4 << half))
        exponent5, zero5 = delayed(exponent4, 1), delayed(zero4, 1)

        # 5 -> 6: normalise, round to 24 bits.
        top = product[2 * MANTISSA - 1]
        kept = Signal(MANTISSA)
        increment = Signal()
        with m.If(top):
            m.d.comb += [
                kept.eq(product[MANTISSA:]),
                increment.eq(product[MANTISSA - 1] & (product[: MANTISSA - 1].any() | product[MANTISSA])),
            ]
        with m.Else():
            m.d.comb += [
                kept.eq(product[MANTISSA - 1 : -1]),
                increment.eq(product[MANTISSA - 2] & (product[: MANTISSA - 2].any() | product[MANTISSA - 1])),
            ]
        rounded6 = Signal(MANTISSA + 1)
        m.d.comb += rounded6.eq(kept + increment)
        mantissa6, exponent6, zero6 = stage(MANTISSA, "mantissa6"), stage(signed(10), "exponent6"), stage(1, "zero6")
        m.d.sync += [
            mantissa6.eq(Mux(rounded6[MANTISSA], 1 << (MANTISSA - 1), rounded6)),
            exponent6.eq(exponent5 + top + rounded6[MANTISSA]),
            zero6.eq(zero5),
        ]

        # 6 -> 7: fixed point, INTEGER.FRACTION bits.
        width = INTEGER + FRACTION
        distance = Signal(signed(11))
        large, far = Signal(), Signal()
        m.d.comb += [
            distance.eq(INTEGER - 1 - exponent6),
            large.eq(distance < 0),
            far.eq(distance >= 64),
        ]
        shifted = Cat(C(0, width - MANTISSA), mantissa6)
        lost = C(0, 1)
        for bit in reversed(range(6)):
            reach = min(1 << bit, width)
            select = distance[bit]
            out = Signal(width, name=f"shift{bit}")
            gone = Signal(name=f"lost{bit}")
            m.d.comb += [
                gone.eq(lost | (select & shifted[:reach].any())),
                out.eq(Mux(select, shifted >> (1 << bit), shifted)),
            ]
            shifted, lost = out, gone
        fixed = stage(width, "fixed")
        with m.If(zero6):
            m.d.sync += fixed.eq(0)
        with m.Elif(large):
            m.d.sync += fixed.eq(((1 << INTEGER) - 1) << FRACTION)
        with m.Elif(far):
            m.d.sync += fixed.eq(1)
        with m.Else():
            m.d.sync += fixed.eq(Cat(shifted[0] | lost, shifted[1:]))

        # 7 -> 8: sign, zero point inside.
        negative7 = delayed(negative4, 3)
        total = stage(signed(width + 2), "total")
        offset = Mux(self.inside, self.inside_zero_point, 0)
        m.d.sync += total.eq(Mux(negative7, -fixed, fixed) + (offset << FRACTION))

        # 8 -> 9: distance from the tie. The window is half a unit in the last place of float32, 0 in other modes.
        integer = total[FRACTION:].as_signed()
        negative8 = total[-1]
        magnitude8 = Signal(INTEGER + 1)
        reach8 = Signal(unsigned(INTEGER + 3))
        m.d.comb += magnitude8.eq(integer ^ negative8.replicate(INTEGER + 2))
        with m.If(self.window):
            m.d.comb += reach8.eq(2)
            for bit in range(INTEGER + 1):
                with m.If(magnitude8[bit]):  # the last true one counts
                    m.d.comb += reach8.eq(4 << bit)
        from_tie = Signal(signed(FRACTION + 1))
        within = Signal()
        m.d.comb += [
            from_tie.eq(total[:FRACTION] - (1 << (FRACTION - 1))),
            within.eq((from_tie <= reach8) & (from_tie >= -reach8)),
        ]
        integer9, tie9, up9, negative9 = (
            stage(signed(INTEGER + 2), "integer9"), stage(1, "tie9"), stage(1, "up9"), stage(1, "negative9"),
        )  # fmt: skip
        m.d.sync += [integer9.eq(integer), tie9.eq(within), up9.eq(from_tie > 0), negative9.eq(negative8)]

        # 9 -> 10: increment, zero point, clamp.
        away = self.rounding == Rounding.HALF_AWAY
        inside = self.rounding == Rounding.EVEN_ZERO_POINT_INSIDE
        y = Signal(signed(INTEGER + 4))
        m.d.comb += y.eq(
            integer9 + Mux(tie9, Mux(away, ~negative9, integer9[0]), up9) + Mux(inside, 0, self.zero_point)
        )
        with m.If((y > self.high) | (self.low > self.high)):
            m.d.sync += self.result.eq(self.high)
        with m.Elif(y < self.low):
            m.d.sync += self.result.eq(self.low)
        with m.Else():
            m.d.sync += self.result.eq(y)
        return m
