"""AXI4 bursts as segments of an SDRAM."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fpga.memory import DECERR, OKAY, channel_queues, unread_attributes
from fpga.sdram.controller import PAIR_BYTES, SEGMENT_PAIRS
from hw.connections import unread
from hw.interfaces import Axi4
from hw.queue import Queue, RegisteredQueue
from isa.config import NpuConfig

#: Segments whose beats have room before the master takes the first.
READ_SEGMENTS = 4
#: Segments whose beats to write have room.
WRITE_SEGMENTS = 2
#: Responses to writes: those of the segments under way, and as many that wait for the master.
RESPONSES = 2 * WRITE_SEGMENTS


class Splitter(wiring.Component):
    """Cuts a burst at multiples of a segment.

    Latency: 2 cycles, then a segment per cycle; the next burst is taken when the last segment has gone.

    Parameters:
        address_bits: of an address in beats.
        segment_beats: beats of a segment, a power of two.

    Ports:
        i_valid, i_ready, i_address, i_length: bursts; `i_address` and `i_length`, less one, in beats.
        o_valid, o_ready, o_address, o_count, o_last: segments, `o_count` beats less one; `o_last` ends its burst.
    """

    def __init__(self, address_bits: int, segment_beats: int) -> None:
        self.segment_beats = segment_beats
        super().__init__(
            {
                "i_valid": In(1),
                "i_ready": Out(1),
                "i_address": In(address_bits),
                "i_length": In(8),
                "o_valid": Out(1),
                "o_ready": In(1),
                "o_address": Out(address_bits),
                "o_count": Out(range(segment_beats)),
                "o_last": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        active = Signal()
        address, left = Signal.like(self.i_address), Signal.like(self.i_length)
        low = address[: len(self.o_count)]
        to_end = Signal.like(self.o_count)  # beats up to the multiple, less one
        ends = Signal()
        m.d.comb += [
            to_end.eq(~low),
            ends.eq(left <= to_end),
            self.i_ready.eq(~active & ~self.o_valid),
        ]
        with m.If(self.i_valid & self.i_ready):
            m.d.sync += [active.eq(1), address.eq(self.i_address), left.eq(self.i_length)]
        with m.If(self.o_ready):
            m.d.sync += self.o_valid.eq(0)
        with m.If(active & (~self.o_valid | self.o_ready)):
            m.d.sync += [
                self.o_valid.eq(1), self.o_address.eq(address), self.o_last.eq(ends), active.eq(~ends),
                self.o_count.eq(Mux(ends, left[: len(self.o_count)], to_end)),
                left.eq(left - to_end - 1),
                address.eq(Cat(C(0, len(low)), address[len(low) :] + 1)),
            ]  # fmt: skip
        return m


class AxiSegments(wiring.Component):
    """AXI4 slave that asks for segments; they must be executed in order. A segment to write is offered once its beats
    are there, a segment to read while its beats have room. The direction changes at the end of a burst, if the other
    direction has a segment to offer.

    Addresses beyond the memory answer DECERR: they read what is there and write nothing.

    Parameters:
        config: widths of the bus.
        pair_bits: of an address of the memory in pairs.

    Ports:
        axi: AXI4 slave.
        o_valid, o_ready, o_write, o_pair, o_count, o_tag: segments, as `SdramController` takes them.
        w_take, w_last, w_tag, w_data, w_mask: as there.
        r_valid, r_data, r_tag, r_last: as there.
    """

    #: Of a segment: ends its burst, ID of the burst, outside the memory.
    TAG_BITS = 3

    def __init__(self, config: NpuConfig, pair_bits: int) -> None:
        self.config, self.pair_bits = config, pair_bits
        super().__init__(
            {
                "axi": In(Axi4(config)),
                "o_valid": Out(1),
                "o_ready": In(1),
                "o_write": Out(1),
                "o_pair": Out(pair_bits),
                "o_count": Out(range(SEGMENT_PAIRS)),
                "o_tag": Out(self.TAG_BITS),
                "w_take": In(1),
                "w_last": In(1),
                "w_tag": In(self.TAG_BITS),
                "w_data": Out(8 * PAIR_BYTES),
                "w_mask": Out(PAIR_BYTES),
                "r_valid": In(1),
                "r_data": In(8 * PAIR_BYTES),
                "r_tag": In(self.TAG_BITS),
                "r_last": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.config.bus_bytes
        pairs = bus // PAIR_BYTES  # of a beat
        beat_low = (bus - 1).bit_length()
        pair_low = (pairs - 1).bit_length()
        segment_beats = SEGMENT_PAIRS // pairs
        end = self.pair_bits + (PAIR_BYTES - 1).bit_length()  # of the memory, in address bits
        channels = {"ar": ("addr", "len", "id"), "aw": ("addr", "len", "id"), "w": ("data", "strb")}
        queues, fields = channel_queues(m, self.axi, channels, {"w": WRITE_SEGMENTS * segment_beats})

        splitters: dict[str, Splitter] = {}
        tags: dict[str, Value] = {}
        for channel in ("ar", "aw"):
            splitter = splitters[channel] = Splitter(self.pair_bits - pair_low, segment_beats)
            m.submodules[f"{channel}_splitter"] = splitter
            field, queue = fields[channel], queues[channel]
            name, bad = Signal(name=f"{channel}_id"), Signal(name=f"{channel}_outside")
            m.d.comb += [
                splitter.i_valid.eq(queue.o_valid),
                queue.o_ready.eq(splitter.i_ready),
                splitter.i_address.eq(field["addr"][beat_low:end]),
                splitter.i_length.eq(field["len"]),
            ]
            with m.If(splitter.i_valid & splitter.i_ready):
                m.d.sync += [name.eq(field["id"]), bad.eq(field["addr"][end:].any())]
            tags[channel] = Cat(splitter.o_last, name, bad)
        reads, writes = splitters["ar"], splitters["aw"]

        # Beats to write: `stored` of them belong to no segment that has gone.
        m.submodules.responses = responses = Queue(2, RESPONSES)
        beats_in = queues["w"]
        stored = Signal(range(beats_in.depth + 1))
        write_may, read_may = Signal(), Signal()
        write_goes, read_goes = Signal(), Signal()
        pushed = beats_in.i_valid & beats_in.i_ready
        m.d.sync += [
            stored.eq(stored + pushed - Mux(write_goes, writes.o_count + 1, 0)),
            write_may.eq(writes.o_valid & (stored > writes.o_count) & (responses.level < WRITE_SEGMENTS) & ~write_goes),
        ]

        # Beats read: `room` beats have room that no segment claims.
        m.submodules.beats = beats = RegisteredQueue(8 * bus + self.TAG_BITS, READ_SEGMENTS * segment_beats)
        room = Signal(range(beats.depth + 1), init=beats.depth)
        taken = Signal()
        m.d.sync += [
            taken.eq(self.axi.r.valid & self.axi.r.ready),
            room.eq(room + taken - Mux(read_goes, reads.o_count + 1, 0)),
            read_may.eq(reads.o_valid & room[(segment_beats - 1).bit_length() :].any() & ~read_goes),
        ]

        # Which goes.
        turn_of_writes, chosen_write = Signal(), Signal()
        m.d.comb += [
            chosen_write.eq(write_may & (turn_of_writes | ~read_may)),
            self.o_valid.eq(write_may | read_may),
            self.o_write.eq(chosen_write),
            write_goes.eq(chosen_write & self.o_ready),
            read_goes.eq(read_may & ~chosen_write & self.o_ready),
            reads.o_ready.eq(read_goes),
            writes.o_ready.eq(write_goes),
        ]
        for splitter, channel, chosen in ((writes, "aw", chosen_write), (reads, "ar", ~chosen_write)):
            with m.If(chosen):
                m.d.comb += [
                    self.o_pair.eq(splitter.o_address << pair_low),
                    self.o_count.eq(Cat(C(pairs - 1, pair_low), splitter.o_count)),
                    self.o_tag.eq(tags[channel]),
                ]
        with m.If(write_goes):
            m.d.sync += turn_of_writes.eq(~writes.o_last)
        with m.If(read_goes):
            m.d.sync += turn_of_writes.eq(reads.o_last)

        # A write is answered when its last words are written: no reset loses what was answered.
        last_written, written_name, written_bad = self.w_tag
        answered_bad = Signal()
        m.d.comb += [
            responses.i_valid.eq(self.w_take & self.w_last & last_written),
            responses.i_payload.eq(Cat(written_name, written_bad)),
            self.axi.b.valid.eq(responses.o_valid),
            responses.o_ready.eq(self.axi.b.ready),
            Cat(self.axi.b.id, answered_bad).eq(responses.o_payload),
            self.axi.b.resp.eq(Mux(answered_bad, DECERR, OKAY)),
        ]

        # Beats in pairs.
        to_write, from_memory = Signal(range(pairs)), Signal(range(pairs))
        strobe = fields["w"]["strb"].word_select(to_write, PAIR_BYTES)
        m.d.comb += [
            self.w_data.eq(fields["w"]["data"].word_select(to_write, 8 * PAIR_BYTES)),
            self.w_mask.eq(Mux(beats_in.o_valid & ~written_bad, ~strobe, (1 << PAIR_BYTES) - 1)),
            beats_in.o_ready.eq(self.w_take & (to_write == pairs - 1)),
        ]
        with m.If(self.w_take):
            m.d.sync += to_write.eq(to_write + 1)
        before = Signal(8 * (bus - PAIR_BYTES), reset_less=True)
        beat = Cat(before, self.r_data)
        last, read_name, read_bad = self.r_tag
        bad_beat = Signal()
        m.d.comb += [
            beats.i_valid.eq(self.r_valid & (from_memory == pairs - 1)),
            beats.i_payload.eq(Cat(beat, last & self.r_last, read_name, read_bad)),
            self.axi.r.valid.eq(beats.o_valid),
            beats.o_ready.eq(self.axi.r.ready),
            Cat(self.axi.r.data, self.axi.r.last, self.axi.r.id, bad_beat).eq(beats.o_payload),
            self.axi.r.resp.eq(Mux(bad_beat, DECERR, OKAY)),
        ]
        with m.If(self.r_valid):
            m.d.sync += [from_memory.eq(from_memory + 1), before.eq(beat[8 * PAIR_BYTES :])]
        unread_attributes(m, self.axi)
        unread(m, self.axi.w.last, beats.i_ready, responses.i_ready)  # AWLEN counts; `room` and `level` leave room
        return m
