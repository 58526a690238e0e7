"""The operands of a row of VECTOR, as its lanes take them."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.isa.config import NpuConfig


class VectorOperands(wiring.Component):
    """Registers of a row's operands; with several passes they move on by the lanes there are from pass to pass.

    The passes of a row follow each other without a gap, and what is there without a step is not used: so nothing is
    kept, but for `row_a`, which may come cycles before the other operand.

    Latency: 1 cycle, for the first pass.

    Ports:
        row_acc, row_a, row_b: the rows that were read.
        first: a step that is there is in its first pass.
        from_acc: there is a step in its first pass, whose value is of ACC.
        take_a: `row_a` was asked for.
        moves_a: `a` does not stay: a cycle before any of `take_a`, `from_acc` and the end of `first`.
        acc, a, b: for the lanes; of `acc` and `a` the one that is not the value is 0.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        row, lanes = config.block_in, config.vector_lanes
        super().__init__(
            {
                "row_acc": In(32 * row),
                "row_a": In(8 * row),
                "row_b": In(8 * row),
                "first": In(1),
                "from_acc": In(1),
                "take_a": In(1),
                "moves_a": In(1),
                "acc": Out(32 * lanes),
                "a": Out(8 * lanes),
                "b": Out(8 * lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        acc, a, b = (
            Signal.like(row, name=name, reset_less=True)
            for row, name in ((self.row_acc, "kept_acc"), (self.row_a, "kept_a"), (self.row_b, "kept_b"))
        )
        m.d.comb += [self.acc.eq(acc), self.a.eq(a), self.b.eq(b)]
        takes_a = Signal()  # these registers are enabled by one, without a LUT between
        m.d.sync += takes_a.eq(self.moves_a)

        def moved(kept: Signal, lanes: Value) -> Value:
            """Returns the register one pass later; the lanes behind the last pass are not used."""
            return Cat(kept[len(lanes) :], kept[-len(lanes) :])

        # Zeros come through the LUTs that choose: these registers lie far from each other.
        from_acc = self.from_acc.replicate(len(acc))
        m.d.sync += [
            acc.eq(Mux(self.first, self.row_acc & from_acc, moved(acc, self.acc))),
            b.eq(Mux(self.first, self.row_b, moved(b, self.b))),
        ]
        with m.If(takes_a):
            later = moved(a, self.a) & ~self.from_acc.replicate(len(a))
            m.d.sync += a.eq(Mux(self.take_a, self.row_a, later))
        return m
