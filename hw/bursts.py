"""From boxes in a memory region to AXI bursts, for LOAD and STORE."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.queue import Queue
from isa.config import NpuConfig
from isa.timing import OUT_BURSTS

#: AXI: a burst must not cross a multiple of this many bytes.
AXI_BOUNDARY = 4096


def run_bits(row_bytes: int) -> int:
    """Bits of the bytes of one run: 2**16 - 1 rows of so many bytes."""
    return 16 + (row_bytes - 1).bit_length()


class BurstWalker(wiring.Component):
    """Walks the contiguous runs of a box and splits each into INCR bursts of at most `burst_beats` beats that do not
    cross AXI_BOUNDARY: all but the last end at a multiple of `burst_beats`. Three stages, each one item per cycle
    (offset with the window check, address, burst), and a queue of OUT_BURSTS.

    Latency: the first burst is out 4 cycles after `start`; then the first burst of a run per cycle while `o_ready`, and
    further bursts of a run in every second cycle: where a burst ends is found in the cycle before.

    Parameters:
        config: bus and bursts.
        tag_bits: bits that travel with the instruction.
        run_bits: of the bytes of a run.

    Ports:
        start, offset, bytes, count0, count1, mem_stride0, mem_stride1, tag: a box, counts at least 1.
        null: the box is empty but takes its turn: one item with `o_null`.
        base, size, allowed: region of the box in the first stage.
        ready: the first stage is idle: when `start` may come.  ready_next: it is in the next cycle.
        o_valid, o_ready, o_address, o_beats, o_last, o_tag: bursts; `o_last` is the last of the box.
        failed, error_address, error_tag: the next run leaves the window, and all bursts before it have been taken.
        busy: any stage holds something.
        halt: hold everything.
    """

    def __init__(self, config: NpuConfig, tag_bits: int, run_bits: int) -> None:
        self.config, self.tag_bits, self.run_bits = config, tag_bits, run_bits
        self.beat_bits = config.burst_beats.bit_length()
        super().__init__(
            {
                "start": In(1),
                "offset": In(config.offset_bits),
                "bytes": In(run_bits),
                "count0": In(16),
                "count1": In(16),
                "mem_stride0": In(signed(config.offset_bits)),
                "mem_stride1": In(signed(config.offset_bits)),
                "tag": In(tag_bits),
                "null": In(1),
                "base": In(config.axi_address_bits),
                "size": In(config.offset_bits),
                "allowed": In(1),
                "ready": Out(1),
                "ready_next": Out(1),
                "o_valid": Out(1),
                "o_ready": In(1),
                "o_address": Out(config.axi_address_bits),
                "o_beats": Out(self.beat_bits),
                "o_last": Out(1),
                "o_null": Out(1),
                "o_tag": Out(tag_bits),
                "failed": Out(1),
                "error_address": Out(config.axi_address_bits + 1),
                "error_tag": Out(tag_bits),
                "busy": Out(1),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        low = (c.bus_bytes - 1).bit_length()

        # Stage 1: offsets of runs.
        active = Signal()
        now, plane = Signal(c.offset_bits, reset_less=True), Signal(c.offset_bits, reset_less=True)
        end = Signal(max(c.offset_bits, self.run_bits) + 1, reset_less=True)  # of the run: now + bytes
        stride0, stride1 = Signal(c.offset_bits, reset_less=True), Signal(c.offset_bits, reset_less=True)
        bytes_, tag1 = Signal(self.run_bits, reset_less=True), Signal(self.tag_bits, reset_less=True)
        left0, most0, left1 = (Signal(16, reset_less=True, name=n) for n in ("left0", "most0", "left1"))
        same_plane, more_planes = (
            Signal(name=n, reset_less=True) for n in ("same_plane", "more_planes")
        )  # `left` is not 0
        take1, room2, last1 = Signal(), Signal(), Signal()
        null1, null2, null3 = (Signal(name=f"null{n}", reset_less=True) for n in (1, 2, 3))
        m.d.comb += [
            last1.eq(null1 | ~(same_plane | more_planes)),
            take1.eq(active & room2),
            self.ready.eq(~active),
            self.ready_next.eq(Mux(active, take1 & last1, ~self.start)),
        ]
        following = Signal(c.offset_bits)
        m.d.comb += following.eq(Mux(same_plane, now + stride0, plane + stride1))
        with m.If(take1):
            m.d.sync += [now.eq(following), end.eq(following + bytes_)]
            with m.If(same_plane):
                m.d.sync += [left0.eq(left0 - 1), same_plane.eq(left0 != 1)]
            with m.Else():
                m.d.sync += [left0.eq(most0), left1.eq(left1 - 1), plane.eq(following)]
                m.d.sync += [same_plane.eq(most0 != 0), more_planes.eq(left1 != 1)]
            with m.If(last1):
                m.d.sync += active.eq(0)
        with m.If(self.start):
            m.d.sync += active.eq(1)
        with m.If(~active):  # also without a start, so that `start` itself reaches few cells
            m.d.sync += [
                now.eq(self.offset),
                end.eq(self.offset + self.bytes),
                plane.eq(self.offset),
                stride0.eq(self.mem_stride0),
                stride1.eq(self.mem_stride1),
                bytes_.eq(self.bytes),
                left0.eq(self.count0 - 1),
                most0.eq(self.count0 - 1),
                left1.eq(self.count1 - 1),
                same_plane.eq(self.count0 != 1),
                more_planes.eq(self.count1 != 1),
                tag1.eq(self.tag),
                null1.eq(self.null),
            ]

        # Stage 2: address and beats of a run, whether it lies in the window; if not it stays here.
        valid2, last2, inside2 = Signal(), Signal(reset_less=True), Signal(reset_less=True)
        low2, beyond2 = Signal(low, reset_less=True), Signal(reset_less=True)  # the rest of its address
        address2 = Signal(c.axi_address_bits - low, reset_less=True)  # in beats
        beats2 = Signal(self.run_bits - low + 2, reset_less=True)
        tag2 = Signal(self.tag_bits, reset_less=True)
        take2 = Signal()
        m.d.comb += room2.eq(~valid2 | take2)
        with m.If(take1):
            m.d.sync += [
                valid2.eq(1),
                last2.eq(last1),
                inside2.eq(null1 | self.allowed & (end <= self.size)),
                Cat(low2, address2, beyond2).eq(self.base + now),
                beats2.eq((now[:low] + bytes_ + (c.bus_bytes - 1)) >> low),
                tag2.eq(tag1),
                null2.eq(null1),
            ]
        with m.Elif(take2):
            m.d.sync += valid2.eq(0)

        # Stage 3: bursts of a run.
        burst_layout = self.beat_bits + 2 + self.tag_bits + c.axi_address_bits - low
        m.submodules.out = out = Queue(burst_layout, OUT_BURSTS)
        sent = Signal()
        valid3, last3 = Signal(), Signal(reset_less=True)
        address3, beats3 = Signal.like(address2), Signal.like(beats2)
        tag3 = Signal.like(tag2)
        beat_bits = (c.burst_beats - 1).bit_length()  # of the position within a whole burst
        assert c.burst_beats == 1 << beat_bits and c.burst_beats * c.bus_bytes <= AXI_BOUNDARY
        reach = Signal(self.beat_bits)  # beats the position allows
        ends = Signal()  # `reach` is enough for the rest of the run
        burst, final = Signal(self.beat_bits, reset_less=True), Signal(reset_less=True)  # they, registered
        turn = Signal()  # the run goes on: this cycle cuts its next burst
        cut_address, cut_beats = Signal.like(address3), Signal.like(beats3)
        m.d.comb += [
            cut_address.eq(Mux(turn, address3, address2)),
            cut_beats.eq(Mux(turn, beats3, beats2)),
            reach.eq(c.burst_beats - cut_address[:beat_bits]),
            ends.eq(cut_beats <= reach),
            sent.eq(valid3 & ~turn & out.i_ready),
            out.i_valid.eq(sent),
            out.i_payload.eq(Cat(burst, final & last3, null3, tag3, address3)),
            self.o_valid.eq(out.o_valid & ~self.halt),
            out.o_ready.eq(self.o_ready),
            Cat(self.o_beats, self.o_last, self.o_null, self.o_tag, self.o_address[low:]).eq(out.o_payload),
        ]
        m.d.comb += take2.eq(valid2 & inside2 & (~valid3 | (sent & final)))
        m.d.sync += turn.eq(sent & ~final)
        with m.If(sent):
            m.d.sync += [address3.eq(address3 + burst), beats3.eq(beats3 - burst)]
            with m.If(final):
                m.d.sync += valid3.eq(0)
        with m.If(take2):
            m.d.sync += [valid3.eq(1), last3.eq(last2), address3.eq(address2), beats3.eq(beats2), tag3.eq(tag2)]
            m.d.sync += null3.eq(null2)
        with m.If(take2 | turn):
            m.d.sync += [burst.eq(Mux(ends, cut_beats, reach)), final.eq(ends | (null2 & ~turn))]
        m.d.comb += [
            self.failed.eq(valid2 & ~inside2 & ~valid3 & ~out.o_valid),
            self.error_address.eq(Cat(low2, address2, beyond2)),
            self.error_tag.eq(tag2),
        ]
        m.d.comb += self.busy.eq(active | valid2 | valid3 | out.o_valid)
        # For `hw.formal`: valid, null, tag of every stage; first byte, bytes, end of the run; first beat, beats left;
        # whether the burst is still to be cut, its beats, whether it is the last; the bursts that wait; whether the run
        # of the second stage lies in the window.
        self.stages = ((active, null1, tag1), (valid2, null2, tag2), (valid3, null3, tag3))
        self.run = (now, bytes_, end)
        self.spans = ((address2, beats2), (address3, beats3))
        self.burst, self.out, self.inside = (turn, burst, final), out, inside2
        return m


def latch_region(m: Module, region: Any, number: Value, idle: Value) -> tuple[Signal, Signal, Signal]:
    """Base, size and permission of region `number`, kept while not `idle`. `region` is a `RegionAccess`."""
    m.d.comb += region.number.eq(number)
    kept = []
    for value in (region.base, region.size, region.allowed):
        register = Signal.like(value, name=f"kept_{value.name}", reset_less=True)
        with m.If(idle):
            m.d.sync += register.eq(value)
        kept.append(register)
    return kept[0], kept[1], kept[2]
