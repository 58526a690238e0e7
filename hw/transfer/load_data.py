"""The data half of LOAD: walks the box, realigns bytes, writes chunks and fill rows."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.interfaces import SEMAPHORE_BITS, Fault, Retire
from tilewright.hw.memory.load_layouts import (
    LINE_BITS,
    LoadWrite,
    chunks_of,
    descriptor_layout,
    filled_at_once,
    packed_chunks,
    per_target,
    rows_per_beat,
    segment_layout,
)
from tilewright.hw.memory.weight_codes import CodedWrite, WeightCodes
from tilewright.hw.parts.buffer import Buffer
from tilewright.hw.parts.probes import declare_probes
from tilewright.hw.sizes import pc_bits
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Memory


class Part(enum.IntEnum):
    """The parts of a line: left padding, data, right padding."""

    LEFT = 0
    MIDDLE = 1
    RIGHT = 2


def _first_part(left: Value, count: Value) -> Value:
    """Returns the first part of a line that has these parts."""
    return Mux(left, Part.LEFT, Mux(count, Part.MIDDLE, Part.RIGHT))


class _Line(NamedTuple):
    """The current line of the box of a descriptor.

    Attributes:
        next_y, middle_end, last_y: numbers of lines in a plane: of the next line, of the first line of bottom padding,
            of the last line.
        middle: the current line has data.  last_line: it is the last of its plane.  one_line: planes have one line.
        planes_left, last_plane: number of planes that are left with this one; this one is the last.
        row, plane_row: rows of the scratchpad at which the line and the plane begin.
        low, plane_low: byte positions in a beat at which the line and the plane begin.
        part: the part of the line that the segment covers.
        fresh: the segment is the first of its line.
        has_left, has_count, has_right: every line has this part.
    """

    next_y: Signal
    middle_end: Signal
    last_y: Signal
    middle: Signal
    last_line: Signal
    one_line: Signal
    planes_left: Signal
    last_plane: Signal
    row: Signal
    plane_row: Signal
    low: Signal
    plane_low: Signal
    part: Signal
    fresh: Signal
    has_left: Signal
    has_count: Signal
    has_right: Signal


class _Place(NamedTuple):
    """The next chunk of the segment at work.

    Attributes:
        row: the row of the scratchpad that the chunk lies in.  rows_left: number of rows from it to the segment's end.
        chunk: number of the chunk in its row.
        skips: the next beat yields no chunk.
        before: the beat before, rotated; fill bytes where there is none.
        ends_row, ends_rows: the chunk ends its row; it ends the last row.
    """

    row: Signal
    rows_left: Signal
    chunk: Signal
    skips: Signal
    before: Signal
    ends_row: Signal
    ends_rows: Signal


class _Chunk(NamedTuple):
    """The chunk that a step in this cycle would make.

    Attributes:
        rows: number of rows that the chunk covers.
        run_short: all of its bytes are in `before`, so that it needs no beat.
        emits: the step yields a chunk.
        last: the step is the last of its segment.
        turned: the beat, rotated.  data: bytes of the chunk.
    """

    rows: Signal
    run_short: Signal
    emits: Signal
    last: Signal
    turned: Signal
    data: Signal


def _written(config: NpuConfig) -> dict[str, Any]:
    """Returns the shapes of the members of a write, by name."""
    return {n: p.shape for n, p in LoadWrite(config).members.items() if n not in ("valid", "grant")}


def _chunk_layout(config: NpuConfig) -> data.StructLayout:
    """Returns the layout of the buffer of chunks: a write, and the members that retire or fail its instruction."""
    return data.StructLayout(
        _written(config)
        | {
            "null": 1,
            "ends": 1,
            "beyond": 1,
            "signal0": SEMAPHORE_BITS,
            "signal1": SEMAPHORE_BITS,
            "pc": pc_bits(config),
        }
    )


class LoadData(wiring.Component):
    """Walks a box line by line. A line has up to three segments: left fill rows, data rows, right fill rows; on a line
    of padding the middle one is fill too. One part finds the segments, one ahead; the other makes the steps of one.

    One bus beat or fill row per cycle (a fill row of PRM or LUT takes one per chunk); no cycle between segments or
    lines, nor between instructions of one segment or of more steps than segments. The first beat of an unaligned run
    yields no chunk. Where the bus is wider than an ACT row the last chunk of a run may need a cycle of its own after
    the last beat. Chunks go through a buffer of two: one is written in the next cycle, or later if VECTOR writes its
    bank.

    Latency: first step 2 cycles after the descriptor is taken; beat to write 1 cycle. Signals are given in the cycle of
    the last write.

    Ports:
        i_valid, i_ready, i_payload: descriptors.
        beat, beat_ready, beat_data: data.
        write: to the scratchpads.
        retire, step, stalled, range_fault, halt: see `EngineShell` and `Load`.
        busy: anything is at work.  current_pc: the instruction whose beats are taken.
        codes, code_fault: with a decoder: its writes to WGT; LOAD_CODED whose stream is damaged.

    Probes:
        line, place: the place in the box, and in the segment, see `_Line` and `_Place`.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.rows_per_beat, self.chunks = rows_per_beat(config), chunks_of(config)
        super().__init__(
            {
                "i_valid": In(1),
                "i_ready": Out(1),
                "i_payload": In(descriptor_layout(config).size),
                "beat": In(1),
                "beat_ready": Out(1),
                "beat_data": In(config.axi_data_bits),
                "write": Out(LoadWrite(config)),
                "retire": Out(Retire(config)),
                "step": Out(1),
                "stalled": Out(1),
                "busy": Out(1),
                "current_pc": Out(pc_bits(config)),
                "range_fault": Out(Fault(config)),
                "halt": In(1),
                **({"codes": Out(CodedWrite(config)), "code_fault": Out(Fault(config))} if config.weight_codes else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.segments = segments = Buffer(segment_layout(self.config).size)
        self._find(m, segments)
        self._step(m, segments)
        return m

    def _find(self, m: Module, segments: Buffer) -> None:
        """Cuts descriptors into segments, one per cycle."""
        layout = descriptor_layout(self.config)
        segment = data.View(segment_layout(self.config), segments.i_payload)
        take = segments.i_valid & segments.i_ready
        incoming = data.View(layout, self.i_payload)
        d = Signal(layout, reset_less=True)
        active = Signal()
        only = Signal(reset_less=True)  # the instruction is one segment
        at = self._line(d)
        declare_probes(self, line=at)
        ends_line = Signal()
        m.d.comb += ends_line.eq((at.part == Part.RIGHT) | ~(at.has_right | ((at.part == Part.LEFT) & at.has_count)))
        self._drive_segment(m, segment, d, at, ends_line)
        m.d.comb += [segments.i_valid.eq(active), self.i_ready.eq(~active | (segments.i_ready & only))]
        with m.If(take):
            following = Mux((at.part == Part.LEFT) & at.has_count, Part.MIDDLE, Part.RIGHT)
            m.d.sync += [at.fresh.eq(ends_line), at.part.eq(following)]
            with m.If(segment.last):
                m.d.sync += active.eq(0)
        with m.If(take & ends_line):
            self._next_line(m, d, at)
        with m.If(self.i_valid & self.i_ready):
            m.d.sync += active.eq(1)
        with m.If(self.i_ready):  # also without a descriptor: what is taken last stays
            m.d.sync += d.eq(incoming)
            self._first_line(m, incoming, at)
            m.d.sync += only.eq(incoming.only)

    def _line(self, d: data.View) -> _Line:
        """Makes the registers of the current line of descriptor `d`."""
        next_y, middle_end, last_y = (
            Signal(LINE_BITS, name=n, reset_less=True) for n in ("next_y", "middle_end", "last_y")
        )
        middle, last_line, one_line = (Signal(name=n, reset_less=True) for n in ("middle", "last_line", "one_line"))
        planes_left, last_plane = Signal(16, reset_less=True), Signal(reset_less=True)
        line_row, plane_row = (Signal.like(d.row, name=n, reset_less=True) for n in ("line_row", "plane_row"))
        low, plane_low = (Signal.like(d.low, name=n, reset_less=True) for n in ("line_low", "plane_low"))
        part = Signal(Part, reset_less=True)
        fresh = Signal(reset_less=True)
        has_left, has_count, has_right = (Signal(name=f"has_{n}", reset_less=True) for n in ("left", "count", "right"))
        return _Line(
            next_y=next_y,
            middle_end=middle_end,
            last_y=last_y,
            middle=middle,
            last_line=last_line,
            one_line=one_line,
            planes_left=planes_left,
            last_plane=last_plane,
            row=line_row,
            plane_row=plane_row,
            low=low,
            plane_low=plane_low,
            part=part,
            fresh=fresh,
            has_left=has_left,
            has_count=has_count,
            has_right=has_right,
        )

    def _drive_segment(self, m: Module, segment: data.View, d: data.View, at: _Line, ends_line: Value) -> None:
        """Drives the current segment."""
        single = per_target(d.target, {t: int(n == 1) for t, n in self.chunks.items()})
        if self.config.packed_weights:
            m.d.comb += segment.packed.eq(d.packed)
            single = Mux(d.packed, int(packed_chunks(self.config) == 1), single)
        m.d.comb += [
            segment.null.eq(d.null),
            segment.last.eq(d.null | (ends_line & at.last_line & at.last_plane)),
            segment.target.eq(d.target),
            segment.data.eq((at.part == Part.MIDDLE) & at.middle & ~d.null),
            segment.one_chunk.eq(d.null | (~segment.data & filled_at_once(d.target)) | single),
            segment.few_rows.eq(d.null | (segment.rows <= self._most_rows(segment))),
            segment.jumps.eq(at.fresh),
            segment.row.eq(at.row),
            segment.low.eq(at.low),
            segment.fill.eq(d.fill),
            segment.signal0.eq(d.signal0),
            segment.signal1.eq(d.signal1),
            segment.pc.eq(d.pc),
        ]
        with m.Switch(at.part):
            with m.Case(Part.LEFT):
                m.d.comb += segment.rows.eq(d.left)
            with m.Case(Part.MIDDLE):
                m.d.comb += segment.rows.eq(d.count)
            with m.Default():
                m.d.comb += segment.rows.eq(d.right)
        if self.config.weight_codes:
            m.d.comb += [segment.coded.eq(d.coded), segment.mode.eq(d.mode), segment.beats.eq(d.beats)]
            with m.If(d.coded):
                m.d.comb += segment.rows.eq(d.count)

    def _next_line(self, m: Module, d: data.View, at: _Line) -> None:
        """Moves on to the next line, or the first line of the next plane."""
        next_plane, next_low = Signal.like(at.plane_row), Signal.like(at.plane_low)
        m.d.comb += [
            next_plane.eq(at.plane_row + d.row_stride1),
            next_low.eq(at.plane_low + d.low_stride1),
        ]
        m.d.sync += at.part.eq(_first_part(at.has_left, at.has_count))
        m.d.sync += at.last_line.eq(Mux(at.last_line, at.one_line, at.next_y == at.last_y))
        with m.If(at.last_line):
            m.d.sync += [at.next_y.eq(1), at.middle.eq((d.top == 0) & (d.count0 != 0))]
            m.d.sync += [at.planes_left.eq(at.planes_left - 1), at.last_plane.eq(at.planes_left == 2)]
            m.d.sync += [
                at.row.eq(next_plane),
                at.plane_row.eq(next_plane),
                at.low.eq(next_low),
                at.plane_low.eq(next_low),
            ]
        with m.Else():
            m.d.sync += [
                at.next_y.eq(at.next_y + 1),
                at.middle.eq(Mux(at.next_y == d.top, d.count0 != 0, at.middle & (at.next_y != at.middle_end))),
                at.row.eq(at.row + d.row_stride0),
                at.low.eq(at.low + Mux(at.middle, d.low_stride0, 0)),
            ]

    def _first_line(self, m: Module, incoming: data.View, at: _Line) -> None:
        """Begins with the first line of a descriptor."""
        parts = [incoming.left != 0, incoming.count != 0, incoming.right != 0]
        m.d.sync += [
            at.next_y.eq(1),
            at.middle.eq((incoming.top == 0) & (incoming.count0 != 0)),
            at.middle_end.eq(incoming.top + incoming.count0),
            at.last_y.eq(incoming.top + incoming.count0 + incoming.bottom - 1),
            at.last_line.eq(incoming.one),
            at.one_line.eq(incoming.one),
            at.planes_left.eq(incoming.count1),
            at.last_plane.eq(incoming.count1 == 1),
            at.row.eq(incoming.row),
            at.plane_row.eq(incoming.row),
            at.low.eq(incoming.low),
            at.plane_low.eq(incoming.low),
            at.part.eq(_first_part(*parts[:2])),
            at.fresh.eq(1),
            Cat(at.has_left, at.has_count, at.has_right).eq(Cat(parts)),
        ]

    def _wide(self, of: data.View) -> Value:
        """Returns a bit: a chunk of the segment may cover several rows."""
        return of.data & (of.target == Memory.ACT) if self.rows_per_beat > 1 else C(0)

    def _most_rows(self, of: data.View) -> Value:
        """Returns the number of rows that a full chunk of the segment covers."""
        return Mux(self._wide(of), self.rows_per_beat, 1) if self.rows_per_beat > 1 else C(1)

    def _step(self, m: Module, segments: Buffer) -> None:
        """Cuts segments into chunks and writes them."""
        c = self.config
        layout = _chunk_layout(c)
        s, following = (data.View(segment_layout(c), p) for p in (segments.o_payload, segments.o_next))
        at = self._place(s)
        declare_probes(self, place=at)
        failed = Signal()
        rows, run_short = Signal(range(self.rows_per_beat + 1)), Signal()
        emits, last = Signal(), Signal()
        turned, chosen = Signal(c.axi_data_bits), Signal(c.axi_data_bits)
        chunk = _Chunk(rows, run_short, emits, last, turned, chosen)
        self._measure(m, s, at, chunk)
        m.submodules.chunks = chunks = Buffer(layout.size)
        entry, head = (data.View(layout, p) for p in (chunks.i_payload, chunks.o_payload))
        go = segments.o_valid & chunks.i_ready & ~failed & ~self.halt
        decoder = self._decode(m, s, go) if c.weight_codes else None
        self._pace(m, segments, s, at, chunk, go, decoder)
        self._realign(m, s, at, chunk)
        self._advance(m, segments, s, following, at, chunk)
        pushes: Value = self.step & emits
        if decoder is not None:
            # The weights go to WGT directly; the buffer only gets that they are complete, or beyond WGT.
            pushes = Mux(s.coded, decoder.last | decoder.beyond, pushes)
        with m.If(pushes & entry.beyond):
            m.d.sync += failed.eq(1)
        m.d.comb += chunks.i_valid.eq(pushes)
        self._describe(m, entry, s, at, chunk)
        self._write(m, chunks, head)
        m.d.comb += self.busy.eq(segments.i_valid | segments.o_valid | chunks.o_valid)
        if decoder is not None:
            with m.If(s.coded):
                m.d.comb += [
                    entry.row.eq(decoder.current),
                    entry.null.eq(~decoder.beyond),
                    entry.beyond.eq(decoder.beyond),
                ]
            with m.If(decoder.fault):
                m.d.sync += failed.eq(1)

    def _place(self, s: data.View) -> _Place:
        """Makes the registers of the next chunk of segment `s`."""
        row, rows_left = (
            Signal.like(s.row, name="row", reset_less=True),
            Signal.like(s.rows, name="rows_left", reset_less=True),
        )
        chunk = Signal.like(self.write.chunk, name="chunk", reset_less=True)
        skips = Signal(reset_less=True)
        before = Signal(self.config.axi_data_bits, reset_less=True)
        ends_row, ends_rows = Signal(reset_less=True), Signal(reset_less=True)
        return _Place(row, rows_left, chunk, skips, before, ends_row, ends_rows)

    def _limit(self, of: data.View) -> Value:
        """Returns the number of rows of the target's scratchpad."""
        return per_target(of.target, {t: t.rows(self.config) for t in Memory})

    def _measure(self, m: Module, s: data.View, at: _Place, chunk: _Chunk) -> None:
        """Computes the rows of the chunk, and whether it needs no beat."""
        c, rows = self.config, chunk.rows
        m.d.comb += rows.eq(1)
        if self.rows_per_beat > 1:
            m.d.comb += rows.eq(Mux(at.ends_rows, at.rows_left, self._most_rows(s)))
            ends = self._wide(s) & at.ends_rows & (s.low != 0) & ~at.skips
            m.d.comb += chunk.run_short.eq(ends & (rows * c.block_in + s.low <= c.bus_bytes))

    def _decode(self, m: Module, s: data.View, go: Value) -> WeightCodes:
        """Makes the decoder, which steps through a segment of LOAD_CODED."""
        m.submodules.decoder = decoder = WeightCodes(self.config)
        m.d.comb += [
            decoder.valid.eq(go & s.coded),
            decoder.mode.eq(s.mode),
            decoder.row.eq(s.row),
            decoder.tiles.eq(s.rows),
            decoder.beats.eq(s.beats),
            decoder.beat.eq(self.beat),
            decoder.beat_data.eq(self.beat_data),
            self.code_fault.error.eq(decoder.fault),
            self.code_fault.pc.eq(s.pc),
            self.code_fault.address.eq(0),
        ]
        wiring.connect(m, decoder.write, wiring.flipped(self.codes))
        return decoder

    def _pace(
        self,
        m: Module,
        segments: Buffer,
        s: data.View,
        at: _Place,
        chunk: _Chunk,
        go: Value,
        decoder: WeightCodes | None,
    ) -> None:
        """Decides whether a beat is taken, whether a step is made, and whether it is the last of the segment."""
        needs_beat = s.data & ~chunk.run_short
        plain = go if decoder is None else go & ~s.coded
        takes: Value = plain & needs_beat
        steps: Value = plain & (self.beat | ~needs_beat)
        ends: Value = chunk.emits & at.ends_row & at.ends_rows
        if decoder is not None:
            takes, steps = takes | decoder.beat_ready, steps | decoder.step
            ends = Mux(s.coded, decoder.last, ends)
        m.d.comb += [
            self.beat_ready.eq(takes),
            self.step.eq(steps),
            chunk.emits.eq(~at.skips),
            chunk.last.eq(ends),
            segments.o_ready.eq(self.step & chunk.last),
            self.stalled.eq(segments.o_valid & ~self.halt & ~self.step),
            self.current_pc.eq(s.pc),
        ]

    def _realign(self, m: Module, s: data.View, at: _Place, chunk: _Chunk) -> None:
        """Realigns the bytes: byte i of a chunk is byte low + i of the two beats, both of which are rotated by
        `low`."""
        bus = self.config.bus_bytes
        m.d.comb += chunk.turned.eq(self.beat_data.replicate(2) >> (s.low << 3))
        for i in range(bus):
            old = ~s.data | ((s.low != 0) & (s.low + i < bus))
            byte = Mux(old, at.before.word_select(i, 8), chunk.turned.word_select(i, 8))
            m.d.comb += chunk.data.word_select(i, 8).eq(byte)

    def _advance(
        self, m: Module, segments: Buffer, s: data.View, following: data.View, at: _Place, chunk: _Chunk
    ) -> None:
        """Moves on after a step: to the next chunk of the segment, or to the first of the following segment."""
        last_chunk: Value = per_target(s.target, {t: n - 1 for t, n in self.chunks.items()})
        if self.config.packed_weights:
            last_chunk = Mux(s.packed, packed_chunks(self.config) - 1, last_chunk)
        next_row = Signal.like(at.row)
        m.d.comb += next_row.eq(at.row + chunk.rows)
        with m.If(self.step | ~segments.o_valid):
            with m.If(chunk.last | ~segments.o_valid):
                m.d.sync += [
                    at.row.eq(Mux(following.jumps, following.row, next_row)),
                    at.rows_left.eq(following.rows),
                    at.chunk.eq(0),
                    at.ends_row.eq(following.one_chunk),
                    at.ends_rows.eq(following.few_rows),
                    at.skips.eq(following.data & (following.low != 0)),
                    at.before.eq(following.fill.replicate(self.config.bus_bytes)),
                ]
            with m.Else():
                m.d.sync += at.skips.eq(0)
                with m.If(s.data):
                    m.d.sync += at.before.eq(chunk.turned)
                with m.If(chunk.emits):
                    m.d.sync += at.chunk.eq(Mux(at.ends_row, 0, at.chunk + 1))
                    m.d.sync += at.ends_row.eq(s.one_chunk | (~at.ends_row & (at.chunk + 1 == last_chunk)))
                with m.If(chunk.emits & at.ends_row):
                    m.d.sync += [at.row.eq(next_row), at.rows_left.eq(at.rows_left - chunk.rows)]
                    m.d.sync += at.ends_rows.eq((at.rows_left - chunk.rows) <= self._most_rows(s))

    def _describe(self, m: Module, entry: data.View, s: data.View, at: _Place, chunk: _Chunk) -> None:
        """Fills an entry of the buffer of chunks."""
        m.d.comb += [
            entry.target.eq(s.target),
            entry.row.eq(at.row),
            entry.rows.eq(chunk.rows),
            entry.chunk.eq(at.chunk),
            entry.full.eq(~s.null & ~s.data & filled_at_once(s.target)),
            entry.data.eq(chunk.data),
            *([entry.packed.eq(s.packed & s.data)] if self.config.packed_weights else []),
            entry.null.eq(s.null),
            entry.ends.eq(s.last & chunk.last),
            entry.beyond.eq(~s.null & ((at.row + chunk.rows) > self._limit(s))),
            entry.signal0.eq(s.signal0),
            entry.signal1.eq(s.signal1),
            entry.pc.eq(s.pc),
        ]

    def _write(self, m: Module, chunks: Buffer, head: data.View) -> None:
        """Writes chunks to the scratchpads. A chunk beyond its memory stays here, and no step follows."""
        m.d.comb += [
            self.range_fault.error.eq(chunks.o_valid & head.beyond),
            self.range_fault.address.eq(Mux(head.row >= self._limit(head), head.row, self._limit(head))),
            self.range_fault.pc.eq(head.pc),
            self.write.valid.eq(chunks.o_valid & ~head.null & ~head.beyond),
            chunks.o_ready.eq((head.null | self.write.grant) & ~head.beyond),
            self.retire.give.eq(chunks.o_valid & chunks.o_ready & head.ends),
            self.retire.signal0.eq(head.signal0),
            self.retire.signal1.eq(head.signal1),
            self.retire.pc.eq(head.pc),
        ]
        m.d.comb += [getattr(self.write, n).eq(head[n]) for n in _written(self.config)]
