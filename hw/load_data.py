"""The data half of LOAD: walks the box, realigns bytes, writes chunks and fill rows."""

from __future__ import annotations

import enum

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.buffer import Buffer
from hw.interfaces import SEMAPHORE_BITS, Fault, Retire, pc_bits
from hw.load_layouts import (
    LINE_BITS,
    LoadWrite,
    chunks_of,
    descriptor_layout,
    filled_at_once,
    per_target,
    rows_per_beat,
    segment_layout,
)
from hw.weight_codes import CodedWrite, WeightCodes
from isa.config import NpuConfig
from isa.instructions import Memory


class Part(enum.IntEnum):
    """Of a line."""

    LEFT = 0
    MIDDLE = 1
    RIGHT = 2


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
        retire; step, stalled; range_fault; halt: as in other engines.
        busy: anything is at work.  current_pc: the instruction whose beats are taken.
        codes, code_fault: with a decoder: its writes to WGT; LOAD_CODED whose stream is damaged.
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
        """Descriptors to segments, one per cycle."""
        layout = descriptor_layout(self.config)
        segment = data.View(segment_layout(self.config), segments.i_payload)
        take = segments.i_valid & segments.i_ready
        incoming = data.View(layout, self.i_payload)
        d = Signal(layout, reset_less=True)
        active = Signal()
        only = Signal(reset_less=True)  # the instruction is one segment

        # Number of the next line; of the first one after those of data; of the last one.
        next_y, middle_end, last_y = (
            Signal(LINE_BITS, name=n, reset_less=True) for n in ("next_y", "middle_end", "last_y")
        )
        # This line is one of data; the last; planes have one line.
        middle, last_line, one_line = (Signal(name=n, reset_less=True) for n in ("middle", "last_line", "one_line"))
        planes_left, last_plane = Signal(16, reset_less=True), Signal(reset_less=True)
        line_row, plane_row = (Signal.like(d.row, name=n, reset_less=True) for n in ("line_row", "plane_row"))
        low, plane_low = (Signal.like(d.low, name=n, reset_less=True) for n in ("line_low", "plane_low"))
        part = Signal(Part, reset_less=True)
        fresh = Signal(reset_less=True)  # the first segment of its line
        has_left, has_count, has_right = (Signal(name=f"has_{n}", reset_less=True) for n in ("left", "count", "right"))

        def first_part(left: Value, count: Value) -> Value:
            return Mux(left, Part.LEFT, Mux(count, Part.MIDDLE, Part.RIGHT))

        ends_line = Signal()
        single = per_target(d.target, {t: int(n == 1) for t, n in self.chunks.items()})
        m.d.comb += [
            ends_line.eq((part == Part.RIGHT) | ~(has_right | ((part == Part.LEFT) & has_count))),
            segment.null.eq(d.null),
            segment.last.eq(d.null | (ends_line & last_line & last_plane)),
            segment.target.eq(d.target),
            segment.data.eq((part == Part.MIDDLE) & middle & ~d.null),
            segment.one_chunk.eq(d.null | (~segment.data & filled_at_once(d.target)) | single),
            segment.few_rows.eq(d.null | (segment.rows <= self._most_rows(segment))),
            segment.jumps.eq(fresh),
            segment.row.eq(line_row),
            segment.low.eq(low),
            segment.fill.eq(d.fill),
            segment.signal0.eq(d.signal0),
            segment.signal1.eq(d.signal1),
            segment.pc.eq(d.pc),
            segments.i_valid.eq(active),
            self.i_ready.eq(~active | (segments.i_ready & only)),
        ]
        with m.Switch(part):
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

        with m.If(take):
            m.d.sync += [fresh.eq(ends_line), part.eq(Mux((part == Part.LEFT) & has_count, Part.MIDDLE, Part.RIGHT))]
            with m.If(segment.last):
                m.d.sync += active.eq(0)
        with m.If(take & ends_line):
            next_plane, next_low = Signal.like(plane_row), Signal.like(plane_low)
            m.d.comb += [
                next_plane.eq(plane_row + d.row_stride1),
                next_low.eq(plane_low + d.low_stride1),
            ]
            m.d.sync += part.eq(first_part(has_left, has_count))
            m.d.sync += last_line.eq(Mux(last_line, one_line, next_y == last_y))
            with m.If(last_line):
                m.d.sync += [next_y.eq(1), middle.eq((d.top == 0) & (d.count0 != 0))]
                m.d.sync += [planes_left.eq(planes_left - 1), last_plane.eq(planes_left == 2)]
                m.d.sync += [
                    line_row.eq(next_plane),
                    plane_row.eq(next_plane),
                    low.eq(next_low),
                    plane_low.eq(next_low),
                ]
            with m.Else():
                m.d.sync += [
                    next_y.eq(next_y + 1),
                    middle.eq(Mux(next_y == d.top, d.count0 != 0, middle & (next_y != middle_end))),
                    line_row.eq(line_row + d.row_stride0),
                    low.eq(low + Mux(middle, d.low_stride0, 0)),
                ]
        parts = [incoming.left != 0, incoming.count != 0, incoming.right != 0]
        with m.If(self.i_valid & self.i_ready):
            m.d.sync += active.eq(1)
        with m.If(self.i_ready):  # also without a descriptor: what is taken last stays
            m.d.sync += [
                d.eq(incoming),
                next_y.eq(1),
                middle.eq((incoming.top == 0) & (incoming.count0 != 0)),
                middle_end.eq(incoming.top + incoming.count0),
                last_y.eq(incoming.top + incoming.count0 + incoming.bottom - 1),
                last_line.eq(incoming.one),
                one_line.eq(incoming.one),
                planes_left.eq(incoming.count1),
                last_plane.eq(incoming.count1 == 1),
                line_row.eq(incoming.row),
                plane_row.eq(incoming.row),
                low.eq(incoming.low),
                plane_low.eq(incoming.low),
                part.eq(first_part(*parts[:2])),
                fresh.eq(1),
                Cat(has_left, has_count, has_right).eq(Cat(parts)),
                only.eq(incoming.only),
            ]

    def _wide(self, of: data.View) -> Value:
        """Whether a chunk of the segment may hold several rows."""
        return of.data & (of.target == Memory.ACT) if self.rows_per_beat > 1 else C(0)

    def _most_rows(self, of: data.View) -> Value:
        """Rows of a full chunk of the segment."""
        return Mux(self._wide(of), self.rows_per_beat, 1) if self.rows_per_beat > 1 else C(1)

    def _step(self, m: Module, segments: Buffer) -> None:
        """Segments to chunks and writes."""
        c = self.config
        bus = c.bus_bytes
        s, following = (data.View(segment_layout(c), p) for p in (segments.o_payload, segments.o_next))
        row, rows_left = (
            Signal.like(s.row, name="row", reset_less=True),
            Signal.like(s.rows, name="rows_left", reset_less=True),
        )
        chunk = Signal.like(self.write.chunk, name="chunk", reset_less=True)
        skips = Signal(reset_less=True)  # the next beat yields no chunk
        before = Signal(c.axi_data_bits, reset_less=True)
        failed = Signal()

        written = {n: p.shape for n, p in LoadWrite(c).members.items() if n not in ("valid", "grant")}
        layout = data.StructLayout(
            written
            | {
                "null": 1,
                "ends": 1,
                "beyond": 1,
                "signal0": SEMAPHORE_BITS,
                "signal1": SEMAPHORE_BITS,
                "pc": pc_bits(c),
            }
        )

        def whole(of: data.View) -> Value:
            """Each chunk fills a row."""
            return ~of.null & ~of.data & filled_at_once(of.target)

        def limit(of: data.View) -> Value:
            return per_target(of.target, {t: t.rows(c) for t in Memory})

        ends_row, ends_rows = Signal(reset_less=True), Signal(reset_less=True)  # a chunk of this step would do that
        rows, run_short = Signal(range(self.rows_per_beat + 1)), Signal()  # of the chunk; its bytes are in `before`
        unaligned = s.low != 0
        last_chunk = per_target(s.target, {t: n - 1 for t, n in self.chunks.items()})

        m.d.comb += rows.eq(1)
        if self.rows_per_beat > 1:
            m.d.comb += rows.eq(Mux(ends_rows, rows_left, self._most_rows(s)))
            m.d.comb += run_short.eq(
                self._wide(s) & ends_rows & unaligned & ~skips & (rows * c.block_in + s.low <= bus)
            )

        m.submodules.chunks = chunks = Buffer(layout.size)
        entry, head = (data.View(layout, p) for p in (chunks.i_payload, chunks.o_payload))
        emits, last = Signal(), Signal()  # a step in this cycle would give a chunk; would be the last of its segment
        go = segments.o_valid & chunks.i_ready & ~failed & ~self.halt
        needs_beat = s.data & ~run_short
        decoder = WeightCodes(c) if c.weight_codes else None
        plain = go if decoder is None else go & ~s.coded
        takes: Value = plain & needs_beat
        steps: Value = plain & (self.beat | ~needs_beat)
        ends: Value = emits & ends_row & ends_rows
        if decoder is not None:
            m.submodules.decoder = decoder
            takes, steps = takes | decoder.beat_ready, steps | decoder.step
            ends = Mux(s.coded, decoder.last, ends)
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
        m.d.comb += [
            self.beat_ready.eq(takes),
            self.step.eq(steps),
            emits.eq(~skips),
            last.eq(ends),
            segments.o_ready.eq(self.step & last),
            self.stalled.eq(segments.o_valid & ~self.halt & ~self.step),
            self.current_pc.eq(s.pc),
        ]

        # Realigned data: byte i of a chunk is byte low + i of the two beats. Both are turned by `low`.
        turned, chosen = Signal(c.axi_data_bits), Signal(c.axi_data_bits)
        m.d.comb += turned.eq(self.beat_data.replicate(2) >> (s.low << 3))
        for i in range(bus):
            old = ~s.data | (unaligned & (s.low + i < bus))
            m.d.comb += chosen.word_select(i, 8).eq(Mux(old, before.word_select(i, 8), turned.word_select(i, 8)))

        next_row = Signal.like(row)
        m.d.comb += next_row.eq(row + rows)
        with m.If(self.step | ~segments.o_valid):
            with m.If(last | ~segments.o_valid):
                m.d.sync += [
                    row.eq(Mux(following.jumps, following.row, next_row)),
                    rows_left.eq(following.rows),
                    chunk.eq(0),
                    ends_row.eq(following.one_chunk),
                    ends_rows.eq(following.few_rows),
                    skips.eq(following.data & (following.low != 0)),
                    before.eq(following.fill.replicate(bus)),
                ]
            with m.Else():
                m.d.sync += skips.eq(0)
                with m.If(s.data):
                    m.d.sync += before.eq(turned)
                with m.If(emits):
                    m.d.sync += chunk.eq(Mux(ends_row, 0, chunk + 1))
                    m.d.sync += ends_row.eq(s.one_chunk | (~ends_row & (chunk + 1 == last_chunk)))
                with m.If(emits & ends_row):
                    m.d.sync += [row.eq(next_row), rows_left.eq(rows_left - rows)]
                    m.d.sync += ends_rows.eq((rows_left - rows) <= self._most_rows(s))
        pushes: Value = self.step & emits
        if decoder is not None:
            # The weights go their own way; what comes through the buffer is that they are complete, or go too far.
            pushes = Mux(s.coded, decoder.last | decoder.beyond, pushes)
        with m.If(pushes & entry.beyond):
            m.d.sync += failed.eq(1)

        m.d.comb += [
            chunks.i_valid.eq(pushes),
            entry.target.eq(s.target),
            entry.row.eq(row),
            entry.rows.eq(rows),
            entry.chunk.eq(chunk),
            entry.full.eq(whole(s)),
            entry.data.eq(chosen),
            entry.null.eq(s.null),
            entry.ends.eq(s.last & last),
            entry.beyond.eq(~s.null & ((row + rows) > limit(s))),
            entry.signal0.eq(s.signal0),
            entry.signal1.eq(s.signal1),
            entry.pc.eq(s.pc),
            # A chunk beyond its memory stays here; there is no step after its own.
            self.range_fault.error.eq(chunks.o_valid & head.beyond),
            self.range_fault.address.eq(Mux(head.row >= limit(head), head.row, limit(head))),
            self.range_fault.pc.eq(head.pc),
            self.write.valid.eq(chunks.o_valid & ~head.null & ~head.beyond),
            chunks.o_ready.eq((head.null | self.write.grant) & ~head.beyond),
            self.retire.give.eq(chunks.o_valid & chunks.o_ready & head.ends),
            self.retire.signal0.eq(head.signal0),
            self.retire.signal1.eq(head.signal1),
            self.retire.pc.eq(head.pc),
            self.busy.eq(segments.i_valid | segments.o_valid | chunks.o_valid),
        ]
        m.d.comb += [getattr(self.write, n).eq(head[n]) for n in written]
        if decoder is not None:
            with m.If(s.coded):
                m.d.comb += [
                    entry.row.eq(decoder.current),
                    entry.null.eq(~decoder.beyond),
                    entry.beyond.eq(decoder.beyond),
                ]
            with m.If(decoder.fault):
                m.d.sync += failed.eq(1)
