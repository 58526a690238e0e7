"""The window register: the activations that the array multiplies, slot i with weight i of every output."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Array, C, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.connections import unread
from tilewright.hw.interfaces import bits_for
from tilewright.hw.parts.delay_lines import DelayLines
from tilewright.isa.config import NpuConfig


class Window(wiring.Component):
    """A slot for each of the block_in weights of an output, of D = `dw_lanes` lanes. In DEPTHWISE they
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
        if self.config.window_pairs:
            self._pairs(m, slots, activations)
            return m
        newest = self._slice(m, self.vector)
        # Zeros come through the LUT that chooses: an input for resets would be reached by a wire across the array.
        kept = (~self.clear).replicate(8 * self.lanes)
        before = [newest, *(slot & kept for slot in slots)]
        if self.config.delay_lines:
            lines = self._lines(m, slots)
            for leaving, n in zip(lines.outputs, self._segments, strict=True):
                before[n] = Mux(lines.delayed, leaving, slots[n - 1]) & kept
        with m.If(self.push):
            for slot, activation, moved in zip(slots, activations, before, strict=False):
                m.d.sync += slot.eq(Mux(self.shift, moved, activation.replicate(self.lanes)))
        return m

    @property
    def _segments(self) -> range:
        """The first slot of each segment behind a delay line."""
        return range(self.config.window_segment, self.count, self.config.window_segment)

    def _slice(self, m: Module, vector: Value) -> Value:
        if self.lanes < self.count:
            return vector.word_select(self.slice, 8 * self.lanes)
        unread(m, self.slice)
        return vector

    def _lines(self, m: Module, slots: Sequence[Signal]) -> DelayLines:
        """Makes the delay lines behind the last slot of each segment."""
        m.submodules.lines = lines = DelayLines(self.config)
        m.d.comb += [lines.push.eq(self.push & self.shift), lines.clear.eq(self.clear), lines.delay.eq(self.delay)]
        m.d.comb += [entering.eq(slots[n - 1]) for entering, n in zip(lines.inputs, self._segments, strict=True)]
        return lines

    def _pairs(self, m: Module, slots: Sequence[Signal], activations: Sequence[Value]) -> None:
        """Moves the slots by one vector or by two. Each chooses by two bits among four: an activation, what is one and
        two slots before, and what comes of a delay line or is zero.
        """
        first, second = self._slice(m, self.vector), self._slice(m, self.second)
        by_one, by_two = [first, *slots], [second, first, *slots]
        others: dict[int, Value] = {}  # what slots at the beginning of a segment may take from a delay line
        delayed: Value = C(0, 1)
        if self.config.delay_lines:
            lines, delayed = self._lines(m, slots), Signal()
            m.d.comb += [delayed.eq(lines.delayed), lines.twice.eq(self.twice)]
            for n, entering, newer, older in zip(
                self._segments, lines.second_inputs, lines.outputs, lines.first_outputs, strict=True
            ):
                m.d.comb += entering.eq(slots[n - 2])
                others |= {n: newer, n + 1: older}
        moved = Mux(self.twice, 2, 1)
        for n, (slot, activation) in enumerate(zip(slots, activations, strict=True)):
            # A line gives zeros with `clear`. The first slot keeps what is pushed.
            takes = self.clear
            if n in others:
                takes = self.clear | delayed & (self.twice | (n in self._segments))
            choice = Mux(self.shift, moved if n == 0 else Mux(takes, 3, moved), 0)
            values = Array(
                [activation.replicate(self.lanes), by_one[n], by_two[n], others.get(n, C(0, 8 * self.lanes))]
            )
            with m.If(self.push):
                m.d.sync += slot.eq(values[choice])
