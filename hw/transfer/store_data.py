"""The data path of STORE: reads ACT rows and realigns them into bus beats with byte strobes."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.connections import unread
from tilewright.hw.interfaces import Fault
from tilewright.hw.memory.load_layouts import low_bits, rows_per_beat, stride_shape
from tilewright.hw.memory.scratchpad_ports import RowsRead
from tilewright.hw.parts.buffer import Buffer
from tilewright.hw.parts.queue import Queue
from tilewright.hw.sizes import pc_bits
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import ACT_READ_CYCLES, STORE_ROWS


def more_rows(config: NpuConfig) -> range:
    """Returns the shape of a number of rows besides the first: one bit at least, as Verilog has no signals without."""
    return range(max(2, rows_per_beat(config)))


class StoreReader(wiring.Component):
    """Walks the rows of a box and reads them, at most STORE_ROWS reads ahead of the realigner. Where the bus is wider
    than a row a read asks for as many rows of the run as a beat holds, and asks again for those whose banks were taken.
    One part finds the reads, one per cycle and up to two ahead; the other makes them.

    Latency: rows asked for in cycle t (2 cycles after `start` at the earliest) are at the output in cycle
    t + 1 + ACT_READ_CYCLES.

    Ports:
        start, row, count, count0, count1, row_stride0, row_stride1, low, low_stride0, low_stride1, pc: a box, `low` its
            byte position in a beat.  ready: all reads were found.
        act: read port.
        o_valid, o_ready, o_data, o_more, o_low, o_last: the rows of a read; number of rows besides the first; byte
            position of the run in a beat; the last row of a run is among them.
        fault: one of the rows at the output does not exist; no more are read.
        busy: anything is at work.  halt: read nothing.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        low = low_bits(config)
        most = rows_per_beat(config)
        super().__init__(
            {
                "start": In(1),
                "row": In(config.address_bits),
                "count": In(16),
                "count0": In(16),
                "count1": In(16),
                "row_stride0": In(stride_shape(config)),
                "row_stride1": In(stride_shape(config)),
                "low": In(low),
                "low_stride0": In(low),
                "low_stride1": In(low),
                "pc": In(pc_bits(config)),
                "ready": Out(1),
                "act": Out(RowsRead(8 * config.block_in, most)),
                "o_valid": Out(1),
                "o_ready": In(1),
                "o_data": Out(8 * config.block_in * most),
                "o_more": Out(more_rows(config)),
                "o_low": Out(low),
                "o_last": Out(1),
                "busy": Out(1),
                "fault": Out(Fault(config)),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request = {"row": self.row.shape(), "more": self.act.more.shape(), "low": self.low.shape(), "last": 1, "bad": 1}
        layout = data.StructLayout(request)
        m.submodules.requests = requests = Buffer(layout.size)
        self._find(m, requests, data.View(layout, requests.i_payload))
        self._read(m, requests, data.View(layout, requests.o_payload))
        return m

    def _find(self, m: Module, requests: Buffer, found: data.View) -> None:
        """Walks a box and finds its reads."""
        c = self.config
        most = rows_per_beat(c)
        active, bad, current_pc = Signal(), Signal(), Signal(pc_bits(c), reset_less=True)
        strides = {n: Signal.like(getattr(self, n), reset_less=True) for n in ("row_stride0", "row_stride1")}
        strides |= {n: Signal.like(getattr(self, n), reset_less=True) for n in ("low_stride0", "low_stride1")}
        row, line, plane = (Signal.like(self.row, name=n, reset_less=True) for n in ("now_row", "line", "plane"))
        low, plane_low = (Signal.like(self.low, name=n, reset_less=True) for n in ("now_low", "plane_low"))
        # What is left: rows of the run, runs of the plane, planes. How many a whole run and a whole plane have.
        left, left0, left1, whole, whole0 = (
            Signal(16, name=n, reset_less=True) for n in ("left", "left0", "left1", "whole", "whole0")
        )
        # Whether this read ends the run, this run ends its plane, this plane ends the box; `first_`: the same for the
        # first read of a run and the first run of a plane.
        ends, ends0, ends1, first_ends, first_ends0 = (
            Signal(name=n, reset_less=True) for n in ("ends", "ends0", "ends1", "first_ends", "first_ends0")
        )
        rows: Value | int = Mux(ends, left, most)[: most.bit_length()] if most > 1 else 1
        last, take = Signal(), Signal()
        m.d.comb += [
            requests.i_valid.eq(active & ~bad),
            take.eq(requests.i_valid & requests.i_ready),
            found.row.eq(row),
            found.more.eq(rows - 1),
            found.low.eq(low),
            found.last.eq(ends),
            found.bad.eq(row + rows > c.act_rows),
            last.eq(ends & ends0 & ends1),
            self.ready.eq(~active),
        ]
        with m.If(take):
            with m.If(found.bad):
                m.d.sync += [bad.eq(1), self.fault.pc.eq(current_pc)]
                m.d.sync += self.fault.address.eq(Mux(row >= c.act_rows, row, c.act_rows))
            with m.If(~ends):
                m.d.sync += [left.eq(left - most), ends.eq(left <= 2 * most), row.eq(row + most)]
            with m.Else():
                m.d.sync += [left.eq(whole), ends.eq(first_ends)]
                with m.If(~ends0):
                    next_line = Signal.like(row)
                    m.d.comb += next_line.eq(line + strides["row_stride0"])
                    m.d.sync += [left0.eq(left0 - 1), ends0.eq(left0 == 2), row.eq(next_line), line.eq(next_line)]
                    m.d.sync += low.eq(low + strides["low_stride0"])
                with m.Else():
                    next_plane, next_low = Signal.like(row), Signal.like(low)
                    m.d.comb += [
                        next_plane.eq(plane + strides["row_stride1"]),
                        next_low.eq(plane_low + strides["low_stride1"]),
                    ]
                    m.d.sync += [left0.eq(whole0), ends0.eq(first_ends0), left1.eq(left1 - 1), ends1.eq(left1 == 2)]
                    m.d.sync += [row.eq(next_plane), line.eq(next_plane), plane.eq(next_plane)]
                    m.d.sync += [low.eq(next_low), plane_low.eq(next_low)]
            with m.If(last):
                m.d.sync += active.eq(0)
        with m.If(self.start):
            m.d.sync += active.eq(1)
        with m.If(~active):  # also without a start, so that `start` itself reaches few cells
            m.d.sync += [
                row.eq(self.row),
                line.eq(self.row),
                plane.eq(self.row),
                low.eq(self.low),
                plane_low.eq(self.low),
                left.eq(self.count),
                whole.eq(self.count),
                left0.eq(self.count0),
                whole0.eq(self.count0),
                left1.eq(self.count1),
                ends.eq(self.count <= most),
                first_ends.eq(self.count <= most),
                ends0.eq(self.count0 == 1),
                first_ends0.eq(self.count0 == 1),
                ends1.eq(self.count1 == 1),
                current_pc.eq(self.pc),
            ]
            m.d.sync += [s.eq(getattr(self, n)) for n, s in strides.items()]
        self.finding = active

    def _read(self, m: Module, requests: Buffer, head: data.View) -> None:
        """Makes the reads and queues their rows."""
        most = rows_per_beat(self.config)
        fields = {
            "data": self.act.data.shape(),
            "more": head.more.shape(),
            "low": head.low.shape(),
            "last": 1,
            "bad": 1,
        }
        layout = data.StructLayout(fields)
        m.submodules.rows = rows = Queue(layout.size, STORE_ROWS)
        entry, oldest = data.View(layout, rows.i_payload), data.View(layout, rows.o_payload)
        reserved = Signal(range(STORE_ROWS + 1))  # rows held and under way
        # What was granted, until its rows are there.
        without_data = data.StructLayout({n: s for n, s in fields.items() if n != "data"})
        granted = [Signal(without_data, name=f"granted{t}", reset_less=True) for t in range(ACT_READ_CYCLES)]
        pending = [Signal(name=f"pending{t}") for t in range(ACT_READ_CYCLES)]
        step, complete = Signal(), Signal()  # rows are granted; all of the request would be granted
        more: Value | int = 0  # rows granted besides the first
        m.d.comb += [self.act.row.eq(head.row), self.act.more.eq(head.more), complete.eq(1)]
        if most > 1:
            done = Signal.like(self.act.grant, name="done")  # rows of the request granted before
            more = (self.act.grant - 1)[: len(head.more)]
            m.d.comb += [
                self.act.row.eq(head.row + done),
                self.act.more.eq(head.more - done),
                complete.eq(more == self.act.more),
            ]
            with m.If(step):
                m.d.sync += done.eq(Mux(complete, 0, done + self.act.grant))
        m.d.comb += [
            self.act.valid.eq(requests.o_valid & ~self.halt & (reserved != STORE_ROWS)),
            step.eq(self.act.valid & (self.act.grant != 0)),
            requests.o_ready.eq(step & complete),
            rows.i_valid.eq(pending[-1]),
            self.o_valid.eq(rows.o_valid),
            rows.o_ready.eq(self.o_ready),
            self.busy.eq(self.finding | requests.o_valid | Cat(pending).any() | rows.o_valid),
            entry.data.eq(self.act.data),
        ]
        m.d.comb += [entry[n].eq(granted[-1][n]) for n in without_data.members]
        m.d.comb += [
            self.o_data.eq(oldest.data),
            self.o_more.eq(oldest.more),
            self.o_low.eq(oldest.low),
            self.o_last.eq(oldest.last),
            self.fault.error.eq(rows.o_valid & oldest.bad),
        ]
        unread(m, rows.i_ready)  # `reserved` counts
        m.d.sync += [
            reserved.eq(reserved + step - (rows.o_valid & rows.o_ready)),
            pending[0].eq(step),
            granted[0].more.eq(more),
            granted[0].low.eq(head.low),
            granted[0].last.eq(head.last & complete),
            granted[0].bad.eq(head.bad),
        ]
        m.d.sync += [later.eq(before) for before, later in pairwise(pending)]
        m.d.sync += [later.eq(before) for before, later in pairwise(granted)]


class StoreAligner(wiring.Component):
    """Turns the rows of a run into beats: the first starts at byte `low` of a beat, strobes mark the bytes of the run.

    Latency: 1 cycle from a row at the input to its (first) beat at the output; one beat per cycle, one item of the
    input per cycle where the bus is wider than a row. Two beats are held at most. Bytes without a strobe are arbitrary.

    Ports:
        i_valid, i_ready, i_data, i_more, i_low, i_last: rows, as `StoreReader` gives them.
        o_valid, o_ready, o_data, o_strobe: beats.
        held: beats are held here.  busy: anything is.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        super().__init__(
            {
                "i_valid": In(1),
                "i_ready": Out(1),
                "i_data": In(8 * config.block_in * rows_per_beat(config)),
                "i_more": In(more_rows(config)),
                "i_low": In(low_bits(config)),
                "i_last": In(1),
                "o_valid": Out(1),
                "o_ready": In(1),
                "o_data": Out(config.axi_data_bits),
                "o_strobe": Out(config.bus_bytes),
                "held": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        bus, most = c.bus_bytes, rows_per_beat(c)
        pieces = max(1, c.block_in // bus)
        layout = data.StructLayout({"data": 8 * bus, "strobe": bus})
        m.submodules.beats = beats = Buffer(layout.size)
        beat = data.View(layout, beats.i_payload)
        index = Signal(range(max(2, pieces)))
        started, flushing = Signal(), Signal()
        position = Signal(low_bits(c), reset_less=True)  # of the next piece in the beat, once started
        kept, kept_strobe = Signal(8 * bus, reset_less=True), Signal(bus)

        place = Signal.like(position)
        m.d.comb += place.eq(Mux(started, position, self.i_low))
        source = self.i_data.word_select(index, 8 * bus) if pieces > 1 else self.i_data
        last_piece = self.i_last & (index == pieces - 1)
        mask: Value | int = (1 << bus) - 1
        full, spills, end = Value.cast(1), place != 0, place  # the piece fills the beat; more than that; its end
        if most > 1:
            rows_there = [C(1), *(k <= self.i_more for k in range(1, most))]
            mask = Cat(there.replicate(c.block_in) for there in rows_there)
            end = place + (self.i_more + 1) * c.block_in
            full, spills = end >= bus, end > bus
        # The piece, turned by `place`: its bytes in this beat and those of the next one.
        turned, strobe = Signal(8 * bus), Signal(2 * bus)
        m.d.comb += [turned.eq((source.replicate(2) << (place << 3))[8 * bus :]), strobe.eq(mask << place)]
        room, take, flush = beats.i_ready, Signal(), Signal()
        for i in range(bus):
            new = strobe[i] & ~flushing
            m.d.comb += [
                beat.data.word_select(i, 8).eq(Mux(new, turned.word_select(i, 8), kept.word_select(i, 8))),
                beat.strobe[i].eq(kept_strobe[i] | new),
            ]
        m.d.comb += [
            flush.eq(flushing & room),
            take.eq(self.i_valid & room & ~flushing),
            beats.i_valid.eq(flush | (take & (full | last_piece))),
            self.i_ready.eq(take & (index == pieces - 1)),
            self.o_valid.eq(beats.o_valid),
            Cat(self.o_data, self.o_strobe).eq(beats.o_payload),
            beats.o_ready.eq(self.o_ready),
            self.held.eq(self.o_valid | flushing),
            self.busy.eq(self.held | started),
        ]
        with m.If(take):
            m.d.sync += [
                index.eq(Mux(index == pieces - 1, 0, index + 1)),
                position.eq(end),
                started.eq(~last_piece),
                flushing.eq(last_piece & spills),
                kept.eq(Mux(full, turned, beat.data)),
                kept_strobe.eq(Mux(full, strobe[bus:], Mux(last_piece, 0, beat.strobe))),
            ]
        with m.If(flush):
            m.d.sync += [kept_strobe.eq(0), flushing.eq(0)]
        if most == 1:
            unread(m, self.i_more)
        return m
