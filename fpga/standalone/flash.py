"""A reader of SPI flash memory."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from tilewright.fpga.standalone.core import Access
from tilewright.hw.connections import unread

#: Command READ of all SPI NOR memories, followed by an address of 24 bits, and the clock it may have at most.
READ, READ_HZ = 0x03, 25_000_000
#: The chip is deselected for at least so long between two commands.
DESELECTED_NS = 100
#: Bytes that 24 bits of address reach.
REACH = 1 << 24


class FlashReader(wiring.Component):
    """A slave with the bytes of a SPI flash memory; it takes writes and drops them. The chip stays selected after a
    word, so that the next word goes on without a command.

    Latency: 32 bits of READ_HZ or the next slower clock this one gives, 64 after a word that is not the one before.

    Parameters:
        clock_hz: clock of domain `sync`.

    Ports:
        cpu: the master.
        clk, cs, copi, cipo: the chip, mode 0; `cs` is high while it is selected.
    """

    class State(enum.Enum):
        IDLE = 0  # selected at the word of `next`
        REST = 1  # not selected
        SHIFT = 2
        DONE = 3

    def __init__(self, clock_hz: int) -> None:
        #: Cycles of half a bit, and of a rest.
        self.half = -(-clock_hz // (2 * READ_HZ))
        self.rest = -(-clock_hz * DESELECTED_NS // 10**9)
        super().__init__({"cpu": In(Access()), "clk": Out(1), "cs": Out(1), "copi": Out(1), "cipo": In(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        s = self.State
        state = Signal(s)
        word = Signal(22)  # the one that follows in the chip
        bits, left = Signal(32), Signal(range(65))
        wait = Signal(range(max(self.half, self.rest) + 1))
        wanted = self.cpu.address[2:24]
        # Bits come in highest first, bytes lowest first.
        m.d.comb += [
            self.cpu.rdata.eq(Cat(bits[24:], bits[16:24], bits[8:16], bits[:8])),
            self.cpu.done.eq(self.cpu.valid & ((state == s.DONE) | self.cpu.write)),
            self.copi.eq(bits[31]),
        ]
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.Switch(state):
            with m.Case(s.IDLE):
                with m.If(self.cpu.valid & ~self.cpu.write):
                    with m.If(self.cs & (word == wanted)):
                        m.d.sync += [state.eq(s.SHIFT), left.eq(32), wait.eq(self.half - 1)]
                    with m.Else():
                        m.d.sync += [state.eq(s.REST), self.cs.eq(0), wait.eq(self.rest)]
            with m.Case(s.REST):
                with m.If(wait == 0):
                    m.d.sync += [
                        state.eq(s.SHIFT), self.cs.eq(1), left.eq(64), wait.eq(self.half - 1),
                        bits.eq(Cat(C(0, 2), wanted, C(READ, 8))),
                    ]  # fmt: skip
            with m.Case(s.SHIFT):
                with m.If(wait == 0):
                    m.d.sync += [wait.eq(self.half - 1), self.clk.eq(~self.clk)]
                    # At the end of a bit, as long after the chip shows it as can be.
                    with m.If(self.clk):
                        m.d.sync += [bits.eq(Cat(self.cipo, bits)), left.eq(left - 1)]
                        with m.If(left == 1):
                            m.d.sync += [state.eq(s.DONE), word.eq(wanted + 1)]
            with m.Case(s.DONE):
                m.d.sync += state.eq(s.IDLE)
        unread(m, self.cpu.wdata, self.cpu.strobe)
        return m
