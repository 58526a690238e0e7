"""Splits boxes in a memory region into AXI bursts, for LOAD and STORE."""

from __future__ import annotations

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.parts.probes import declare_probes
from tilewright.hw.parts.queue import Queue
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import OUT_BURSTS

#: AXI: a burst must not cross a multiple of this many bytes.
AXI_BOUNDARY = 4096


def run_bits(row_bytes: int) -> int:
    """Returns the bits of the length of a run in bytes: a run has 2**16 - 1 rows of `row_bytes` at most."""
    return 16 + (row_bytes - 1).bit_length()


class _Box(NamedTuple):
    """The first stage walks a box run by run. Offsets, strides and lengths are in bytes of the region.

    Attributes:
        valid: the stage holds a box.
        now, bytes, end: offset of the current run, its length, and the offset of its end.
        plane: offset of the current plane.
        stride0, stride1: distance between runs and between planes.
        tag, null: see the ports.
        left0, left1: number of runs of this plane, and of planes, after the current one.  most0: `left0` at the start
            of a plane.
        same_plane, more_planes: `left0`, `left1` is not 0.
        take: the run moves on to the second stage.  last: it is the last of the box.
    """

    valid: Signal
    now: Signal
    plane: Signal
    end: Signal
    stride0: Signal
    stride1: Signal
    bytes: Signal
    tag: Signal
    left0: Signal
    most0: Signal
    left1: Signal
    same_plane: Signal
    more_planes: Signal
    null: Signal
    take: Signal
    last: Signal


class _Run(NamedTuple):
    """The second stage checks a run against the window.

    Attributes:
        valid: the stage holds a run.
        last: the run is the last of its box.
        inside: the run lies in the window.
        address: address of its first beat, in beats.  low, beyond: the bits of the byte address below and above.
        beats: number of beats of the run.
        tag, null: see the ports.
        take: the run moves on to the third stage.
    """

    valid: Signal
    last: Signal
    inside: Signal
    low: Signal
    beyond: Signal
    address: Signal
    beats: Signal
    tag: Signal
    null: Signal
    take: Signal


class _Rest(NamedTuple):
    """The third stage cuts bursts off the rest of a run.

    Attributes:
        valid: the stage holds a run.
        tag, null: see the ports.  last: the run is the last of its box.
        address, beats: address of the rest, in beats, and its number of beats.
        turn: this cycle computes the next burst of the run.
        burst, final: beats of the burst; it is the last of the run.
    """

    valid: Signal
    null: Signal
    tag: Signal
    address: Signal
    beats: Signal
    turn: Signal
    burst: Signal
    final: Signal
    last: Signal


