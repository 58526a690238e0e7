"""One lane of the VECTOR pipeline."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import C, Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.vector import requantizer, wide_requantizer
from tilewright.isa.timing import ACT_READ_CYCLES

# Cycles after the step in which a stage looks at its inputs.
READ_STAGE = ACT_READ_CYCLES  # operands are there
SOURCE_STAGE = READ_STAGE + 1
PRODUCT_STAGE = SOURCE_STAGE + 1
BIAS_STAGE = PRODUCT_STAGE + 1
REQUANTIZE_STAGE = BIAS_STAGE + 1
SCALE_STAGE = REQUANTIZE_STAGE + requantizer.SCALE_STAGE
ADD_STAGE = REQUANTIZE_STAGE + requantizer.REQUANTIZE_STAGES
ADD_CYCLES = 3
#: Low bits of the factors of Add that are multiplied by themselves.
SPLIT = 17
CLAMP_STAGE = ADD_STAGE + ADD_CYCLES
SHIFT_STAGE = CLAMP_STAGE - 1
LUT_STAGE = CLAMP_STAGE + 1
#: The result is registered at the end of this cycle and written to ACT in the next.
RESULT_STAGE = LUT_STAGE + 1


#: The control signals that all lanes share, and the stage at which the lanes use each of them.
CONTROL_STAGES = {
    "valid": SOURCE_STAGE,
    "mul": SOURCE_STAGE,
    "norm": SOURCE_STAGE,
    "norm_sum": PRODUCT_STAGE,
    "sum": SOURCE_STAGE,
    "max": SOURCE_STAGE,
    "first": SOURCE_STAGE,
    "za": SOURCE_STAGE,
    "zb": SOURCE_STAGE,
    "exponential": REQUANTIZE_STAGE,
    "start": REQUANTIZE_STAGE + requantizer.START_STAGE,
    "inside_zero_point": REQUANTIZE_STAGE + requantizer.INSIDE_STAGE,
    "window": REQUANTIZE_STAGE + requantizer.WINDOW_STAGE,
    "away": REQUANTIZE_STAGE + requantizer.WINDOW_STAGE,
    "zero_point": REQUANTIZE_STAGE + requantizer.WINDOW_STAGE,
    "low": REQUANTIZE_STAGE + requantizer.FINAL_STAGE,
    "high": REQUANTIZE_STAGE + requantizer.FINAL_STAGE,
    "mb": ADD_STAGE - 1,
    "wide_low": REQUANTIZE_STAGE + wide_requantizer.LIMIT_STAGE,
    "wide_high": REQUANTIZE_STAGE + wide_requantizer.LIMIT_STAGE,
    "upper": REQUANTIZE_STAGE + wide_requantizer.LIMIT_STAGE,
    "wide": ADD_STAGE,
    "requantized": ADD_STAGE,
    "ma": ADD_STAGE,
    "offset": ADD_STAGE,
    "shift": SHIFT_STAGE,
    "above": SHIFT_STAGE,
    "add_low": CLAMP_STAGE,
    "add_high": CLAMP_STAGE,
    "add": CLAMP_STAGE,
    "look_up": RESULT_STAGE,
}


class LaneControl(wiring.Signature):
    """The control signals that all lanes share; each enters at its stage in CONTROL_STAGES.

    Members:
        valid, mul, sum, max, first, za, zb: control of the source stage; `first` starts a sum or maximum.
        norm: a step of NORM, which starts from a times `mb`.  norm_sum: it was one in the cycle before; `offset` is
            added to the product.
        exponential: requantise the word of a wide table.
        start: see `Requantizer`.
        inside_zero_point, window, away, zero_point, low, high: see `Requantizer`.
        wide_low, wide_high, upper: limits and byte of VECTOR_WIDE, see `WideRequantizer`.
        wide: take its result.
        requantized: take the requantiser's result, not the value itself.
        ma, mb, offset, shift, above, add_low, add_high: integer Add; bit i of `above` is set for bits of the sum that
            are above the 8 bits of the shifted sum, without its sign bit.  add_low <= add_high.
        add: take its result.
        look_up: take the table's value.

    Parameters:
        tables: there are tables; without them there is no `look_up`.
        rows: bits of the words of wide tables where there is a row unit; without it there are no `norm`, `norm_sum`,
            `exponential` and `start`.
        wide: there is VECTOR_WIDE; without it there are no `wide_low`, `wide_high`, `upper` and `wide`.
    """

    def __init__(self, *, tables: bool, rows: int = 0, wide: bool = False) -> None:
        shapes: dict[str, Shape | int] = dict.fromkeys(CONTROL_STAGES, 1)
        shapes |= dict.fromkeys(("za", "zb", "inside_zero_point", "zero_point", "low", "high"), signed(8))
        shapes |= dict.fromkeys(("add_low", "add_high"), signed(8))
        shapes |= {"mb": signed(24), "ma": signed(24), "offset": signed(32), "shift": 5, "above": 31, "start": 8}
        if not tables:
            del shapes["look_up"]
        if not rows:
            for name in ("norm", "norm_sum", "exponential", "start"):
                del shapes[name]
        shapes |= {f"wide_{name}": signed(bits) for name, bits in wide_requantizer.LIMIT_BITS.items()}
        if not wide:
            for name in ("wide_low", "wide_high", "upper", "wide"):
                del shapes[name]
        super().__init__({name: Out(shape) for name, shape in shapes.items()})


def _register(shape: int | Shape, name: str) -> Signal:
    """Makes a register that needs no reset."""
    return Signal(shape, name=name, reset_less=True)


def _delayed(m: Module, value: Value, cycles: int, name: str) -> Value:
    """Delays a value by this many cycles."""
    for n in range(cycles):
        later = _register(Value.cast(value).shape(), f"{name}_{n}")
        m.d.sync += later.eq(value)
        value = later
    return value


def _scaled(m: Module, value: Value, factor: Value, name: str) -> tuple[Signal, Signal]:
    """Returns the products with the low SPLIT bits and with the rest of the factor, registered."""
    low, high = _register(signed(8 + SPLIT), f"{name}_low"), _register(signed(32 - SPLIT), f"{name}_high")
    m.d.sync += [low.eq(value * factor[:SPLIT]), high.eq(value * factor[SPLIT:].as_signed())]
    return low, high


def _summed(value: Value, low: Value, high: Value) -> Value:
    """Returns value + low + (high << SPLIT), 32 bits."""
    return (Cat(value[:SPLIT], (value[SPLIT:] + high)[: 32 - SPLIT]) + low)[:32]


class VectorLane(wiring.Component):
    """Source, bias, requantiser, Add and table look-up of one lane.

    Parameters:
        passes: steps come in so many passes, of which this lane has one element each.
        tables: there are tables; without them `index` and `value` do not exist and the latency is the same.
        rows: bits of the words of wide tables where there is a row unit, with `word_index`, `word` and `addend`.
        wide: there is VECTOR_WIDE.

    Latency: RESULT_STAGE + 1 cycles from the pass to `result`.

    Ports:
        control: control signals of all lanes.
        acc, a, b: operands, at SOURCE_STAGE; of `acc` and `a` the one that is not the value is 0.
        bias: 0 where none is added; at BIAS_STAGE.  scale: at SCALE_STAGE.
        index: index into the table, at LUT_STAGE.  value: byte of the table, a cycle after RESULT_STAGE.
        word_index: index into a wide table, a - za, at PRODUCT_STAGE.  word: word of the table, at REQUANTIZE_STAGE.
        addend: 0 where NORM is not, at INSIDE_STAGE of the requantiser.
        result: chosen of two registers.
    """

    def __init__(self, *, passes: int = 1, tables: bool = True, rows: int = 0, wide: bool = False) -> None:
        self.passes, self.tables, self.rows, self.wide = passes, tables, rows, wide
        super().__init__(
            {
                "control": In(LaneControl(tables=tables, rows=rows, wide=wide)),
                "acc": In(signed(32)),
                "a": In(signed(8)),
                "b": In(signed(8)),
                "bias": In(signed(32)),
                "scale": In(32),
                **({"index": Out(8), "value": In(8)} if tables else {}),
                **({"word_index": Out(8), "word": In(rows), "addend": In(signed(32))} if rows else {}),
                "result": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        v4, mul4, factors4 = self._source(m)
        if self.rows:
            m.d.comb += self.word_index.eq(factors4[0])
        v6, norm5 = self._sum(m, v4, mul4, factors4)
        v17 = self._requantize(m, v6)
        total = self._add(m, v17, norm5)
        added = self._clamp(m, total)
        plain = _delayed(m, v17, ADD_CYCLES, "plain")
        v21 = _register(8, "v21")
        m.d.sync += v21.eq(Mux(self.control.add, added, plain))
        self._look_up(m, v21)
        return m

    def _source(self, m: Module) -> tuple[Signal, Signal, list[Signal]]:
        """3 -> 4: v4 is also the running sum or maximum, 0 in MUL; that of the same element is as many passes old as a
        step has. Returns v4, whether it is MUL, and its factors."""
        control = self.control
        v4, mul4 = _register(signed(32), "v4"), _register(1, "mul4")
        before = v4
        for n in range(self.passes - 1):
            older = _register(signed(32), f"older{n}")
            with m.If(control.valid):
                m.d.sync += older.eq(before)
            before = older
        factors4 = [_register(signed(9), f"factor{n}") for n in range(2)]
        goes_on, smaller = Signal(), Signal()
        m.d.comb += [
            goes_on.eq(control.sum & ~control.first),
            smaller.eq(control.max & ~control.first & (self.a <= before[:8].as_signed())),
        ]
        if self.passes == 1:
            with m.If(control.valid & ~smaller):
                m.d.sync += v4.eq((self.acc | (before & goes_on.replicate(32))) + self.a)
        else:
            # Of a maximum only the 8 bits count.
            added = Signal(signed(32))
            m.d.comb += added.eq((self.acc | (before & goes_on.replicate(32))) + self.a)
            with m.If(control.valid):
                m.d.sync += v4.eq(Cat(Mux(smaller, before[:8], added[:8]), added[8:]))
        with m.If(control.valid & (control.mul | control.norm if self.rows else control.mul)):
            m.d.sync += v4.eq(0)
        m.d.sync += [
            mul4.eq(control.mul),
            factors4[0].eq(self.a - control.za),
            factors4[1].eq(self.b - control.zb),
        ]
        return v4, mul4, factors4

    def _sum(self, m: Module, v4: Value, mul4: Value, factors4: list[Signal]) -> tuple[Signal, Value]:
        """4 -> 6: the product of MUL, and the bias. Returns their sum, and the register of what NORM starts from."""
        # 4 -> 5: in registers of the multiplier: nothing but a clock reaches them.
        v5, mul5, product5 = _register(signed(32), "v5"), _register(1, "mul5"), _register(signed(18), "product5")
        m.d.sync += [v5.eq(v4), mul5.eq(mul4), product5.eq(factors4[0] * factors4[1])]

        # 5 -> 6: wrapping. Of product, sum and what NORM starts from two are 0.
        v6, norm5 = _register(signed(32), "v6"), _register(signed(32), "norm5") if self.rows else C(0, 32)
        m.d.sync += v6.eq((v5 | (product5 & mul5.replicate(32)) | norm5) + self.bias)
        return v6, norm5

    def _requantize(self, m: Module, v6: Signal) -> Signal:
        """6 -> 17: the requantiser. Its result, or the value itself."""
        control = self.control
        m.submodules.requantizer = requantize = requantizer.Requantizer(rows=bool(self.rows))
        if self.rows:
            m.d.comb += [requantize.start.eq(control.start), requantize.addend.eq(self.addend)]
        m.d.comb += [
            requantize.acc.eq(Mux(control.exponential, self.word, v6) if self.rows else v6),
            requantize.scale.eq(self.scale),
            requantize.inside_zero_point.eq(control.inside_zero_point),
            requantize.window.eq(control.window),
            requantize.away.eq(control.away),
            requantize.zero_point.eq(control.zero_point),
            requantize.low.eq(control.low),
            requantize.high.eq(control.high),
        ]
        raw = _delayed(m, v6[:8], requantizer.REQUANTIZE_STAGES, "raw")
        v17 = Signal(signed(8))
        m.d.comb += v17.eq(Mux(control.requantized, requantize.result, raw))
        if self.wide:
            wide = self._wide(m)
            with m.If(control.wide):
                m.d.comb += v17.eq(wide)
        return v17

    def _add(self, m: Module, v17: Signal, norm5: Value) -> Signal:
        """16 -> 19: integer Add, wrapping. Multipliers in two parts, as wide as a DSP block takes; the second operand
        is there earlier, so its part of the sum is made first. In NORM that part is what it starts from."""
        control = self.control
        b16 = _delayed(m, self.b, ADD_STAGE - 1 - SOURCE_STAGE, "b")
        offset18, total = _register(32, "offset18"), _register(signed(32), "total")
        with_b = Signal(32)
        second = Mux(control.norm, self.a, b16) if self.rows else b16
        m.d.comb += with_b.eq(_summed(control.offset, *_scaled(m, second, control.mb, "mb")))
        if self.rows:
            m.d.sync += norm5.eq(Mux(control.norm_sum, with_b, 0))
        m.d.sync += [
            offset18.eq(with_b),
            total.eq(_summed(offset18, *_scaled(m, v17, control.ma, "ma"))),
        ]
        return total

    def _clamp(self, m: Module, total: Signal) -> Signal:
        """19 -> 21: shift and clamp of Add. Returns what is to be registered."""
        control = self.control
        # 19 -> 20: 8 bits are kept, and whether they are all of it.
        negative = total[31]
        low20, wide20, negative20 = _register(signed(8), "low20"), _register(1, "wide20"), _register(1, "negative20")
        m.d.sync += [
            low20.eq(total >> control.shift),
            wide20.eq(((total[:31] ^ negative.replicate(31)) & control.above).any()),
            negative20.eq(negative),
        ]

        # 20 -> 21.
        added = Signal(signed(8))
        with m.If(Mux(wide20, ~negative20, low20 >= control.add_high)):
            m.d.comb += added.eq(control.add_high)
        with m.Elif(Mux(wide20, negative20, low20 < control.add_low)):
            m.d.comb += added.eq(control.add_low)
        with m.Else():
            m.d.comb += added.eq(low20)
        return added

    def _look_up(self, m: Module, v21: Signal) -> None:
        """21 -> 23: table look-up."""
        result = _delayed(m, v21, 2, "result")
        if self.tables:
            m.d.comb += self.index.eq(v21)
            result = Mux(_delayed(m, self.control.look_up, 1, "lut23"), self.value, result)
        m.d.comb += self.result.eq(result)

    def _wide(self, m: Module) -> Value:
        """VECTOR_WIDE beside the other sources: sum and bias of 48 bits, and its requantiser."""
        control = self.control
        sums = [_register(signed(wide_requantizer.SUM), f"wide4_{n}") for n in range(self.passes)]
        before = sums[-1]  # that of the same element
        with m.If(control.valid):
            m.d.sync += sums[0].eq(Mux(control.first, 0, before << 8) + self.acc)
            m.d.sync += [older.eq(newer) for newer, older in pairwise(sums)]
        wide5, wide6 = (_register(signed(wide_requantizer.SUM), name) for name in ("wide5", "wide6"))
        m.d.sync += [wide5.eq(sums[0]), wide6.eq(wide5 + self.bias)]
        m.submodules.wide_requantizer = requantize = wide_requantizer.WideRequantizer()
        m.d.comb += [
            requantize.acc.eq(wide6),
            requantize.scale.eq(self.scale),
            requantize.low.eq(control.wide_low),
            requantize.high.eq(control.wide_high),
            requantize.upper.eq(control.upper),
        ]
        return requantize.result
