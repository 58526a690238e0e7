"""The row unit: reductions of ROW over all lanes of a row, and the memories with a word per row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.interfaces import bits_for
from tilewright.hw.memory.scratchpad_ports import ScaleWrite
from tilewright.hw.memory.scratchpads import memory
from tilewright.hw.vector.lane import REQUANTIZE_STAGE, SOURCE_STAGE
from tilewright.hw.vector.row_norm import WRITE_STAGE, RowNormUnit
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import ADDRESS_BITS, BY_NAME, ROW_QUOTIENT_BITS, ROW_SUM_BITS
from tilewright.isa.row_bits import (
    COUNT_BITS,
    EPSILON_FRACTION,
    EXPONENT_BITS,
    FACTOR_BITS,
    ROOT_BITS,
    SQUARES_BITS,
    TOTAL_BITS,
)
from tilewright.isa.timing import (
    ROW_DIVIDE_CYCLES,
    row_norm_write,
    row_scale_cycles,
    row_scale_write,
    row_tree_stages,
)

_FIELDS = BY_NAME["ROW"].by_name
#: Cycles after the step in which the maximum, and the exponentials, of a vector go into registers.
MAXIMUM_STAGE, WORD_STAGE = SOURCE_STAGE, REQUANTIZE_STAGE


def maximum_stage(config: NpuConfig) -> int:
    """Returns the stage, in cycles after the step, in which the maximum of its lanes is known."""
    return MAXIMUM_STAGE + 1 + row_tree_stages(config)


def sum_stage(config: NpuConfig) -> int:
    """Returns the stage, in cycles after the step, in which the sum of its lanes is known."""
    return WORD_STAGE + 1 + row_tree_stages(config)


def norm_stage(config: NpuConfig) -> int:
    """Returns the stage, in cycles after the last step of a row, in which its sums go to the unit of norms."""
    return sum_stage(config) + 1


def divide_stage(config: NpuConfig) -> int:
    """Returns the stage, in cycles after the last step of a row, in which its sum goes to the divider."""
    return sum_stage(config) + 2


class RowUnit(wiring.Component):
    """Maximum and sum of rows, the maxima that are kept, and the division, of `tilewright.isa.numerics.row_scale`.

    Two trees over the lanes, two levels a stage, each with a register behind it that goes from pass to pass. A sum
    is shifted until its highest bit is set, by 8 and 4 in one cycle, by 2 and 1 in the next; then the quotient comes,
    two bits a cycle, from one subtraction behind the other. The unit of norms, with the same sums, uses the divider
    when no row of EXP_SUM does.

    Ports:
        a: the lanes, in MAXIMUM_STAGE.  words: their exponentials, in WORD_STAGE.
        a_cut, words_cut: only the elements in `keep` count; in the same stages.  keep: a bit per element of a vector,
            set before `tail`.
        a_number, words_number: the pass of these lanes, where there are several; in the same stages.
        maximum_valid, maximum_first, maximum_last, maximum_prm: there is a pass of MAXIMUM; it is the first, the last
            of its row; the place of its maximum; in `maximum_stage`.
        sum_valid, sum_first: the same for EXP_SUM, MOMENTS and POWER, in `sum_stage`.
        two_sums: a sum of lanes has two fields, as MOMENTS and POWER have them; in `sum_stage`.
        norm, norm_place: a row of these has ended; in `norm_stage`.
        divide, divide_prm: a row of EXP_SUM has ended; in `divide_stage`.
        number, exponent: fields of the instruction, until its last division has begun.
        epsilon, centred: fields of the instruction, until its last row is written.
        prm: PRM row of the step.  maximum: the maximum of that row, a cycle later.
        read: place in STAT of the step.  factor, offset, norm_exponent: contents of STAT, a cycle later.
        write: quotients, from `row_scale_write` cycles after the last step of the row.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        lanes, number = config.vector_lanes, In(bits_for(config.vector_passes))
        super().__init__(
            {
                **({"a_number": number, "words_number": number} if config.vector_passes > 1 else {}),
                "a": In(8 * lanes),
                "words": In(config.row_word_bits * lanes),
                "a_cut": In(1),
                "words_cut": In(1),
                "keep": In(config.block_in),
                "maximum_valid": In(1),
                "maximum_first": In(1),
                "maximum_last": In(1),
                "maximum_prm": In(ADDRESS_BITS),
                "sum_valid": In(1),
                "sum_first": In(1),
                "two_sums": In(1),
                "norm": In(1),
                "norm_place": In(ADDRESS_BITS),
                "divide": In(1),
                "divide_prm": In(ADDRESS_BITS),
                "number": In(_FIELDS["number"].bits),
                "exponent": In(_FIELDS["exponent"].bits),
                "epsilon": In(32 + EPSILON_FRACTION),
                "centred": In(1),
                "prm": In(ADDRESS_BITS),
                "maximum": Out(signed(8)),
                "read": In(ADDRESS_BITS),
                "factor": Out(FACTOR_BITS),
                "offset": Out(32),
                "norm_exponent": Out(EXPONENT_BITS),
                "write": Out(ScaleWrite(config)),
            }
        )
        assert divide_stage(config) + ROW_DIVIDE_CYCLES + (row_scale_cycles(config) > 1) == row_scale_write(config)
        assert norm_stage(config) + WRITE_STAGE == row_norm_write(config)
        assert 2 * (ROW_DIVIDE_CYCLES - 1) == ROW_QUOTIENT_BITS

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._maxima(m)
        total = self._sum(m)
        m.submodules.norms = norms = RowNormUnit(self.config)
        m.d.comb += [
            norms.start.eq(self.norm),
            norms.place.eq(self.norm_place),
            norms.squares.eq(total[:SQUARES_BITS]),
            norms.total.eq(self._second(m)),
            norms.count.eq(self.number[:COUNT_BITS]),
            norms.epsilon.eq(self.epsilon),
            norms.centred.eq(self.centred),
            norms.read.eq(self.read),
            self.factor.eq(norms.factor_now),
            self.offset.eq(norms.offset_now),
            self.norm_exponent.eq(norms.exponent_now),
        ]
        self._divide(m, total, norms)
        return m

    def _leaves(self, m: Module, name: str, row: Value, width: int, cut: Value, flip: int = 0) -> list[Value]:
        """Registers the lanes, with 0 for lanes that `cut` and `keep` leave out."""
        lanes, passes = self.config.vector_lanes, self.config.vector_passes
        keep: Value = self.keep
        if passes > 1:
            keep = keep.word_select(self.a_number if name == "byte" else self.words_number, lanes)
        leaves: list[Value] = []
        for l in range(lanes):
            leaf = Signal(width, name=f"{name}{l}", reset_less=True)
            m.d.sync += leaf.eq(row.word_select(l, width) ^ flip)
            with m.If(cut & ~keep[l]):
                m.d.sync += leaf.eq(0)
            leaves.append(leaf)
        return leaves

    def _tree(self, m: Module, values: Sequence[Value], join: Callable[[Value, Value], Value]) -> Value:
        """Joins all values by a tree, with a register behind every two levels."""
        stages = 0
        while len(values) > 1:
            for _ in range(2):
                if len(values) > 1:
                    values = [join(one, other) for one, other in zip(values[::2], values[1::2])]
            held = [Signal(Value.cast(v).shape(), reset_less=True, name=f"tree{stages}") for v in values]
            m.d.sync += [to.eq(v) for to, v in zip(held, values)]
            values = held
            stages += 1
        assert stages == row_tree_stages(self.config)
        return values[0]

    def _maxima(self, m: Module) -> None:
        """Computes and keeps maxima, of bytes as unsigned numbers: 0 is the lowest."""

        def larger(one: Value, other: Value) -> Value:
            return Mux(one > other, one, other)

        top = self._tree(m, self._leaves(m, "byte", self.a, 8, self.a_cut, 0x80), larger)
        best, now = Signal(8, reset_less=True), Signal(8)
        m.d.comb += now.eq(Mux(self.maximum_first, top, larger(top, best)))
        with m.If(self.maximum_valid):
            m.d.sync += best.eq(now)
        store = memory(m, "maxima", 8, self.config.prm_rows)
        write, read = store.write_port(), store.read_port()
        m.d.comb += [
            write.en.eq(self.maximum_valid & self.maximum_last),
            write.addr.eq(self.maximum_prm),
            write.data.eq(now ^ 0x80),
            read.addr.eq(self.prm),
            self.maximum.eq(read.data.as_signed()),
        ]

    def _sum(self, m: Module) -> Value:
        """Returns the sum of the vectors so far, or of their first field."""
        leaves = self._leaves(m, "word", self.words, self.config.row_word_bits, self.words_cut)
        self.part = self._tree(m, leaves, lambda x, y: x + y)
        split = self.config.row_square_bits
        above = self.part[split:] & ~self.two_sums.replicate(len(self.part) - split)
        total = Signal(ROW_SUM_BITS, reset_less=True)
        with m.If(self.sum_valid):
            m.d.sync += total.eq(Mux(self.sum_first, 0, total) + Cat(self.part[:split], above))
        return total

    def _second(self, m: Module) -> Value:
        """Returns the sum of the second field of the vectors so far."""
        total = Signal(TOTAL_BITS, reset_less=True, name="second")
        with m.If(self.sum_valid):
            m.d.sync += total.eq(Mux(self.sum_first, 0, total) + self.part[self.config.row_square_bits :])
        return total

    def _divide(self, m: Module, total: Value, norms: RowNormUnit) -> None:
        width = ROW_SUM_BITS

        def shifted(value: Value, distances: tuple[int, int], name: str) -> tuple[Value, Value]:
            """Shifts a value left by each of two distances where that many of its highest bits are 0. Returns it, and a
            bit
            for each distance that was taken."""
            empties = []
            for distance in distances:
                empty, after = Signal(name=f"empty{distance}"), Signal(width, name=f"by{distance}")
                m.d.comb += empty.eq(~value[width - distance :].any())
                m.d.comb += after.eq(Mux(empty, value << distance, value))
                value = after
                empties.append(empty)
            return value, Cat(reversed(empties))

        partly, zeros_high = Signal(width, reset_less=True), Signal(2, reset_less=True)
        divisor, zeros = Signal(width, reset_less=True), Signal(4, reset_less=True)
        value, high = shifted(total, (8, 4), "high")
        m.d.sync += [partly.eq(value), zeros_high.eq(high)]
        value, low = shifted(partly, (2, 1), "low")

        rest, quotient = Signal(width + 1, reset_less=True), Signal(ROW_QUOTIENT_BITS, reset_less=True)
        row, exponent = Signal.like(self.divide_prm, reset_less=True), Signal.like(self.exponent, reset_less=True)
        left, scale = Signal(range(ROW_DIVIDE_CYCLES)), Signal()  # scale: the quotient becomes one
        now: Value = rest
        bits: list[Value] = []
        for k in range(2):
            less, fits = Signal(width + 2, name=f"less{k}"), Signal(name=f"fits{k}")
            m.d.comb += [less.eq(now - divisor), fits.eq(~less[-1])]
            after = Signal(width + 1, name=f"after{k}")
            m.d.comb += after.eq(Mux(fits, less, now) << 1)
            now = after
            bits.insert(0, fits)
        m.d.sync += [rest.eq(now), quotient.eq(Cat(*bits, quotient[:-2]))]
        writes = Signal()
        m.d.sync += writes.eq((left == 1) & scale)
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.If(self.divide):
            m.d.sync += [
                divisor.eq(value),
                zeros.eq(Cat(low, zeros_high)),
                rest.eq(self.number << (width - len(self.number))),
                row.eq(self.divide_prm),
                exponent.eq(self.exponent),
                left.eq(ROW_DIVIDE_CYCLES - 1),
                scale.eq(1),
            ]
        with m.If(norms.ask):
            m.d.sync += [divisor.eq(norms.root << (width - ROOT_BITS)), rest.eq(1 << (width - 3)), scale.eq(0)]
        m.d.comb += norms.factor.eq(quotient)
        large = quotient[-1]
        mantissa = Mux(large, quotient[-24:-1], quotient[-25:-2])
        self._write(m, writes, row, Cat(mantissa, (exponent + zeros - ~large)[:8], C(0, 1)))

    def _write(self, m: Module, writes: Value, row: Value, scale: Value) -> None:
        """Writes a scale to all lanes of a row: at once, or from the next cycle on, word by word."""
        words = row_scale_cycles(self.config)
        if words == 1:
            m.d.comb += [self.write.valid.eq(writes), self.write.row.eq(row), self.write.scale.eq(scale)]
            return
        assert words < ROW_DIVIDE_CYCLES
        writing, word = Signal(name="writing"), Signal(range(words), name="word")
        of_row = Signal.like(row, name="of_row", reset_less=True)
        written = Signal(32, name="written", reset_less=True)
        with m.If(writing):
            m.d.sync += [word.eq(word + 1), writing.eq(word != words - 1)]
        with m.If(writes):
            m.d.sync += [writing.eq(1), of_row.eq(row), written.eq(scale)]
        m.d.comb += [
            self.write.valid.eq(writing),
            self.write.row.eq(of_row),
            self.write.word.eq(word),
            self.write.scale.eq(written),
        ]
