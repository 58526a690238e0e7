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
    zeros. The delay is taken over with `clear`. With `window_pairs`, where two pushes may be made in a cycle, it is two
    memories, one for every second push each, that are read behind where they are written.

    Latency: what is at the input when `delay` - 1 further pushes are made is at the output behind the last of them.

    Ports:
        push: a vector enters each line and one leaves it.  clear: with push, the lines are empty before it.
        delay: 0..window_delay pushes.  delayed: there is one.
        inputs, outputs: vectors into and out of the lines; outputs are only valid where `delayed`.
        twice, second_inputs, first_outputs (with `window_pairs`): with push, another vector enters behind the first and
            one leaves in front of that of `outputs`; never with clear or a delay of 1.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.longest, self.pairs = config.window_delay, bool(config.window_pairs)
        vectors = 8 * config.dw_lanes
        sides = ("second_inputs", In), ("first_outputs", Out)
        second = {name: way(vectors).array(config.delay_lines) for name, way in sides} | {"twice": In(1)}
        super().__init__(
            {
                **(second if self.pairs else {}),
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
        if self.pairs:
            self._pairs(m)
            return m
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

    def _pairs(self, m: Module) -> None:
        """Makes lines of two memories."""
        bits = max(2, (self.longest - 1).bit_length())  # of a vector's place in a line
        place, behind = Signal(bits), Signal(bits)  # where vectors enter and leave; memory 1 has the odd places
        until = Signal(range(self.longest + 1))  # pushes before vectors leave that have entered since `clear`
        there, second_there = Signal(), Signal()  # one leaves that has, the first or the second of this push
        pushes = Mux(self.twice, 2, 1)
        left = Signal.like(until)
        m.d.comb += left.eq(Mux(until > pushes, until - pushes, 0))
        with m.If(self.push):
            m.d.sync += [place.eq(place + pushes), behind.eq(behind + pushes)]
            m.d.sync += [until.eq(left), there.eq(left == 0), second_there.eq(left <= 1)]
            with m.If(self.clear):
                m.d.sync += [place.eq(0), behind.eq(-self.delay), self.delayed.eq(self.delay != 0)]
                m.d.sync += [until.eq(self.delay), there.eq(0), second_there.eq(0)]
        first, newest = Signal(), Signal()  # it is there and leaves: the first of this push, the newest
        m.d.comb += [first.eq(there & ~self.clear), newest.eq(Mux(self.twice, second_there, there) & ~self.clear)]
        ports = zip(self.inputs, self.second_inputs, self.outputs, self.first_outputs, strict=True)
        for n, (entering, entering_second, leaving, leaving_first) in enumerate(ports):
            found = []
            for odd in range(2):
                ring = Memory(shape=entering.shape(), depth=1 << (bits - 1), init=[])
                m.submodules[f"ring{n}_{odd}"] = ring
                write, read = ring.write_port(), ring.read_port(domain="comb")
                m.d.comb += [
                    write.en.eq(self.push & (self.twice | (place[0] == odd))),
                    write.addr.eq((place + (1 - odd))[1:]),
                    write.data.eq(Mux(place[0] == odd, entering, entering_second)),
                    read.addr.eq((behind + (1 - odd))[1:]),
                ]
                found.append(read.data)
            m.d.comb += leaving.eq(Mux(newest, Mux(behind[0] ^ self.twice, found[1], found[0]), 0))
            m.d.comb += leaving_first.eq(Mux(first, Mux(behind[0], found[1], found[0]), 0))
