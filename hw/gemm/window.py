"""The window register: the activations that the array multiplies, slot i with weight i of every output."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
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
        """Moves the slots by one vector or by two. A LUT of four inputs has room for two vectors and two control bits:
        so in GEMM all bits are set, and the lanes of a bit have a reset in common, by activation or for zeros.
        """
        first, second = self._slice(m, self.vector), self._slice(m, self.second)
        by_one, by_two, ones = [first, *slots], [second, first, *slots], C(-1, 8 * self.lanes)
        moved = [Mux(self.shift, Mux(self.twice, two, one), ones) for one, two in zip(by_one, by_two, strict=False)]
        empty: list[Value] = [C(0, 1), *(self.clear for _ in slots)]  # the first slot keeps what is pushed
        if self.config.delay_lines:
            lines = self._lines(m, slots)
            m.d.comb += [lines.twice.eq(self.twice), lines.rest.eq(~self.shift | self.twice)]
            m.d.comb += [
                entering.eq(slots[n - 2]) for entering, n in zip(lines.second_inputs, self._segments, strict=True)
            ]
            newer = lines.delayed, lines.there, lines.outputs
            older = lines.delayed & self.twice, lines.first_there, lines.first_outputs
            for behind, (gives, there, outputs) in enumerate((newer, older)):
                for start, leaving in zip(self._segments, outputs, strict=False):
                    n = start + behind
                    # Where no vector leaves, the bits of the output say by how much the slot moves.
                    choice = [Mux(bit, two, one) for bit, one, two in zip(leaving, by_one[n], by_two[n], strict=True)]
                    moved[n] = Mux(~self.shift | gives, leaving, Cat(choice))
                    empty[n] = self.clear | gives & ~there
        for n, (slot, activation) in enumerate(zip(slots, activations, strict=True)):
            zeros = Signal(8, name=f"zeros{n}")
            m.d.comb += zeros.eq(Mux(self.shift, empty[n].replicate(8), ~activation) & self.push.replicate(8))
            with m.If(self.push):
                m.d.sync += slot.eq(moved[n])
            for bit in range(8):
                with m.If(zeros[bit]):
                    m.d.sync += [slot[8 * lane + bit].eq(0) for lane in range(self.lanes)]
