"""The window register: what the array multiplies, slot i for weight i of every output."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.connections import unread
from isa.config import NpuConfig


class Window(wiring.Component):
    """A slot for each of the block_in weights of an output. In DEPTHWISE they hold the newest vectors, slot 0 the last
    one; in GEMM slot i holds activation i in every lane. So the operand of a multiplier comes from one register in
    both. Without `depthwise` a slot is one activation.

    Latency: a vector pushed in cycle t is in the slots in cycle t+1.

    Ports:
        push, vector: the next activations.
        shift: with push, slot 0 takes the vector, slot i slot i-1; without, slot i takes activation i in every lane.
        clear: with push and shift, all slots but slot 0 become zero.
        slots: contents.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.depthwise, self.count = config.depthwise, config.block_in
        row = 8 * config.block_in
        slot = row if config.depthwise else 8
        super().__init__(
            {
                "push": In(1),
                "vector": In(row),
                "shift": In(1),
                "clear": In(1),
                "slots": Out(slot).array(self.count),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slots = list(self.slots)
        activations = [self.vector.word_select(i, 8) for i in range(self.count)]
        if not self.depthwise:
            with m.If(self.push):
                m.d.sync += [slot.eq(activation) for slot, activation in zip(slots, activations, strict=True)]
            unread(m, self.shift, self.clear)  # of DEPTHWISE
            return m
        for slot, activation, before in zip(slots, activations, (self.vector, *slots), strict=False):
            with m.If(self.push & ~self.shift):
                m.d.sync += slot.eq(activation.replicate(self.count))
            with m.Elif(self.push):
                m.d.sync += slot.eq(before)
        with m.If(self.push & self.shift & self.clear):
            m.d.sync += [slot.eq(0) for slot in slots[1:]]
        return m
