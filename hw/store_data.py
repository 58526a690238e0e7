"""The data path of STORE: reads ACT rows and realigns them into bus beats with byte strobes."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.load_data import low_bits
from hw.ports import PC_BITS
from hw.queue import Queue
from isa.config import ROW_BITS, NpuConfig
from isa.instructions import ADDRESS_BITS
from isa.timing import STORE_ROWS


def rows_per_beat(config: NpuConfig) -> int:
    """ACT rows a beat holds, at least 1."""
    return max(1, config.bus_bytes // config.block_in)


def more_rows(config: NpuConfig) -> range:
    """Shape of a number of rows besides the first; at least one bit, Verilog has no signals without."""
    return range(max(2, rows_per_beat(config)))


class StoreReader(wiring.Component):
    """Walks the rows of a box and reads them, at most STORE_ROWS reads ahead of the realigner. Where the bus is wider
    than a row a read asks for the next rows of the run, up to a beat full, and gets those its banks are free for.

    Latency: rows asked for in cycle t (the cycle after `start` at the earliest) are at the output in cycle t+2.

    Ports:
        start, row, count, count0, count1, row_stride0, row_stride1, low, low_stride0, low_stride1, pc: a box, `low` its
            byte position in a beat.  ready: idle.
        act_read, act_row, act_more, act_grant, act_data: read port; rows besides the first; rows granted.
        o_valid, o_ready, o_data, o_more, o_low, o_last: what a read gave; rows besides the first; byte position of the
            run in a beat; the last row of a run is among them.
        o_bad, bad_row, bad_pc: one of the rows does not exist; no more are read.
        step, busy, halt: as in other engines.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        low = low_bits(config)
        most = rows_per_beat(config)
        super().__init__(
            {
                "start": In(1),
                "row": In(ADDRESS_BITS),
                "count": In(16),
                "count0": In(16),
                "count1": In(16),
                "row_stride0": In(signed(ROW_BITS)),
                "row_stride1": In(signed(ROW_BITS)),
                "low": In(low),
                "low_stride0": In(low),
                "low_stride1": In(low),
                "pc": In(PC_BITS),
                "ready": Out(1),
                "act_read": Out(1),
                "act_row": Out(ADDRESS_BITS),
                "act_more": Out(more_rows(config)),
                "act_grant": In(range(most + 1)),
                "act_data": In(8 * config.block_in * most),
                "o_valid": Out(1),
                "o_ready": In(1),
                "o_data": Out(8 * config.block_in * most),
                "o_more": Out(more_rows(config)),
                "o_low": Out(low),
                "o_last": Out(1),
                "step": Out(1),
                "busy": Out(1),
                "o_bad": Out(1),
                "bad_row": Out(ADDRESS_BITS),
                "bad_pc": Out(PC_BITS),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        active = Signal()
        strides = {n: Signal.like(getattr(self, n), reset_less=True) for n in ("row_stride0", "row_stride1")}
        strides |= {n: Signal.like(getattr(self, n), reset_less=True) for n in ("low_stride0", "low_stride1")}
        row, line, plane = (Signal(ADDRESS_BITS, name=n, reset_less=True) for n in ("now_row", "line", "plane"))
        low, plane_low = (Signal(low_bits(c), name=n, reset_less=True) for n in ("now_low", "plane_low"))
        left, most, left0, most0, left1 = (
            Signal(16, name=n, reset_less=True) for n in ("left", "most", "left0", "most0", "left1")
        )
        pending, pending_last = Signal(), Signal(reset_less=True)
        pending_low = Signal.like(low)
        bad, current_pc = Signal(), Signal(PC_BITS)
        most_more = rows_per_beat(c) - 1
        more = Signal(more_rows(c))  # rows granted besides the first
        pending_more = Signal.like(more)

        row_bits = 8 * c.block_in
        fields = {"data": (most_more + 1) * row_bits, "low": low_bits(c), "last": 1, "bad": 1, "more": more.shape()}
        layout = data.StructLayout(fields)
        m.submodules.rows = rows = Queue(layout.size, STORE_ROWS)
        run_ends = left == more
        last = run_ends & (left0 == 0) & (left1 == 0)
        m.d.comb += [
            self.act_read.eq(active & ~bad & ~self.halt & ((rows.level + pending) < STORE_ROWS)),
            self.act_row.eq(row),
            self.act_more.eq(Mux(left < most_more, left, most_more) if most_more else 0),
            more.eq(self.act_grant - 1 if most_more else 0),
            self.step.eq(self.act_read & (self.act_grant != 0)),
            self.ready.eq(~active),
            self.busy.eq(active | pending | rows.o_valid),
        ]
        m.d.sync += pending.eq(self.step)
        with m.If(self.step):
            m.d.sync += [pending_low.eq(low), pending_last.eq(run_ends), pending_more.eq(more)]
            with m.If(row + more >= c.act_rows):
                m.d.sync += [bad.eq(1), self.bad_pc.eq(current_pc)]
                m.d.sync += self.bad_row.eq(Mux(row >= c.act_rows, row, c.act_rows) if most_more else row)
            with m.If(~run_ends):
                m.d.sync += [left.eq(left - more - 1), row.eq(row + more + 1)]
            with m.Elif(left0 != 0):
                following = Signal(ADDRESS_BITS)
                m.d.comb += following.eq(line + strides["row_stride0"])
                m.d.sync += [left.eq(most), left0.eq(left0 - 1), row.eq(following), line.eq(following)]
                m.d.sync += low.eq(low + strides["low_stride0"])
            with m.Else():
                next_plane, next_low = Signal(ADDRESS_BITS), Signal.like(low)
                m.d.comb += [
                    next_plane.eq(plane + strides["row_stride1"]),
                    next_low.eq(plane_low + strides["low_stride1"]),
                ]
                m.d.sync += [left.eq(most), left0.eq(most0), left1.eq(left1 - 1)]
                m.d.sync += [row.eq(next_plane), line.eq(next_plane), plane.eq(next_plane)]
                m.d.sync += [low.eq(next_low), plane_low.eq(next_low)]
            with m.If(last):
                m.d.sync += active.eq(0)
        with m.If(self.start):
            m.d.sync += [
                active.eq(1),
                row.eq(self.row),
                line.eq(self.row),
                plane.eq(self.row),
                low.eq(self.low),
                plane_low.eq(self.low),
                left.eq(self.count - 1),
                most.eq(self.count - 1),
                left0.eq(self.count0 - 1),
                most0.eq(self.count0 - 1),
                left1.eq(self.count1 - 1),
                current_pc.eq(self.pc),
            ]
            m.d.sync += [s.eq(getattr(self, n)) for n, s in strides.items()]

        entry, head = data.View(layout, rows.i_payload), data.View(layout, rows.o_payload)
        m.d.comb += [
            rows.i_valid.eq(pending),
            entry.data.eq(self.act_data),
            entry.more.eq(pending_more),
            entry.low.eq(pending_low),
            entry.last.eq(pending_last),
            entry.bad.eq(bad),
            self.o_bad.eq(head.bad),
            self.o_valid.eq(rows.o_valid),
            rows.o_ready.eq(self.o_ready),
            self.o_data.eq(head.data),
            self.o_more.eq(head.more),
            self.o_low.eq(head.low),
            self.o_last.eq(head.last),
        ]
        return m


class StoreAligner(wiring.Component):
    """Turns the rows of a run into beats: the first starts at byte `low` of a beat, strobes mark the bytes of the run.

    Latency: 1 cycle from a row at the input to its (first) beat at the output; one beat per cycle, one item of the
    input per cycle where the bus is wider than a row.

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
        index = Signal(range(max(2, pieces)))
        started, flushing = Signal(), Signal()
        position = Signal(low_bits(c))  # of the next piece in the beat, once started
        kept, kept_strobe = Signal(8 * bus), Signal(bus)

        place = Signal.like(position)
        m.d.comb += place.eq(Mux(started, position, self.i_low))
        source = self.i_data.word_select(index, 8 * bus) if pieces > 1 else self.i_data
        piece: Value | int = bus  # bytes taken at once
        mask: Value | int = (1 << bus) - 1
        if most > 1:
            piece = Signal(range(bus + 1))
            m.d.comb += piece.eq((self.i_more + 1) * c.block_in)
            rows_there = [k <= self.i_more for k in range(most)]
            mask = Cat(there.replicate(c.block_in) for there in rows_there)
            source = Cat(
                self.i_data.word_select(k, 8 * c.block_in) & there.replicate(8 * c.block_in)
                for k, there in enumerate(rows_there)
            )
        placed, strobe = Signal(8 * 2 * bus), Signal(2 * bus)
        full, last_piece, spills = Signal(), Signal(), Signal()
        m.d.comb += [
            placed.eq(source << (place << 3)),
            strobe.eq(mask << place),
            last_piece.eq(self.i_last & (index == pieces - 1)),
            full.eq(place + piece >= bus),
            spills.eq(place + piece > bus),
        ]
        room = ~self.o_valid | self.o_ready
        take, flush = Signal(), Signal()
        m.d.comb += [
            flush.eq(flushing & room),
            take.eq(self.i_valid & room & ~flushing),
            self.i_ready.eq(take & (index == pieces - 1)),
            self.held.eq(self.o_valid | flushing),
            self.busy.eq(self.held | started),
        ]
        with m.If(room):
            m.d.sync += self.o_valid.eq(flush | (take & (full | last_piece)))
        with m.If(take):
            m.d.sync += [
                self.o_data.eq(kept | placed[: 8 * bus]),
                self.o_strobe.eq(kept_strobe | strobe[:bus]),
                index.eq(Mux(index == pieces - 1, 0, index + 1)),
                position.eq(place + piece),
                started.eq(~last_piece),
                flushing.eq(last_piece & spills),
            ]
            with m.If(full):
                m.d.sync += [kept.eq(placed[8 * bus :]), kept_strobe.eq(strobe[bus:])]
            with m.Elif(last_piece):
                m.d.sync += [kept.eq(0), kept_strobe.eq(0)]
            with m.Else():
                m.d.sync += [kept.eq(kept | placed[: 8 * bus]), kept_strobe.eq(kept_strobe | strobe[:bus])]
        with m.If(flush):
            m.d.sync += [self.o_data.eq(kept), self.o_strobe.eq(kept_strobe)]
            m.d.sync += [kept.eq(0), kept_strobe.eq(0), flushing.eq(0)]
        return m
