"""One lane of the VECTOR pipeline."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import C, Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.parts.pipeline import delayed
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
    """Makes a register that needs no reset. Where its name in Verilog ends in a number, that is the cycle after the
    step in which it has the value of the step."""
    return Signal(shape, name=name, reset_less=True)


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
        source_value, source_mul, factors = self._source(m)
        if self.rows:
            m.d.comb += self.word_index.eq(factors[0])
        biased, norm_start = self._sum(m, source_value, source_mul, factors)
        requantized = self._requantize(m, biased)
        total = self._add(m, requantized, norm_start)
        added = self._clamp(m, total)
        plain = delayed(m, requantized, ADD_CYCLES, "plain")
        finished = _register(8, "v21")
        m.d.sync += finished.eq(Mux(self.control.add, added, plain))
        self._look_up(m, finished)
        return m

    def _source(self, m: Module) -> tuple[Signal, Signal, list[Signal]]:
        """Source stage. The value is also the running sum or maximum, and 0 in MUL; where a step has n passes, the
        previous value of the same element is n passes old. Returns the value, whether it is MUL, and the factors of
        MUL."""
        control = self.control
        source_value, source_mul = _register(signed(32), "v4"), _register(1, "mul4")
        before = source_value
        for n in range(self.passes - 1):
            older = _register(signed(32), f"older{n}")
            with m.If(control.valid):
                m.d.sync += older.eq(before)
            before = older
        factors = [_register(signed(9), f"factor{n}") for n in range(2)]
        goes_on, smaller = Signal(), Signal()
        m.d.comb += [
            goes_on.eq(control.sum & ~control.first),
            smaller.eq(control.max & ~control.first & (self.a <= before[:8].as_signed())),
        ]
        if self.passes == 1:
            with m.If(control.valid & ~smaller):
                m.d.sync += source_value.eq((self.acc | (before & goes_on.replicate(32))) + self.a)
        else:
            # Of a maximum only the 8 bits count.
            added = Signal(signed(32))
            m.d.comb += added.eq((self.acc | (before & goes_on.replicate(32))) + self.a)
            with m.If(control.valid):
                m.d.sync += source_value.eq(Cat(Mux(smaller, before[:8], added[:8]), added[8:]))
        with m.If(control.valid & (control.mul | control.norm if self.rows else control.mul)):
            m.d.sync += source_value.eq(0)
        m.d.sync += [
            source_mul.eq(control.mul),
            factors[0].eq(self.a - control.za),
            factors[1].eq(self.b - control.zb),
        ]
        return source_value, source_mul, factors

    def _sum(self, m: Module, source_value: Value, source_mul: Value, factors: list[Signal]) -> tuple[Signal, Value]:
        """Product and bias stages: adds the product of MUL, and the bias. Returns the sum, and the register of the
        value that NORM starts from."""
        # The product: in registers of the multiplier, nothing but a clock reaches them.
        product_value, product_mul, product = (
            _register(signed(32), "v5"),
            _register(1, "mul5"),
            _register(signed(18), "product5"),
        )
        m.d.sync += [product_value.eq(source_value), product_mul.eq(source_mul), product.eq(factors[0] * factors[1])]

        # The bias: wrapping. Two of product, sum and the value that NORM starts from are 0.
        biased, norm_start = (
            _register(signed(32), "v6"),
            _register(signed(32), "norm5") if self.rows else C(0, 32),
        )
        m.d.sync += biased.eq((product_value | (product & product_mul.replicate(32)) | norm_start) + self.bias)
        return biased, norm_start

    def _requantize(self, m: Module, biased: Signal) -> Signal:
        """Requantises. Returns the result, or the value itself."""
        control = self.control
        m.submodules.requantizer = requantize = requantizer.Requantizer(rows=bool(self.rows))
        requantizes: Value = biased
        if self.rows:
            requantizes = Signal(signed(32), name="requantizes")
            m.d.comb += requantizes.eq(Mux(control.exponential, self.word, biased))
            m.d.comb += [requantize.start.eq(control.start), requantize.addend.eq(self.addend)]
        m.d.comb += [
            requantize.acc.eq(requantizes),
            requantize.scale.eq(self.scale),
            requantize.inside_zero_point.eq(control.inside_zero_point),
            requantize.window.eq(control.window),
            requantize.away.eq(control.away),
            requantize.zero_point.eq(control.zero_point),
            requantize.low.eq(control.low),
            requantize.high.eq(control.high),
        ]
        raw = delayed(m, biased[:8], requantizer.REQUANTIZE_STAGES, "raw")
        requantized = Signal(signed(8), name="v17")
        m.d.comb += requantized.eq(Mux(control.requantized, requantize.result, raw))
        if self.wide:
            wide = self._wide(m)
            with m.If(control.wide):
                m.d.comb += requantized.eq(wide)
        return requantized

    def _add(self, m: Module, requantized: Signal, norm_start: Value) -> Signal:
        """Add stages: integer Add, wrapping. Multipliers in two parts, as wide as a DSP block takes; the second operand
        is there earlier, so its part of the sum is made first. NORM starts from that part. Returns the sum."""
        control = self.control
        late_b = delayed(m, self.b, ADD_STAGE - 1 - SOURCE_STAGE, "b")
        sum_with_b, total = _register(32, "offset18"), _register(signed(32), "total")
        with_b = Signal(32)
        second = Mux(control.norm, self.a, late_b) if self.rows else late_b
        m.d.comb += with_b.eq(_summed(control.offset, *_scaled(m, second, control.mb, "mb")))
        if self.rows:
            m.d.sync += norm_start.eq(Mux(control.norm_sum, with_b, 0))
        m.d.sync += [
            sum_with_b.eq(with_b),
            total.eq(_summed(sum_with_b, *_scaled(m, requantized, control.ma, "ma"))),
        ]
        return total

    def _clamp(self, m: Module, total: Signal) -> Signal:
        """Shift and clamp stages of Add. Returns the value to be registered."""
        control = self.control
        # Shift: 8 bits are kept, and whether the sum has more.
        negative = total[31]
        shifted, overflows, sum_negative = (
            _register(signed(8), "low20"),
            _register(1, "wide20"),
            _register(1, "negative20"),
        )
        m.d.sync += [
            shifted.eq(total >> control.shift),
            overflows.eq(((total[:31] ^ negative.replicate(31)) & control.above).any()),
            sum_negative.eq(negative),
        ]

        # Clamp.
        added = Signal(signed(8))
        with m.If(Mux(overflows, ~sum_negative, shifted >= control.add_high)):
            m.d.comb += added.eq(control.add_high)
        with m.Elif(Mux(overflows, sum_negative, shifted < control.add_low)):
            m.d.comb += added.eq(control.add_low)
        with m.Else():
            m.d.comb += added.eq(shifted)
        return added

    def _look_up(self, m: Module, finished: Signal) -> None:
        """Looks the value up in a table, or delays it as long."""
        result = delayed(m, finished, 2, "result")
        if self.tables:
            m.d.comb += self.index.eq(finished)
            result = Mux(delayed(m, self.control.look_up, 1, "lut23"), self.value, result)
        m.d.comb += self.result.eq(result)

    def _wide(self, m: Module) -> Value:
        """VECTOR_WIDE, beside the other sources: adds up and biases in 48 bits, and requantises. Returns the result."""
        control = self.control
        sums = [_register(signed(wide_requantizer.SUM), f"wide4_{n}") for n in range(self.passes)]
        before = sums[-1]  # the sum of the same element
        with m.If(control.valid):
            m.d.sync += sums[0].eq(Mux(control.first, 0, before << 8) + self.acc)
            m.d.sync += [older.eq(newer) for newer, older in pairwise(sums)]
        wide_product, wide_biased = (_register(signed(wide_requantizer.SUM), name) for name in ("wide5", "wide6"))
        m.d.sync += [wide_product.eq(sums[0]), wide_biased.eq(wide_product + self.bias)]
        m.submodules.wide_requantizer = requantize = wide_requantizer.WideRequantizer()
        m.d.comb += [
            requantize.acc.eq(wide_biased),
            requantize.scale.eq(self.scale),
            requantize.low.eq(control.wide_low),
            requantize.high.eq(control.wide_high),
            requantize.upper.eq(control.upper),
        ]
        return requantize.result
