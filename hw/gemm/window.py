"""The window register: the activations that the array multiplies, slot i with weight i of every output."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.connections import unread
from tilewright.hw.interfaces import bits_for
from tilewright.hw.parts.delay_lines import DelayLines
from tilewright.isa.config import NpuConfig


class Window(wiring.Component):
    """A slot for each of the block_in weights of an output, of D = min(block_in, block_out) lanes. In DEPTHWISE they
    hold lanes slice*D to slice*D + D-1 of the newest vectors, slot 0 the last one, with delay lines between segments of
    `window_segment` slots; in GEMM slot i holds activation i in every lane. So the operand of a multiplier comes from
    one register in both. Without `depthwise` a slot is one activation.

    Latency: a vector pushed in cycle t is in the slots in cycle t+1.

    Ports:
        push, vector: the next activations.
        shift: with push, slot 0 takes the slice of the vector, slot i slot i-1; without, slot i takes activation i in
            every lane.
        slice: which D lanes of the vector. An instruction has one, and begins with `clear`: so it is chosen here, once,
            and not in front of every multiplier.
        twice, second (with `window_pairs`): with push and shift, `second` is pushed after `vector`; never with `clear`.
        clear: with push and shift, all slots but slot 0 become zero, and the delay lines empty.
        delay: with clear, pushes by which each segment is delayed; there is none without delay lines.
        slots: contents.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config, self.depthwise, self.count = config, config.depthwise, config.block_in
        self.lanes = config.dw_lanes if config.depthwise else 1
        super().__init__(
            {
                "push": In(1),
                "vector": In(8 * config.block_in),
                "shift": In(1),
                "slice": In(bits_for(config.dw_slices)),
                "clear": In(1),
                **({"twice": In(1), "second": In(8 * config.block_in)} if config.window_pairs else {}),
                **({"delay": In(range(config.window_delay + 1))} if config.delay_lines else {}),
                "slots": Out(8 * self.lanes).array(self.count),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # A reset leaves them as they are: the first step of every instruction writes or clears all of them.
        slots = [Signal.like(slot, name=f"slot{i}", reset_less=True) for i, slot in enumerate(self.slots)]
        m.d.comb += [shown.eq(slot) for shown, slot in zip(self.slots, slots, strict=True)]
        activations = [self.vector.word_select(i, 8) for i in range(self.count)]
        if not self.depthwise:
            with m.If(self.push):
                m.d.sync += [slot.eq(activation) for slot, activation in zip(slots, activations, strict=True)]
            unread(m, self.shift, self.slice, self.clear)  # of DEPTHWISE
            return m
        pairs = bool(self.config.window_pairs)
        newest = [self.vector, self.second] if pairs else [self.vector]
        if self.lanes < self.count:
            newest = [vector.word_select(self.slice, 8 * self.lanes) for vector in newest]
        else:
            unread(m, self.slice)
        # Zeros come through the LUT that chooses: an input for resets would be reached by a wire across the array.
        kept = (~self.clear).replicate(8 * self.lanes)
        before = [newest[0], *(slot & kept for slot in slots)]
        skipped = [newest[-1], newest[0], *slots]  # what moves into each slot where two vectors do
        if self.config.delay_lines:
            first = range(self.config.window_segment, self.count, self.config.window_segment)  # slots of segments
            m.submodules.lines = lines = DelayLines(self.config)
            m.d.comb += [lines.push.eq(self.push & self.shift), lines.clear.eq(self.clear), lines.delay.eq(self.delay)]
            for entering, leaving, n in zip(lines.inputs, lines.outputs, first, strict=True):
                m.d.comb += entering.eq(slots[n - 1])
                before[n] = Mux(lines.delayed, leaving, slots[n - 1]) & kept
            if pairs:
                m.d.comb += lines.twice.eq(self.twice)
                for entering, leaving, n in zip(lines.second_inputs, lines.second_outputs, first, strict=True):
                    m.d.comb += entering.eq(slots[n - 2])
                    skipped[n] = Mux(lines.delayed, leaving, slots[n - 2])
                    skipped[n + 1] = before[n]
        with m.If(self.push):
            for slot, activation, moved, by_two in zip(slots, activations, before, skipped, strict=False):
                if pairs:
                    moved = Mux(self.twice, by_two, moved)
                m.d.sync += slot.eq(Mux(self.shift, moved, activation.replicate(self.lanes)))
        return m
