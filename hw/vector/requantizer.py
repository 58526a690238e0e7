"""The float32 requantiser of one lane, bit-exact to `tilewright.isa.numerics.requantize`."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.isa.row_bits import BIAS_FRACTION, SUM_FRACTION

#: Cycles from `acc` to `result`.
REQUANTIZE_STAGES = 11
#: Cycles after `acc` at which `scale`, the zero point to be added inside, mode and zero point to be added outside, and
#: the limits are looked at.
START_STAGE = 2
SCALE_STAGE = 3
INSIDE_STAGE = 7
WINDOW_STAGE = 9
FINAL_STAGE = 10

MANTISSA = 24
HALF = MANTISSA // 2  # a product is made of four of these
INTEGER = 9  # magnitudes of 2**(INTEGER - 1) and more saturate whatever is done with them
FRACTION = 26  # fraction bits of the fixed-point value; the lowest holds "anything below"
#: float32 exponent bias, such that value = 1.f * 2**(exponent field - BIAS).
BIAS = 127
#: How far the product of a value without leading zeros and 1.f * 2**0 is to be shifted right to get to fixed point.
START = INTEGER - 1 - 31 + BIAS
assert FRACTION == SUM_FRACTION


class Requantizer(wiring.Component):
    """int32 to int8: float32 conversion, float32 multiplication, rounding, zero point, clamp.

    A digit at the end of a name is the stage. Stages (one register each): magnitude; normalise by 4, 8, 16; normalise
    by 1, 2 and round to 24 bits; four partial products; product; normalise and round to 24 bits; shift to fixed point;
    sign (and zero point, in mode ZERO_POINT_INSIDE); distance from the tie; side of the tie (and zero point in the
    other modes); increment and clamp.

    Rounding up to 2**24 is not normalised again: one bit more carries it to the next stage that shifts.

    With the zero point inside, the sum is rounded to float32 before it is rounded to an integer. That matters only next
    to a tie n + 1/2: sums within half a unit in the last place of it are moved onto the tie, then go to even.

    Latency: REQUANTIZE_STAGES cycles, one value per cycle. Parameters enter when their stage looks at them.

    Parameters:
        rows: there are `start` and `addend`.

    Ports:
        acc: value, in cycle 0.
        scale: float32 pattern, in cycle SCALE_STAGE.
        start: START less the power of two that the value is multiplied with; in cycle START_STAGE.
        addend: is added inside, with BIAS_FRACTION bits of a fraction; in cycle INSIDE_STAGE.
        inside_zero_point: zero point in mode ZERO_POINT_INSIDE, else 0; in cycle INSIDE_STAGE.
        window: mode is ZERO_POINT_INSIDE.  away: mode is HALF_AWAY.  zero_point: that of the modes other than
            ZERO_POINT_INSIDE, else 0. All in cycle WINDOW_STAGE.
        low, high: in cycle FINAL_STAGE; low <= high.
        result: in cycle REQUANTIZE_STAGES.
    """

    def __init__(self, *, rows: bool = False) -> None:
        self.rows = rows
        super().__init__(
            {
                "acc": In(signed(32)),
                "scale": In(32),
                **({"start": In(8), "addend": In(signed(32))} if rows else {}),
                "inside_zero_point": In(signed(8)),
                "window": In(1),
                "away": In(1),
                "zero_point": In(signed(8)),
                "low": In(signed(8)),
                "high": In(signed(8)),
                "result": Out(signed(8)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        magnitude, nibbles, negative = self._magnitude(m)
        mantissa, offset = self._normalise(m, magnitude, nibbles)
        product, below, offset, negative = self._multiply(m, mantissa, offset, negative)
        mantissa, distance = self._round_product(m, product, below, offset)
        total = self._fixed_point(m, mantissa, distance, negative)
        self._round(m, total)
        return m

    def _magnitude(self, m: Module) -> tuple[Signal, Signal, Signal]:
        """Stage 1: takes magnitude and sign apart. Returns the magnitude, a bit for each of its nibbles that is not 0,
        and the sign."""
        # 0 -> 1: magnitude, and which of its nibbles are not 0.
        magnitude, negative1, nibbles = _stage(32, "magnitude"), _stage(1, "negative1"), _stage(8, "nibbles")
        absolute = Signal(32)
        m.d.comb += absolute.eq((self.acc ^ self.acc[31].replicate(32)) + self.acc[31])
        m.d.sync += [
            negative1.eq(self.acc[31]),
            magnitude.eq(absolute),
            nibbles.eq(Cat(absolute.word_select(n, 4).any() for n in range(8))),
        ]
        return magnitude, nibbles, negative1

    def _normalise(self, m: Module, magnitude: Signal, nibbles: Signal) -> tuple[Signal, Signal]:
        """Stage 3: normalises. Returns the mantissa, and the shift to the right that brings its product with 1.f * 2**0
        to fixed point."""
        # 1 -> 2: normalise by 16, 8, 4.
        value, there = magnitude, nibbles
        zeros: list[Signal] = []
        for distance in (16, 8, 4):
            half = len(there) // 2
            empty = Signal(name=f"empty{distance}")
            shifted = Signal(32, name=f"normal{distance}")
            upper = Signal(half, name=f"there{distance}")  # the nibbles of the upper half, after the shift
            m.d.comb += [
                empty.eq(~there[half:].any()),
                shifted.eq(Mux(empty, value << distance, value)),
                upper.eq(Mux(empty, there[:half], there[half:])),
            ]
            value, there = shifted, upper
            zeros.insert(0, empty)
        partly, zeros2, below2 = _stage(32, "partly"), _stage(3, "zeros2"), _stage(1, "below2")
        m.d.sync += [partly.eq(value), zeros2.eq(Cat(zeros)), below2.eq(value[:4].any())]

        # 2 -> 3: normalise by 2, 1, round to 24 bits.
        by2, by1 = Signal(), Signal()
        normal = Signal(32)
        m.d.comb += [
            by2.eq(~partly[30:].any()),
            by1.eq(~Mux(by2, partly[29], partly[31])),
            normal.eq(Mux(by2, Mux(by1, partly << 3, partly << 2), Mux(by1, partly << 1, partly))),
        ]
        below = below2 | (partly[4] & ~(by2 & by1)) | (partly[5] & ~by2) | (partly[6] & ~by2 & ~by1)
        mantissa, offset3 = _stage(MANTISSA + 1, "mantissa"), _stage(8, "offset3")
        # value = 1.f * 2**(31 - leading zeros). Kept is how far its product with 1.f * 2**0 is to be shifted right to
        # get to fixed point: INTEGER - 1 less the exponent.
        m.d.sync += [
            mantissa.eq(normal[8:] + (normal[7] & (below | normal[8]))),
            offset3.eq(Cat(by1, by2, zeros2) + (self.start if self.rows else START)),
        ]
        return mantissa, offset3

    def _multiply(
        self, m: Module, mantissa: Signal, offset3: Signal, negative1: Signal
    ) -> tuple[Signal, Signal, Signal, Signal]:
        """Stage 5: multiplies by the scale. Returns the product, whether anything is below it, its shift, and the sign
        in stage 4."""
        # 3 -> 4: partial products, exponents. Scales below the normal ones count as 0.
        factor = Cat(self.scale[: MANTISSA - 1], C(1, 1))
        exponent = self.scale[MANTISSA - 1 : 31]
        parts: dict[tuple[int, int], Signal] = {}
        for x, operand in enumerate((mantissa[:HALF], mantissa[HALF:])):
            for y, other in enumerate((factor[:HALF], factor[HALF:])):
                parts[x, y] = part = _stage(len(operand) + HALF, f"part{x}{y}")
                m.d.sync += part.eq(operand * other)
        zero4 = _stage(1, "zero4")  # not in the parts: nothing but a clock reaches the registers of a multiplier
        m.d.sync += zero4.eq(exponent == 0)
        offset4, negative4 = _stage(signed(10), "offset4"), _stage(1, "negative4")
        negative3 = _delayed(m, negative1, 2)
        m.d.sync += [offset4.eq(offset3 - exponent), negative4.eq(negative3 ^ self.scale[31])]

        # 4 -> 5: product; of its lowest bits only whether there is anything.
        middle = Signal(2 * HALF + 2)
        product, below5 = _stage(2 * MANTISSA - HALF, "product"), _stage(1, "below5")
        m.d.comb += middle.eq(parts[0, 1] + parts[1, 0])
        m.d.sync += [
            product.eq(Cat(parts[0, 0][HALF:], parts[1, 1]) + middle),
            below5.eq(parts[0, 0][:HALF].any()),
        ]
        with m.If(zero4):
            m.d.sync += [product.eq(0), below5.eq(0)]
        offset5 = _delayed(m, offset4, 1)
        return product, below5, offset5, negative4

    def _round_product(self, m: Module, product: Signal, below5: Signal, offset5: Signal) -> tuple[Signal, Signal]:
        """Stage 6: rounds. Returns the product as a float32 mantissa, and its shift."""
        # 5 -> 6: normalise, round to 24 bits.
        top = product[-1]
        guard = MANTISSA - 2 - HALF  # first bit below the mantissa, if `top` is 0
        low5 = below5 | product[:guard].any()
        kept = Signal(MANTISSA)
        increment = Signal()
        with m.If(top):
            m.d.comb += [
                kept.eq(product[guard + 2 :]),
                increment.eq(product[guard + 1] & (low5 | product[guard] | product[guard + 2])),
            ]
        with m.Else():
            m.d.comb += [
                kept.eq(product[guard + 1 : -1]),
                increment.eq(product[guard] & (low5 | product[guard + 1])),
            ]
        mantissa6, distance6 = _stage(MANTISSA + 1, "mantissa6"), _stage(6, "distance6")
        distance = Signal(signed(11))
        large, far = Signal(), Signal()
        m.d.comb += [
            distance.eq(offset5 - top),
            large.eq(distance < 0),  # 2**(INTEGER - 1) or more at distance 0: saturates as well
            far.eq(distance[6:].any()),
        ]
        m.d.sync += [
            mantissa6.eq(kept + increment),
            distance6.eq((distance[:6] | far.replicate(6)) & ~large.replicate(6)),
        ]
        return mantissa6, distance6

    def _fixed_point(self, m: Module, mantissa6: Signal, distance6: Signal, negative4: Signal) -> Signal:
        """Stage 8: returns the value in fixed point, with the addend and the zero point that are added inside."""
        # 6 -> 7: fixed point, 1 + INTEGER.FRACTION bits, inverted if negative.
        width = 1 + INTEGER + FRACTION
        negative6 = _delayed(m, negative4, 2)
        shifted = Cat(C(0, width - MANTISSA - 1), mantissa6)
        lost = []
        for bit in reversed(range(6)):
            reach = min(1 << bit, width)
            select = distance6[bit]
            out = Signal(width, name=f"shift{bit}")
            lost.append(select & shifted[:reach].any())
            m.d.comb += out.eq(Mux(select, shifted >> (1 << bit), shifted))
            shifted = out
        fixed, lost7, negative7 = _stage(width, "fixed"), _stage(3, "lost7"), _delayed(m, negative6, 1)
        m.d.sync += [
            fixed.eq(shifted ^ negative6.replicate(width)),
            lost7.eq(Cat(Cat(lost[:4]).any(), lost[4:])),
        ]

        # 7 -> 8: sign, zero point inside.
        total = _stage(signed(width + 1), "total")
        value7 = Cat(Mux(lost7.any(), ~negative7, fixed[0]), fixed[1:], negative7).as_signed()
        inside: Value = self.inside_zero_point
        below_one: Value = C(0, FRACTION - 1)
        if self.rows:
            inside = Cat(inside, inside[-1]) | self.addend[BIAS_FRACTION:]
            below_one = Cat(C(0, FRACTION - 1 - BIAS_FRACTION), self.addend[:BIAS_FRACTION])
        addend = Cat(negative7, below_one, inside).as_signed()
        m.d.sync += total.eq(value7 + addend)
        return total

    def _round(self, m: Module, total: Signal) -> None:
        """Stage 11: drives the nearest integer, with the zero point of the other modes, clamped to the limits."""
        # 8 -> 9: distance from the tie, inverted if before it.
        integer8, negative8 = total[FRACTION:].as_signed(), total[-1]
        from_tie = Signal(signed(FRACTION))
        m.d.comb += from_tie.eq(total[:FRACTION] ^ (1 << (FRACTION - 1)))
        integer, negative9 = _stage(signed(INTEGER + 2), "integer"), _stage(1, "negative9")
        magnitude9, before = _stage(INTEGER + 1, "magnitude9"), _stage(1, "before")
        apart9 = _stage(FRACTION - 1, "apart9")
        m.d.sync += [
            integer.eq(integer8),
            negative9.eq(negative8),
            magnitude9.eq(integer8 ^ negative8.replicate(INTEGER + 2)),
            before.eq(from_tie[-1]),
            apart9.eq(from_tie[:-1] ^ from_tie[-1].replicate(FRACTION - 1)),
        ]

        # 9 -> 10: on which side of the tie, or on it. The window is half a unit in the last place of float32:
        # 2**(bits + 1), where `bits` is the length of the integer part; 0 in other modes.
        # Bit i of `at_least`: the window is on and the integer part has more than i bits.
        at_least = [self.window & magnitude9[i:].any() for i in range(INTEGER + 1)] + [C(0, 1)]
        exactly = [above & ~here for above, here in zip([self.window, *at_least], at_least)]
        reached = apart9[1 : INTEGER + 3]  # a bit for each of `at_least`
        near = ~apart9[INTEGER + 3 :].any()
        inside = Cat(~bit | there for bit, there in zip(reached, at_least)).all()
        on_edge = Cat(bit == there for bit, there in zip(reached, exactly)).all()
        after = ~before & ~apart9[0]
        sum10 = _stage(signed(INTEGER + 3), "sum10")
        near10, within10, edge10 = _stage(1, "near10"), _stage(1, "within10"), _stage(1, "edge10")
        tie_up10, up10 = _stage(1, "tie_up10"), _stage(1, "up10")
        m.d.sync += [
            sum10.eq(integer + self.zero_point),
            near10.eq(near),
            within10.eq(inside & (self.window | after)),
            edge10.eq(on_edge & self.window & after),
            tie_up10.eq(Mux(self.away, ~negative9, integer[0])),
            up10.eq(~before & apart9.any()),
        ]

        # 10 -> 11: increment, clamp. At the upper limit the increment does not count, nor just below the lower one.
        y = Signal(8)
        m.d.comb += y.eq(sum10 + Mux(near10 & (within10 | edge10), tie_up10, up10))
        with m.If(sum10 >= self.high):
            m.d.sync += self.result.eq(self.high)
        with m.Elif(sum10 < self.low):
            m.d.sync += self.result.eq(self.low)
        with m.Else():
            m.d.sync += self.result.eq(y)


def _stage(shape: int | Shape, name: str) -> Signal:
    """Makes a register of the pipeline."""
    return Signal(shape, name=name, reset_less=True)


def _delayed(m: Module, value: Signal, cycles: int) -> Signal:
    """Delays a value by this many stages."""
    for _ in range(cycles):
        later = Signal.like(value, name=value.name + "_d", reset_less=True)
        m.d.sync += later.eq(value)
        value = later
    return value
