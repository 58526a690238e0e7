"""Delay lines between the segments of the window."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.isa.config import NpuConfig


class DelayLines(wiring.Component):
    """Vectors of D lanes that come `delay` pushes later, or at once where there is none. All lines move together.

    A line is a ring of `delay` - 1 vectors and a register. Until the ring has been filled once since `clear`, it gives
    zeros. The delay is taken over with `clear`. With `window_pairs`, where two pushes may be made in a cycle, it is two
    memories: of vectors that entered alone or first in their cycle, and of those that entered second.

    Latency: what is at the input when `delay` - 1 further pushes are made is at the output behind the last of them.

    Ports:
        push: a vector enters each line and one leaves it.  clear: with push, the lines are empty before it.
        delay: 0..window_delay pushes.  delayed: there is one.
        inputs, outputs: vectors into and out of the lines; outputs are only valid where `delayed`.
        twice, second_inputs, first_outputs (with `window_pairs`): with push, another vector enters behind the first and
            one leaves in front of that of `outputs`; never with clear or a delay of 1. The last line has no such output
            if one slot is behind it.
        there, first_there (with `window_pairs`): the vectors that leave have entered; they are not zeros instead.
        rest (with `window_pairs`): every bit of an output of which no vector leaves.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.longest, self.pairs = config.window_delay, bool(config.window_pairs)
        vectors = 8 * config.dw_lanes
        behind = config.block_in - config.window_segment * config.delay_lines  # slots behind the last line
        second = {
            "twice": In(1),
            "second_inputs": In(vectors).array(config.delay_lines),
            "first_outputs": Out(vectors).array(config.delay_lines - (behind == 1)),
            "rest": In(1),
            "there": Out(1),
            "first_there": Out(1),
        }
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
        """Makes lines of two memories: of the vectors that entered alone or first, and of those that entered second."""
        bits = max(1, (self.longest - 1).bit_length())  # of a vector's place in a memory
        place, second_place, head, second_head = (
            Signal(bits, name=name) for name in ("place", "second_place", "head", "second_head")
        )  # where vectors enter and leave
        until = Signal(range(self.longest + 1))  # pushes before vectors leave that have entered since `clear`
        at_once = Signal(init=1)  # a register: of ~delayed yosys makes a third LUT of four inputs for each bit
        there, second_there = Signal(), Signal()  # one leaves that has, the first or the second of this push
        half, two, left = Signal(), Signal(), Signal.like(until)  # half: one that entered second leaves next
        pushes = Mux(self.twice, 2, 1)
        m.d.comb += [
            left.eq(Mux(until > pushes, until - pushes, 0)),
            two.eq(self.twice & there),
            self.first_there.eq(there),
            self.there.eq(Mux(self.twice, second_there, there)),
        ]
        # The one that leaves last: where it is, if it did not enter second, and whether it did.
        tail, from_second = Signal(bits), Signal()
        marks = Memory(shape=1, depth=1 << bits, init=[])  # of those that did not: whether another entered with them
        m.submodules.marks = marks
        mark, head_mark, tail_mark = marks.write_port(), marks.read_port(domain="comb"), marks.read_port(domain="comb")
        m.d.comb += [
            mark.en.eq(self.push), mark.addr.eq(place), mark.data.eq(self.twice),
            head_mark.addr.eq(head), tail_mark.addr.eq(tail),
            tail.eq(head + (two & ~half)),
            from_second.eq(Mux(two, ~half & head_mark.data, half)),
        ]  # fmt: skip
        with m.If(self.push):
            m.d.sync += [place.eq(place + 1), second_place.eq(second_place + self.twice)]
            m.d.sync += [until.eq(left), there.eq(left == 0), second_there.eq(left <= 1)]
            with m.If(self.there):
                m.d.sync += [
                    head.eq(tail + ~from_second),
                    second_head.eq(second_head + (from_second | (two & half))),
                    half.eq(~from_second & tail_mark.data),
                ]
            with m.If(self.clear):
                m.d.sync += [signal.eq(0) for signal in (place, second_place, head, second_head, half)]
                m.d.sync += [self.delayed.eq(self.delay != 0), at_once.eq(self.delay == 0)]
                m.d.sync += [until.eq(self.delay), there.eq(0), second_there.eq(0)]

        def chosen(may: Value, second: Value, seconds: Value, firsts: Value) -> Value:
            choice, gives = Signal(), may & ~at_once
            m.d.comb += choice.eq(Mux(may & self.delayed, second, self.rest))
            return Cat(Mux(gives, Mux(choice, a, b), choice) for a, b in zip(seconds, firsts, strict=True))

        for n, (entering, entering_second, leaving) in enumerate(
            zip(self.inputs, self.second_inputs, self.outputs, strict=True)
        ):
            firsts, seconds = (Memory(shape=entering.shape(), depth=1 << bits, init=[]) for _ in range(2))
            m.submodules[f"firsts{n}"], m.submodules[f"seconds{n}"] = firsts, seconds
            write, write_second = firsts.write_port(), seconds.write_port()
            read, read_second = firsts.read_port(domain="comb"), seconds.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(self.push), write.addr.eq(place), write.data.eq(entering), read.addr.eq(tail),
                write_second.en.eq(self.push), write_second.addr.eq(second_place),
                write_second.data.eq(entering_second), read_second.addr.eq(second_head),
                leaving.eq(chosen(self.push, from_second, read_second.data, read.data)),
            ]  # fmt: skip
            if n < len(self.first_outputs):
                oldest = firsts.read_port(domain="comb")
                m.d.comb += oldest.addr.eq(head)
                m.d.comb += self.first_outputs[n].eq(
                    chosen(self.push & self.twice, half, read_second.data, oldest.data)
                )