class BurstWalker(wiring.Component):
    """Walks the contiguous runs of a box and splits each into INCR bursts of at most `burst_beats` beats that do not
    cross AXI_BOUNDARY: all but the last end at a multiple of `burst_beats`. Three stages, each one item per cycle
    (offset with the window check, address, burst), and a queue of OUT_BURSTS.

    Latency: the first burst is out 4 cycles after `start`; then the first burst of a run per cycle while `o_ready`, and
    further bursts of a run in every second cycle: where a burst ends is found in the cycle before.

    Parameters:
        config: bus and bursts.
        tag_bits: bits that travel with the instruction.
        run_bits: bits of the length of a run in bytes.

    Ports:
        start, offset, bytes, count0, count1, mem_stride0, mem_stride1, tag: a box, counts at least 1.
        null: the box is empty but takes its turn: one item with `o_null`.
        base, size, allowed: region of the box in the first stage, in bytes.
        ready: the first stage is idle: when `start` may come.  ready_next: it is in the next cycle.
        o_valid, o_ready, o_address, o_beats, o_last, o_tag: bursts; `o_last` is the last of the box.
        failed, error_address, error_tag: the next run leaves the window, and all bursts before it have been taken.
        busy: any stage holds something.
        halt: hold everything.

    Probes:
        box, run, rest: the three stages, see `_Box`, `_Run`, `_Rest`.  out: the queue of bursts.
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
        self._low = (self.config.bus_bytes - 1).bit_length()  # bits of a byte's place in a beat
        take1, room2, last1 = Signal(), Signal(), Signal()  # room2: the second stage takes a run, if there is one
        box = self._box(take1, last1)
        self._walk(m, box, room2)
        run = self._run()
        self._check(m, box, run, room2)
        m.submodules.out = out = Queue(self.beat_bits + 2 + self.tag_bits + len(run.address), OUT_BURSTS)
        rest = self._cut(m, run, out)
        m.d.comb += [
            self.failed.eq(run.valid & ~run.inside & ~rest.valid & ~out.o_valid),
            self.error_address.eq(Cat(run.low, run.address, run.beyond)),
            self.error_tag.eq(run.tag),
        ]
        m.d.comb += self.busy.eq(box.valid | run.valid | rest.valid | out.o_valid)
        declare_probes(self, box=box, run=run, rest=rest, out=out)
        return m

    def _box(self, take1: Signal, last1: Signal) -> _Box:
        """Makes the signals of the first stage."""
        c = self.config
        active = Signal()
        now, plane = Signal(c.offset_bits, reset_less=True), Signal(c.offset_bits, reset_less=True)
        end = Signal(max(c.offset_bits, self.run_bits) + 1, reset_less=True)
        stride0, stride1 = Signal(c.offset_bits, reset_less=True), Signal(c.offset_bits, reset_less=True)
        bytes_, tag1 = Signal(self.run_bits, reset_less=True), Signal(self.tag_bits, reset_less=True)
        left0, most0, left1 = (Signal(16, reset_less=True, name=n) for n in ("left0", "most0", "left1"))
        same_plane, more_planes = (Signal(name=n, reset_less=True) for n in ("same_plane", "more_planes"))
        null1 = Signal(reset_less=True)
        return _Box(
            valid=active,
            now=now,
            plane=plane,
            end=end,
            stride0=stride0,
            stride1=stride1,
            bytes=bytes_,
            tag=tag1,
            left0=left0,
            most0=most0,
            left1=left1,
            same_plane=same_plane,
            more_planes=more_planes,
            null=null1,
            take=take1,
            last=last1,
        )

    def _walk(self, m: Module, box: _Box, room2: Value) -> None:
        """Stage 1: computes the offsets of runs."""
        m.d.comb += [
            box.last.eq(box.null | ~(box.same_plane | box.more_planes)),
            box.take.eq(box.valid & room2),
            self.ready.eq(~box.valid),
            self.ready_next.eq(Mux(box.valid, box.take & box.last, ~self.start)),
        ]
        following = Signal(self.config.offset_bits)
        m.d.comb += following.eq(Mux(box.same_plane, box.now + box.stride0, box.plane + box.stride1))
        with m.If(box.take):
            m.d.sync += [box.now.eq(following), box.end.eq(following + box.bytes)]
            with m.If(box.same_plane):
                m.d.sync += [box.left0.eq(box.left0 - 1), box.same_plane.eq(box.left0 != 1)]
            with m.Else():
                m.d.sync += [box.left0.eq(box.most0), box.left1.eq(box.left1 - 1), box.plane.eq(following)]
                m.d.sync += [box.same_plane.eq(box.most0 != 0), box.more_planes.eq(box.left1 != 1)]
            with m.If(box.last):
                m.d.sync += box.valid.eq(0)
        with m.If(self.start):
            m.d.sync += box.valid.eq(1)
        with m.If(~box.valid):  # also without a start, so that `start` itself reaches few cells
            m.d.sync += [
                box.now.eq(self.offset),
                box.end.eq(self.offset + self.bytes),
                box.plane.eq(self.offset),
                box.stride0.eq(self.mem_stride0),
                box.stride1.eq(self.mem_stride1),
                box.bytes.eq(self.bytes),
                box.left0.eq(self.count0 - 1),
                box.most0.eq(self.count0 - 1),
                box.left1.eq(self.count1 - 1),
                box.same_plane.eq(self.count0 != 1),
                box.more_planes.eq(self.count1 != 1),
                box.tag.eq(self.tag),
                box.null.eq(self.null),
            ]

    def _run(self) -> _Run:
        """Makes the signals of the second stage."""
        valid2, last2, inside2 = Signal(), Signal(reset_less=True), Signal(reset_less=True)
        low2, beyond2 = Signal(self._low, reset_less=True), Signal(reset_less=True)
        address2 = Signal(self.config.axi_address_bits - self._low, reset_less=True)
        beats2 = Signal(self.run_bits - self._low + 2, reset_less=True)
        tag2 = Signal(self.tag_bits, reset_less=True)
        null2 = Signal(reset_less=True)
        take2 = Signal()
        return _Run(valid2, last2, inside2, low2, beyond2, address2, beats2, tag2, null2, take2)

    def _check(self, m: Module, box: _Box, run: _Run, room2: Signal) -> None:
        """Stage 2: computes address and beats of a run and checks the window; a run outside it stays here."""
        bus = self.config.bus_bytes
        m.d.comb += room2.eq(~run.valid | run.take)
        with m.If(box.take):
            m.d.sync += [
                run.valid.eq(1),
                run.last.eq(box.last),
                run.inside.eq(box.null | self.allowed & (box.end <= self.size)),
                Cat(run.low, run.address, run.beyond).eq(self.base + box.now),
                run.beats.eq((box.now[: self._low] + box.bytes + (bus - 1)) >> self._low),
                run.tag.eq(box.tag),
                run.null.eq(box.null),
            ]
        with m.Elif(run.take):
            m.d.sync += run.valid.eq(0)

    def _cut(self, m: Module, run: _Run, out: Queue) -> _Rest:
        """Stage 3: cuts a run into bursts."""
        c = self.config
        sent = Signal()
        valid3, last3 = Signal(), Signal(reset_less=True)
        address3, beats3 = Signal.like(run.address), Signal.like(run.beats)
        tag3 = Signal.like(run.tag)
        null3 = Signal(reset_less=True)
        beat_bits = (c.burst_beats - 1).bit_length()  # of the position within a whole burst
        assert c.burst_beats == 1 << beat_bits and c.burst_beats * c.bus_bytes <= AXI_BOUNDARY
        reach = Signal(self.beat_bits)  # beats the position allows
        ends = Signal()  # `reach` is enough for the rest of the run
        burst, final = Signal(self.beat_bits, reset_less=True), Signal(reset_less=True)  # they, registered
        turn = Signal()  # the run goes on: this cycle cuts its next burst
        cut_address, cut_beats = Signal.like(address3), Signal.like(beats3)
        m.d.comb += [
            cut_address.eq(Mux(turn, address3, run.address)),
            cut_beats.eq(Mux(turn, beats3, run.beats)),
            reach.eq(c.burst_beats - cut_address[:beat_bits]),
            ends.eq(cut_beats <= reach),
            sent.eq(valid3 & ~turn & out.i_ready),
            out.i_valid.eq(sent),
            out.i_payload.eq(Cat(burst, final & last3, null3, tag3, address3)),
            self.o_valid.eq(out.o_valid & ~self.halt),
            out.o_ready.eq(self.o_ready),
            Cat(self.o_beats, self.o_last, self.o_null, self.o_tag, self.o_address[self._low :]).eq(out.o_payload),
        ]
        m.d.comb += run.take.eq(run.valid & run.inside & (~valid3 | (sent & final)))
        m.d.sync += turn.eq(sent & ~final)
        with m.If(sent):
            m.d.sync += [address3.eq(address3 + burst), beats3.eq(beats3 - burst)]
            with m.If(final):
                m.d.sync += valid3.eq(0)
        with m.If(run.take):
            m.d.sync += [valid3.eq(1), last3.eq(run.last), address3.eq(run.address), beats3.eq(run.beats)]
            m.d.sync += [tag3.eq(run.tag), null3.eq(run.null)]
        with m.If(run.take | turn):
            m.d.sync += [burst.eq(Mux(ends, cut_beats, reach)), final.eq(ends | (run.null & ~turn))]
        return _Rest(valid3, null3, tag3, address3, beats3, turn, burst, final, last3)


def latch_region(m: Module, region: Any, number: Value, idle: Value) -> tuple[Signal, Signal, Signal]:
    """Returns base, size and permission of region `number`, registered while not `idle`. `region` is a
    `RegionAccess`."""
    m.d.comb += region.number.eq(number)
    kept = []
    for value in (region.base, region.size, region.allowed):
        register = Signal.like(value, name=f"kept_{value.name}", reset_less=True)
        with m.If(idle):
            m.d.sync += register.eq(value)
        kept.append(register)
    return kept[0], kept[1], kept[2]
