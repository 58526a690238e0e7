"""The operands of a row of VECTOR, as its lanes take them."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.connections import unread
from isa.config import NpuConfig


class VectorOperands(wiring.Component):
    """Registers of a row's operands; with several passes they move on by the lanes there are from pass to pass.

    Latency: 1 cycle, for the first pass.

    Ports:
        row_acc, row_a, row_b: what was read.
        reads, from_acc: there is a step, whose operands are there; its value is of ACC.
        take_a: `row_a` was asked for; it may come cycles before the other operand.
        advance: the next pass.
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
                "reads": In(1),
                "from_acc": In(1),
                "take_a": In(1),
                "advance": In(1),
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
        value = Mux(self.from_acc, self.row_acc, 0)
        with m.If(self.take_a):
            m.d.sync += a.eq(self.row_a)
        with m.If(self.from_acc):
            m.d.sync += a.eq(0)
        with m.If(self.reads):
            m.d.sync += b.eq(self.row_b)
        if self.config.vector_passes == 1:
            unread(m, self.advance)
            m.d.sync += acc.eq(value)
            return m
        with m.If(self.reads):
            m.d.sync += acc.eq(value)
        with m.If(self.advance):
            for kept, lanes in ((acc, self.acc), (a, self.a), (b, self.b)):
                rest = kept[len(lanes) :]
                m.d.sync += kept.eq(Cat(rest, kept[-len(lanes) :]))
        return m
