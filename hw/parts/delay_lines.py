"""Delay lines between the segments of the window."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.isa.config import NpuConfig


class DelayLines(wiring.Component):
    """Vectors of D lanes that come `delay` pushes later, or at once where there is none. All lines move together.

    A line is a ring of `delay` - 1 vectors and a register. Until the ring has been filled once since `clear`, it gives
    zeros. The delay is taken over with `clear`.

    Latency: what is at the input when `delay` - 1 further pushes are made is at the output behind the last of them.

    Ports:
        push: a vector enters each line and one leaves it.  clear: with push, the lines are empty before it.
        delay: 0..window_delay pushes.  delayed: there is one.
        inputs, outputs: vectors into and out of the lines; outputs are only valid where `delayed`.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.longest = config.window_delay
        vectors = 8 * config.dw_lanes
        super().__init__(
            {
                "push": In(1),
                "clear": In(1),
                "delay": In(range(self.longest + 1)),
                "delayed": Out(1),
                "inputs": In(vectors).array(config.delay_lines),
                "outputs": Out(vectors).array(config.delay_lines),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = max(2, self.longest - 1)
        place, last, single, full = Signal(range(depth)), Signal(range(depth)), Signal(), Signal()
        with m.If(self.push):
            m.d.sync += place.eq(place + 1)
            with m.If(place == last):
                m.d.sync += [place.eq(0), full.eq(1)]
            with m.If(self.clear):
                m.d.sync += [place.eq(0), full.eq(0)]
                m.d.sync += [self.delayed.eq(self.delay != 0), single.eq(self.delay == 1), last.eq(self.delay - 2)]
        for n, (entering, leaving) in enumerate(zip(self.inputs, self.outputs, strict=True)):
            ring = Memory(shape=entering.shape(), depth=depth, init=[])
            m.submodules[f"ring{n}"] = ring
            write, read = ring.write_port(), ring.read_port(domain="comb")
            m.d.comb += [write.en.eq(self.push), write.addr.eq(place), write.data.eq(entering), read.addr.eq(place)]
            before = Signal.like(entering, name=f"before{n}", reset_less=True)
            with m.If(self.push):
                kept = Mux(full, read.data, 0)
                m.d.sync += before.eq(Mux(self.clear, 0, Mux(single, entering, kept)))
            m.d.comb += leaving.eq(before)
        return m
