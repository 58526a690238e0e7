"""Splits AXI4 bursts into segments of an SDRAM."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.fpga.memory import ADDRESSES, DECERR, OKAY
from tilewright.fpga.sdram.controller import PAIR_BYTES, SEGMENT_PAIRS
from tilewright.fpga.sdram.crossing import CrossedAxi
from tilewright.hw.connections import unread
from tilewright.isa.config import NpuConfig

#: Segments whose beats have room before the master takes the first.
READ_SEGMENTS = 4
#: Segments whose beats to write have room.
WRITE_SEGMENTS = 2
#: Responses to writes: those of the segments under way, and as many that wait for the master.
RESPONSES = 2 * WRITE_SEGMENTS


def depths(config: NpuConfig) -> dict[str, int]:
    """Entries of the channel queues before `AxiSegments`."""
    beats = SEGMENT_PAIRS * PAIR_BYTES // config.bus_bytes  # of a segment
    addresses = 2 * ADDRESSES  # half of them are on their way
    return {
        "ar": addresses, "aw": addresses, "w": WRITE_SEGMENTS * beats, "r": READ_SEGMENTS * beats, "b": RESPONSES,
    }  # fmt: skip


class Splitter(wiring.Component):
    """Cuts a burst at multiples of a segment.

    Latency: 2 cycles, then a segment per cycle; the next burst is taken when the last segment has gone.

    Parameters:
        address_bits: bits of an address in beats.
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
        self.active, self.address, self.left = active, address, left  # for `verification.formal.boards`
        low = address[: len(self.o_count)]
        to_end = Signal.like(self.o_count)  # beats up to the multiple, less one
        ends = Signal()
        m.d.comb += [to_end.eq(~low), ends.eq(left <= to_end), self.i_ready.eq(~active & ~self.o_valid)]
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
    """AXI4 slave that requests segments, to be executed in order. A segment to write is offered once its beats are
    there, a segment to read while its beats have room. The direction changes at the end of a burst, if the other
    direction has a segment to offer.

    Addresses beyond the memory answer DECERR: their reads return arbitrary data and their writes are dropped.

    Parameters:
        config: widths of the bus.
        pair_bits: bits of an address of the memory in pairs.

    Ports:
        axi: slave. Beats read and responses are given when they are there: their queues have room for all requests.
        w_come, r_left, b_left: ports of `tilewright.fpga.sdram.crossing.AxiCrossing` with queues of `depths`.
        o_valid, o_ready, o_write, o_pair, o_count, o_tag: segments, as `SdramController` takes them.
        w_take, w_last, w_tag, w_data, w_mask: ports of `SdramController`.
        r_valid, r_data, r_tag, r_last: ports of `SdramController`.
    """

    #: Bits of a segment's tag: ends its burst, ID of the burst, outside the memory.
    TAG_BITS = 3

    def __init__(self, config: NpuConfig, pair_bits: int) -> None:
        self.config, self.pair_bits = config, pair_bits
        depth = depths(config)
        super().__init__(
            {
                "axi": In(CrossedAxi(config)),
                "w_come": In(range(2 * depth["w"])),
                "r_left": In(range(2 * depth["r"])),
                "b_left": In(range(2 * depth["b"])),
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
        depth = depths(self.config)

        splitters: dict[str, Splitter] = {}
        tags: dict[str, Value] = {}
        for name in ("ar", "aw"):
            splitter = splitters[name] = Splitter(self.pair_bits - pair_low, segment_beats)
            m.submodules[f"{name}_splitter"] = splitter
            channel = getattr(self.axi, name)
            identity, bad = Signal(name=f"{name}_id"), Signal(name=f"{name}_outside")
            m.d.comb += [
                splitter.i_valid.eq(channel.valid),
                channel.ready.eq(splitter.i_ready),
                splitter.i_address.eq(channel.addr[beat_low:end]),
                splitter.i_length.eq(channel.len),
            ]
            with m.If(splitter.i_valid & splitter.i_ready):
                m.d.sync += [identity.eq(channel.id), bad.eq(channel.addr[end:].any())]
            tags[name] = Cat(splitter.o_last, identity, bad)
        reads, writes = splitters["ar"], splitters["aw"]

        # Claims of the segments that have gone: beats to write, room for beats read, room for responses. Counted like
        # the queues' pointers, so differences are the available amounts.
        counts = (self.w_come, self.r_left, self.b_left)
        beats_claimed, room_claimed, answers_claimed = (
            Signal.like(count, name=f"{name}_claimed")
            for count, name in zip(counts, ("beats", "room", "answers"), strict=True)
        )
        stored, room_taken, answers = map(Signal.like, counts)
        write_may, read_may = (Signal(name=name) for name in ("write_may", "read_may"))
        write_goes, read_goes = Signal(), Signal()
        m.d.comb += [
            stored.eq(self.w_come - beats_claimed),
            room_taken.eq(room_claimed - self.r_left),
            answers.eq(answers_claimed - self.b_left),
        ]
        m.d.sync += [
            write_may.eq(writes.o_valid & (stored > writes.o_count) & (answers != depth["b"]) & ~write_goes),
            read_may.eq(reads.o_valid & (room_taken <= depth["r"] - segment_beats) & ~read_goes),
        ]
        with m.If(write_goes):
            m.d.sync += [
                beats_claimed.eq(beats_claimed + writes.o_count + 1),
                answers_claimed.eq(answers_claimed + writes.o_last),
            ]
        with m.If(read_goes):
            m.d.sync += room_claimed.eq(room_claimed + reads.o_count + 1)

        # Which goes.
        turn_of_writes, chosen_write = (Signal(name=name) for name in ("turn_of_writes", "chosen_write"))
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

        # A write is answered when its last words are written, so a reset loses no answered write.
        last_written, written_name, written_bad = self.w_tag
        m.d.comb += [
            self.axi.b.valid.eq(self.w_take & self.w_last & last_written),
            self.axi.b.id.eq(written_name),
            self.axi.b.resp.eq(Mux(written_bad, DECERR, OKAY)),
        ]

        # Beats in pairs.
        to_write, from_memory = (Signal(range(pairs), name=name) for name in ("to_write", "from_memory"))
        w, r = self.axi.w, self.axi.r
        strobe = w.strb.word_select(to_write, PAIR_BYTES)
        m.d.comb += [
            self.w_data.eq(w.data.word_select(to_write, 8 * PAIR_BYTES)),
            self.w_mask.eq(Mux(w.valid & ~written_bad, ~strobe, (1 << PAIR_BYTES) - 1)),
            w.ready.eq(self.w_take & (to_write == pairs - 1)),
        ]
        with m.If(self.w_take):
            m.d.sync += to_write.eq(to_write + 1)
        before = Signal(8 * (bus - PAIR_BYTES), reset_less=True)
        beat = Cat(before, self.r_data)
        last, read_name, read_bad = self.r_tag
        m.d.comb += [
            r.valid.eq(self.r_valid & (from_memory == pairs - 1)),
            r.data.eq(beat),
            r.last.eq(last & self.r_last),
            r.id.eq(read_name),
            r.resp.eq(Mux(read_bad, DECERR, OKAY)),
        ]
        with m.If(self.r_valid):
            m.d.sync += [from_memory.eq(from_memory + 1), before.eq(beat[8 * PAIR_BYTES :])]
        unread(m, r.ready, self.axi.b.ready)  # claimed before
        return m
