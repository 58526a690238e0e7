"""A second cache for instructions, in block RAM."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.fpga.standalone.core import Access
from tilewright.hw.connections import unread


class SecondCache(wiring.Component):
    """Caches words that were read, by the low bits of their addresses. A cached word is never refreshed: for
    instructions, which do not change once they were read.

    Latency: 2 cycles for a hit; else 3 cycles more than the memory. After a reset it clears a word a cycle, and until
    then keeps nothing.

    Parameters:
        words: a power of two.

    Ports:
        cpu: the master, which reads only.
        memory: source of the words.
    """

    def __init__(self, words: int) -> None:
        if words < 2 or words & (words - 1):
            raise ValueError(f"words must be a power of two, not {words!r}")
        self.words = words
        super().__init__({"cpu": In(Access()), "memory": Out(Access())})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        index_bits = (self.words - 1).bit_length()
        word = self.cpu.address[2:]
        index, tag = word[:index_bits], word[index_bits:]
        m.submodules.store = store = Memory(shape=Shape(33 + len(tag)), depth=self.words, init=[])
        read, write = store.read_port(), store.write_port()
        data, there, of = read.data[:32], read.data[32], read.data[33:]
        forgetting, forgotten = Signal(init=1), Signal(index_bits)
        with m.If(forgetting):
            m.d.sync += [forgotten.eq(forgotten + 1), forgetting.eq(forgotten != self.words - 1)]
        looked, asking, fresh = Signal(), Signal(), Signal(32)
        answered = Signal()
        hit = looked & there & (of == tag) & ~forgetting
        arrived = asking & self.memory.done
        m.d.comb += [
            read.addr.eq(index),
            read.en.eq(1),
            self.memory.valid.eq(asking),
            self.memory.write.eq(0),
            self.memory.address.eq(self.cpu.address),
            self.memory.wdata.eq(0),
            self.memory.strobe.eq(0xF),
            write.addr.eq(Mux(forgetting, forgotten, index)),
            write.data.eq(Mux(forgetting, 0, Cat(self.memory.rdata, 1, tag))),
            write.en.eq(forgetting | arrived),
            self.cpu.done.eq(hit | answered),
            self.cpu.rdata.eq(Mux(answered, fresh, data)),
        ]
        m.d.sync += [answered.eq(arrived), fresh.eq(self.memory.rdata)]
        m.d.sync += looked.eq(self.cpu.valid & ~looked & ~asking & ~answered)
        with m.If(looked & ~hit):
            m.d.sync += asking.eq(1)
        with m.Elif(arrived):
            m.d.sync += asking.eq(0)
        unread(m, self.cpu.write, self.cpu.wdata, self.cpu.strobe)
        return m
