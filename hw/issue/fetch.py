"""FETCH: reads the program, decodes and checks it, dispatches to the queues."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.connections import unread
from tilewright.hw.interfaces import LENGTH_BITS, Fault, ReadPort
from tilewright.hw.issue.decoder import Decoder
from tilewright.hw.parts.probes import declare_probes
from tilewright.hw.parts.queue import BlockQueue
from tilewright.hw.sizes import pc_bits
from tilewright.isa.config import NpuConfig
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import INSTRUCTION_BITS, INSTRUCTION_BYTES
from tilewright.isa.instructions import Engine
from tilewright.isa.timing import FETCH_BUFFER_BYTES, FETCH_SETUP, fetch_burst_bytes

#: Cycles from `start`, which comes a cycle after the run has begun, to the one before the first burst request.
SETUP_CYCLES = FETCH_SETUP - 1
#: Bits of a byte's place in an instruction.
_INSTRUCTION = (INSTRUCTION_BYTES - 1).bit_length()


class Fetch(wiring.Component):
    """Streams the program. Bursts are asked for while the buffer has room for them, up to the end of the program or of
    its region; END stops asking. Beats are assembled into instructions, decoded in a second stage and dispatched from
    a third. An instruction that is wrong, or beyond the program, is an error when its turn comes. A program that does
    not lie in its region as a whole is not begun.

    Latency: first request SETUP_CYCLES + 1 after `start`; a beat that completes an instruction in cycle t leads to its
    dispatch in cycle t+3 at the earliest (buffer, word, checked word); one instruction per cycle.

    Ports:
        start: begin.  base, size, allowed: the program's region.  offset, length: place of the program in it, in
            bytes and instructions.
        read: bursts; its beats are always taken.
        valid, engine, word, pc: instruction for the queue of `engine`.  ready: that queue takes it.
        ended: END has been dispatched.
        fault, fault_code: at instruction `pc`; given when `quiet`: no engine can move any more.
        halt: stop.

    Probes:
        setup: one-hot, the cycle after `start`.  active: the program runs.
        available, present: bytes from the first instruction to the end of the region; instructions of the program, 0 if
            it leaves the region.
        address, beats_left, next_beats: the next burst, in beats: its address, the beats to the end of the program, its
            own beats.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "base": In(config.axi_address_bits),
                "size": In(config.offset_bits),
                "allowed": In(1),
                "offset": In(config.offset_bits),
                "length": In(LENGTH_BITS),
                "read": Out(ReadPort(config, may_wait=False)),
                "valid": Out(1),
                "ready": In(1),
                "engine": Out(range(max(Engine) + 1)),
                "word": Out(INSTRUCTION_BITS),
                "pc": Out(pc_bits(config)),
                "step": Out(1),
                "ended": Out(1),
                "fault": Out(Fault(config, config.axi_address_bits)),
                "fault_code": Out(8),
                "quiet": In(1),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        self._low = (c.bus_bytes - 1).bit_length()
        offset = Cat(C(0, _INSTRUCTION), self.offset[_INSTRUCTION:])
        m.submodules.decoder = decoder = Decoder(c)
        self.setup = Signal(SETUP_CYCLES)
        self.active = Signal()
        self.available = Signal(c.offset_bits)  # bytes from the first instruction to the end of the region
        self.present = Signal(pc_bits(c))  # instructions of the program, 0 if it leaves its region
        self.address = Signal(c.axi_address_bits - self._low)  # in beats
        self.beats_left = Signal(pc_bits(c) + _INSTRUCTION - self._low + 1)
        beats, skip = self._set_up(m, offset)
        buffer, popped = self._requests(m, beats)
        self._words(m, buffer, popped, skip)
        self._dispatch(m, decoder, offset)
        unread(m, buffer.i_ready)  # `free` counts
        declare_probes(self, setup=self.setup, active=self.active, available=self.available, present=self.present)
        declare_probes(self, address=self.address, beats_left=self.beats_left, next_beats=self.next_beats)
        return m

    def _set_up(self, m: Module, offset: Value) -> tuple[Signal, Value]:
        """Counts the instructions that the region holds, and finds the first beat. Returns the beats of the whole
        program, and the number of instructions before it in its first beat."""
        m.d.sync += self.setup.eq(Cat(self.start, self.setup[:-1]))
        inside = self.allowed & (self.size > offset)
        with m.If(self.setup[0]):
            m.d.sync += [
                self.available.eq(Mux(inside, self.size - offset, 0)),
                self.address.eq((self.base + offset) >> self._low),
            ]
        with m.If(self.setup[1]):
            whole = self.available >> _INSTRUCTION
            m.d.sync += self.present.eq(Mux(whole < self.length, 0, self.length))
        wide = self._low > _INSTRUCTION
        skip = offset[: self._low] >> _INSTRUCTION if wide else C(0, 1)
        beats = Signal.like(self.beats_left)
        with m.If(self.setup[2]):
            m.d.sync += [self.active.eq(1), self.beats_left.eq(beats)]
        if wide:
            per_beat = 1 << (self._low - _INSTRUCTION)
            m.d.comb += beats.eq((self.present + skip + per_beat - 1) >> (self._low - _INSTRUCTION))
        else:
            m.d.comb += beats.eq(self.present << (_INSTRUCTION - self._low))
        return beats, skip

    def _requests(self, m: Module, beats: Signal) -> tuple[BlockQueue, Signal]:
        """Asks for bursts: they end at multiples of `fetch_burst_bytes`, and only beats that fit the buffer are under
        way. Returns the buffer, and whether a beat leaves it."""
        c, address, beats_left = self.config, self.address, self.beats_left
        depth = FETCH_BUFFER_BYTES // c.bus_bytes
        chunk = fetch_burst_bytes(c) // c.bus_bytes
        chunk_bits = (chunk - 1).bit_length()
        m.submodules.buffer = buffer = BlockQueue(c.axi_data_bits + 1, depth)
        free = Signal(range(depth + 1), init=depth)
        enough = Signal()  # for the next burst
        to_end = Signal(range(chunk + 1))
        # Of the next burst: what is left, but to the end of the chunk at most.
        self.next_beats = next_beats = Signal(range(chunk + 1))
        m.d.comb += [
            to_end.eq(chunk - address[:chunk_bits]),
            self.read.beats.eq(next_beats),
            self.read.address.eq(Cat(C(0, self._low), address)),
            self.read.valid.eq(self.active & enough & ~self.halt),
            buffer.i_valid.eq(self.read.beat),
            buffer.i_payload.eq(Cat(self.read.data, self.read.bad)),
        ]
        # The comparison takes a cycle: a burst is asked for in every second one at most.
        asked_now = self.read.valid & self.read.ready
        m.d.sync += enough.eq(self.active & (next_beats != 0) & (free >= next_beats) & ~asked_now)
        asked = Signal(range(chunk + 1))
        remaining = Signal.like(beats_left)
        m.d.comb += remaining.eq(beats_left - next_beats)
        with m.If(self.setup[2]):
            m.d.sync += next_beats.eq(Mux(beats < to_end, beats, to_end))
        with m.If(asked_now):
            m.d.comb += asked.eq(next_beats)
            m.d.sync += [
                address.eq(address + next_beats),
                beats_left.eq(remaining),
                next_beats.eq(Mux(remaining < chunk, remaining, chunk)),
            ]
        popped, left = Signal(), Signal()  # a beat leaves the buffer; left it in the cycle before
        m.d.comb += popped.eq(buffer.o_valid & buffer.o_ready)
        m.d.sync += [left.eq(popped), free.eq(free - asked + left)]
        return buffer, popped

    def _words(self, m: Module, buffer: BlockQueue, popped: Signal, skip: Value) -> None:
        """Second stage: assembles one instruction from beats."""
        bus = self.config.bus_bytes
        word, word_bad, word_valid, word_take = Signal(INSTRUCTION_BITS), Signal(), Signal(), Signal()
        self._word = word, word_bad, word_valid, word_take
        beat, bad = buffer.o_payload[:-1], buffer.o_payload[-1]
        room = ~word_valid | word_take
        if bus < INSTRUCTION_BYTES:
            parts = INSTRUCTION_BYTES // bus
            part = Signal(range(parts))
            m.d.comb += buffer.o_ready.eq(room)
            with m.If(word_take):
                m.d.sync += [word_valid.eq(0), word_bad.eq(0)]
            with m.If(popped):
                m.d.sync += [
                    word.eq(Cat(word[8 * bus :], beat)),
                    word_bad.eq((word_bad & ~word_take) | bad),
                    part.eq(part + 1),
                    word_valid.eq(part == parts - 1),
                ]
        else:
            parts = bus // INSTRUCTION_BYTES
            part = Signal(range(max(2, parts)))
            m.d.comb += buffer.o_ready.eq(room & (part == parts - 1))
            with m.If(self.setup[2]):
                m.d.sync += part.eq(skip)
            with m.If(word_take):
                m.d.sync += word_valid.eq(0)
            with m.If(room & buffer.o_valid):
                m.d.sync += [
                    word.eq(beat.word_select(part, INSTRUCTION_BITS) if parts > 1 else beat),
                    word_bad.eq(bad),
                    word_valid.eq(1),
                    part.eq(Mux(part == parts - 1, 0, part + 1)),
                ]

    def _dispatch(self, m: Module, decoder: Decoder, offset: Value) -> None:
        """Third stage: checks an instruction, which waits for its queue."""
        active, present = self.active, self.present
        word, word_bad, word_valid, word_take = self._word
        held, leaves, bus_error, legal, operands_ok = Signal(), Signal(), Signal(), Signal(), Signal()
        sends, ends, bad_one = Signal(), Signal(), Signal()  # what is held is to be dispatched, is END, is wrong
        m.d.comb += [
            decoder.word.eq(word),
            word_take.eq(word_valid & (~held | leaves)),
        ]
        good = decoder.legal & decoder.operands_ok & ~word_bad
        with m.If(word_take):
            m.d.sync += [
                held.eq(1),
                self.word.eq(word),
                self.engine.eq(decoder.engine),
                bus_error.eq(word_bad),
                legal.eq(decoder.legal),
                operands_ok.eq(decoder.operands_ok),
                sends.eq(good & ~decoder.end),
                ends.eq(good & decoder.end),
                bad_one.eq(~good),
            ]
        with m.Elif(leaves):
            m.d.sync += [held.eq(0), sends.eq(0), ends.eq(0)]
        at_end = Signal()  # all instructions of the program were dispatched
        beyond = active & at_end
        # While halted, instructions still leave this stage (`leaves`), but none is dispatched.
        m.d.comb += [
            leaves.eq(active & ~at_end & ((sends & self.ready) | ends)),
            self.valid.eq(sends & active & ~at_end & ~self.halt),
            self.step.eq(leaves & ~self.halt),
            self.fault.pc.eq(self.pc),
            self.fault.error.eq(active & ~self.halt & self.quiet & (at_end | bad_one)),
        ]
        with m.If(beyond):
            m.d.comb += self.fault_code.eq(Mux(present == self.length, ErrorCode.NO_END, ErrorCode.WINDOW))
        with m.Elif(bus_error):
            m.d.comb += self.fault_code.eq(ErrorCode.BUS_READ)
        with m.Else():
            m.d.comb += self.fault_code.eq(Mux(legal, ErrorCode.ILLEGAL_OPERAND, ErrorCode.ILLEGAL_OPCODE))
        with m.If(beyond | bus_error):
            m.d.comb += self.fault.address.eq(self.base + offset + (self.pc << _INSTRUCTION))
        with m.If(self.setup[2]):
            m.d.sync += at_end.eq(present == 0)
        # Whether pc + 1 is `present`, without a carry: where each bit of the sum is that of `present`, the carry out of
        # it is pc & ~present.
        carries = Cat(C(1, 1), self.pc & ~present)[: pc_bits(self.config)]
        with m.If(self.step):
            m.d.sync += [self.pc.eq(self.pc + 1), at_end.eq((self.pc ^ present) == carries)]
            with m.If(ends):
                m.d.sync += [active.eq(0), self.ended.eq(1)]
