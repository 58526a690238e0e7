"""Mean, factor and offset of a row, which ROW keeps for NORM: two quotients and a root, of `tilewright.isa.row_norm`,
computed bit by bit."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.memory.scratchpads import memory
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.row_bits import (
    COUNT_BITS,
    EPSILON_FRACTION,
    EXPONENT_BITS,
    FACTOR_BITS,
    MEAN_BITS,
    MEAN_FRACTION,
    RADICAND_BITS,
    ROOT_BITS,
    SHIFTS,
    SQUARES_BITS,
    TOTAL_BITS,
)
from tilewright.isa.timing import ROW_DIVIDE_CYCLES

#: Bits of a quotient or root that are computed per cycle.
PER_CYCLE = 2
#: Bits of a factor that a multiplier takes; wider ones are divided.
SPLIT = 17
# Cycles after `start` in which a unit takes over what the one before has: the radicand is there; it is shifted as far
# as it goes; the root is there; the factor is; the row is written.
RADICAND_STAGE = 2
ROOT_STAGE = RADICAND_STAGE + 1 + SHIFTS // PER_CYCLE
MEAN_STAGE = MEAN_BITS // PER_CYCLE
ASK_STAGE = ROOT_STAGE + 1 + ROOT_BITS // PER_CYCLE
FACTOR_STAGE = ASK_STAGE + ROW_DIVIDE_CYCLES
WRITE_STAGE = FACTOR_STAGE + 2
assert ROOT_STAGE <= MEAN_STAGE <= ASK_STAGE, "the mean is handed on between the other two"
#: No unit is at work for longer than it takes until the next row may come.
assert max(ROOT_STAGE - RADICAND_STAGE, ASK_STAGE - ROOT_STAGE, MEAN_STAGE) <= ROW_DIVIDE_CYCLES


class RowNormUnit(wiring.Component):
    """The memory STAT, and what is written to it: a mean by one division, at the same time a variance, its root, and
    the reciprocal of that, for which the row unit's divider is asked; then the offset, a product of mean and factor.
    Each unit works on a row of its own.

    Ports:
        squares, total: sums of a row, in the cycle of `start`.  place: of the row in STAT, in this cycle.
        count, epsilon, centred: fields of the instruction, until its last row is written.
        ask, root: for the reciprocal of the root, `factor` ROW_DIVIDE_CYCLES later.
        read: place of a row in STAT.  factor_now, offset_now, exponent_now: its contents, a cycle later.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "squares": In(SQUARES_BITS),
                "total": In(TOTAL_BITS),
                "place": In(ADDRESS_BITS),
                "count": In(COUNT_BITS),
                "epsilon": In(32 + EPSILON_FRACTION),
                "centred": In(1),
                "ask": Out(1),
                "root": Out(ROOT_BITS),
                "factor": In(FACTOR_BITS),
                "read": In(ADDRESS_BITS),
                "factor_now": Out(FACTOR_BITS),
                "offset_now": Out(32),
                "exponent_now": Out(EXPONENT_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        at: list[Value] = [self.start]
        for n in range(WRITE_STAGE):
            later = Signal(name=f"at{n + 1}")
            m.d.sync += later.eq(at[-1])
            at.append(later)

        def handed(value: Value, name: str, *stages: int) -> Value:
            """Registers a value in the first of these cycles, and hands it on to a further register in each of the
            others."""
            for n, stage in enumerate(stages):
                kept = Signal.like(value, name=f"{name}{n}", reset_less=True)
                with m.If(at[stage]):
                    m.d.sync += kept.eq(value)
                value = kept
            return value

        shifted, exponent = self._shifted(m, self._radicand(m), at[RADICAND_STAGE])
        self._root(m, shifted, at[ROOT_STAGE])
        m.d.comb += self.ask.eq(at[ASK_STAGE])
        mean = handed(self._mean(m), "mean", MEAN_STAGE, ASK_STAGE)
        offset = self._offset(m, mean)
        store = memory(m, "norm_rows", FACTOR_BITS + 32 + EXPONENT_BITS, self.config.prm_rows)
        write, read = store.write_port(), store.read_port()
        m.d.comb += [
            write.en.eq(at[WRITE_STAGE]),
            write.addr.eq(handed(self.place, "place", 0, ROOT_STAGE, ASK_STAGE, FACTOR_STAGE)),
            write.data.eq(
                Cat(
                    handed(self.factor, "factor", FACTOR_STAGE),
                    offset,
                    handed(exponent, "exponent", ROOT_STAGE, ASK_STAGE, FACTOR_STAGE),
                )
            ),
            read.addr.eq(self.read),
            Cat(self.factor_now, self.offset_now, self.exponent_now).eq(read.data),
        ]
        return m

    def _radicand(self, m: Module) -> Value:
        """Returns count * squares + epsilon - (centred ? total**2 : 0), in RADICAND_STAGE, without the fraction."""

        def register(name: str, value: Value) -> Signal:
            kept = Signal(value.shape(), name=name, reset_less=True)
            m.d.sync += kept.eq(value)
            return kept

        low, high = self.total[:SPLIT], self.total[SPLIT:]
        product_low = register("product_low", self.count * self.squares[:SPLIT])
        product_high = register("product_high", self.count * self.squares[SPLIT:])
        squares = [Signal(len(v), name=f"square{n}", reset_less=True) for n, v in enumerate((low * low, high * high))]
        both = Signal(len(low) + len(high), reset_less=True)
        with m.If(self.centred):
            m.d.sync += [squares[0].eq(low * low), squares[1].eq(high * high), both.eq(low * high)]
        with m.Else():
            m.d.sync += [squares[0].eq(0), squares[1].eq(0), both.eq(0)]
        epsilon = self.epsilon[EPSILON_FRACTION:].as_signed()
        plus = Cat(epsilon[:SPLIT], epsilon[SPLIT:].as_signed() + product_high).as_signed() + product_low
        minus = Cat(squares[0][: SPLIT + 1], Cat(squares[0][SPLIT + 1 :], squares[1]) + both)
        return register("plus", plus[:RADICAND_BITS]) - register("minus", minus[:RADICAND_BITS])

    def _shifted(self, m: Module, radicand: Value, load: Value) -> tuple[Value, Value]:
        """Shifts radicand and fraction left by two as often as the highest two bits are 0. Returns the radicand and the
        number of shifts."""
        width = RADICAND_BITS + EPSILON_FRACTION
        value, exponent = Signal(width, reset_less=True), Signal(EXPONENT_BITS, reset_less=True)
        now: Value = value
        empties = []
        for n in range(PER_CYCLE):
            empty, after = Signal(name=f"empty{n}"), Signal(width, name=f"shifted{n}")
            m.d.comb += [empty.eq(~now[-2:].any()), after.eq(Mux(empty, now << 2, now))]
            now = after
            empties.append(empty)
        m.d.sync += [value.eq(now), exponent.eq(exponent + sum(empties[1:], empties[0]))]
        with m.If(load):
            m.d.sync += [value.eq(Cat(self.epsilon[:EPSILON_FRACTION], radicand[:RADICAND_BITS])), exponent.eq(0)]
        return value[EPSILON_FRACTION:], exponent

    def _root(self, m: Module, radicand: Value, load: Value) -> None:
        """Computes the root, its lowest bit set, in ASK_STAGE: it takes two bits of the radicand for each bit of the
        root."""
        left = Signal(RADICAND_BITS, reset_less=True)
        root, rest = Signal(ROOT_BITS, reset_less=True), Signal(ROOT_BITS + 1, reset_less=True)
        found: Value = root
        now: Value = rest
        for n in range(PER_CYCLE):
            more, less = Signal(ROOT_BITS + 3, name=f"more{n}"), Signal(ROOT_BITS + 4, name=f"less{n}")
            fits, after = Signal(name=f"fits{n}"), Signal(ROOT_BITS + 1, name=f"after{n}")
            high = RADICAND_BITS - 2 * n
            m.d.comb += [
                more.eq(Cat(left[high - 2 : high], now)),
                less.eq(more - Cat(C(1, 2), found)),
                fits.eq(~less[-1]),
                after.eq(Mux(fits, less, more)),
            ]
            found, now = Cat(fits, found)[:ROOT_BITS], after
        m.d.sync += [rest.eq(now), root.eq(found), left.eq(left << 2 * PER_CYCLE)]
        with m.If(load):
            m.d.sync += [rest.eq(0), root.eq(0), left.eq(radicand)]
        m.d.comb += self.root.eq(root | 1)

    def _mean(self, m: Module) -> Value:
        """Returns total / count, in MEAN_STAGE: the first bits come in the cycle of `start`."""
        mean, rest = Signal(MEAN_BITS, reset_less=True), Signal(COUNT_BITS, reset_less=True)
        low_bits = MEAN_BITS - MEAN_FRACTION
        low = Signal(low_bits, reset_less=True)
        now: Value = Mux(self.start, self.total[low_bits:], rest)
        left = Mux(self.start, self.total[:low_bits], low)
        bits: list[Value] = []
        for n in range(PER_CYCLE):
            more, less = Signal(COUNT_BITS + 1, name=f"dividend{n}"), Signal(COUNT_BITS + 2, name=f"remains{n}")
            fits, after = Signal(name=f"divides{n}"), Signal(COUNT_BITS, name=f"rest_after{n}")
            m.d.comb += [
                more.eq(Cat(left[low_bits - 1 - n], now)),
                less.eq(more - self.count),
                fits.eq(~less[-1]),
                after.eq(Mux(fits, less, more)),
            ]
            now = after
            bits.insert(0, fits)
        m.d.sync += [rest.eq(now), low.eq(left << PER_CYCLE), mean.eq(Cat(*bits, mean[:-PER_CYCLE]))]
        return mean

    def _offset(self, m: Module, mean: Value) -> Value:
        """Returns -(mean - 128) * factor, to nearest, in WRITE_STAGE, of the factor of FACTOR_STAGE."""
        low, high = mean[:SPLIT], Cat(mean[SPLIT:-1], ~mean[-1]).as_signed()
        factor_low, factor_high = self.factor[:SPLIT], self.factor[SPLIT:]
        parts = []
        for n, part in enumerate((low * factor_low, low * factor_high, high * factor_low, high * factor_high)):
            kept = Signal(part.shape(), name=f"part{n}", reset_less=True)
            m.d.sync += kept.eq(part)
            parts.append(kept)
        middle = Signal(signed(len(parts[1] + parts[2])), reset_less=True)
        outer = Signal(len(parts[0]) + len(parts[3]) - SPLIT, reset_less=True)  # without bits that do not matter
        half = 1 << MEAN_FRACTION - 1 - SPLIT  # the inverse of what is half less is the negation to nearest
        m.d.sync += [middle.eq(parts[1] + parts[2] - half), outer.eq(Cat(parts[0][SPLIT:], parts[3]))]
        product = outer.as_signed() + middle
        return ~product[MEAN_FRACTION - SPLIT :][:32]
