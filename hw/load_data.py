"""The data half of LOAD: walks the box, realigns bytes, writes chunks and fill rows."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.ports import PC_BITS
from hw.semaphores import SEMAPHORE_BITS
from isa.config import ROW_BITS, NpuConfig
from isa.instructions import ADDRESS_BITS, Memory

TARGET_BITS = (max(Memory)).bit_length()


def row_bytes(config: NpuConfig, target: Memory) -> int:
    """Bytes of one row of a scratchpad in memory."""
    return {
        Memory.ACT: config.block_in,
        Memory.WGT: config.tile_bytes,
        Memory.PRM: config.prm_row_bytes,
        Memory.LUT: 256,
    }[target]


def rows_of(config: NpuConfig, target: Memory) -> int:
    """Rows of a scratchpad."""
    return {
        Memory.ACT: config.act_rows,
        Memory.WGT: config.wgt_tiles,
        Memory.PRM: config.prm_rows,
        Memory.LUT: config.lut_tables,
    }[target]


def low_bits(config: NpuConfig) -> int:
    """Bits of a byte position in a beat."""
    return (config.bus_bytes - 1).bit_length()


def descriptor_layout(config: NpuConfig) -> data.StructLayout:
    """What the data half needs of an instruction; `low` is the byte position in a beat, `null` marks LOAD_SYNC."""
    low = low_bits(config)
    return data.StructLayout(
        {
            "null": 1,
            "target": TARGET_BITS,
            "row": ADDRESS_BITS,
            "count": 16,
            "low": low,
            "count0": 16,
            "count1": 16,
            "row_stride0": signed(ROW_BITS),
            "row_stride1": signed(ROW_BITS),
            "low_stride0": low,
            "low_stride1": low,
            "left": 8,
            "right": 8,
            "top": 8,
            "bottom": 8,
            "fill": 8,
            "signal0": SEMAPHORE_BITS,
            "signal1": SEMAPHORE_BITS,
            "pc": PC_BITS,
        }
    )


class LoadData(wiring.Component):
    """Walks a box line by line: left fill rows, data chunks, right fill rows; lines of padding are fill rows only.

    One bus beat or fill row per cycle (a fill row of LUT takes one cycle per chunk); no cycle between lines or
    instructions. The first beat of an unaligned run yields no chunk. Where the bus is wider than an ACT row the last
    chunk of a run may need a cycle of its own after the last beat. Chunks go through a register; it is written in
    the next cycle, or later if VECTOR writes the bank.

    Latency: beat to write 1 cycle. Signals are given in the cycle of the last write.

    Ports:
        i_valid, i_ready, i_payload: descriptors.
        beat, beat_ready, beat_data: data.
        write_valid, write_grant, write_target, write_row, write_rows, write_chunk, write_full, write_data: chunk
            `write_chunk` of a row, or `write_rows` ACT rows, or with `write_full` the whole row of repeated data.
        give, signal0, signal1, give_pc; step, stalled, busy, current_pc; range_error, range_row; halt: as in `Load`.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.rows_per_beat = max(1, config.bus_bytes // config.block_in)
        self.chunks = {t: max(1, row_bytes(config, t) // config.bus_bytes) for t in Memory}
        self.chunk_bits = max(1, (max(self.chunks.values()) - 1).bit_length())
        super().__init__(
            {
                "i_valid": In(1),
                "i_ready": Out(1),
                "i_payload": In(descriptor_layout(config).size),
                "beat": In(1),
                "beat_ready": Out(1),
                "beat_data": In(config.axi_data_bits),
                **self.write_members(),
                "give": Out(1),
                "signal0": Out(SEMAPHORE_BITS),
                "signal1": Out(SEMAPHORE_BITS),
                "give_pc": Out(PC_BITS),
                "step": Out(1),
                "stalled": Out(1),
                "busy": Out(1),
                "current_pc": Out(PC_BITS),
                "range_error": Out(1),
                "range_row": Out(ADDRESS_BITS),
                "halt": In(1),
            }
        )

    def write_members(self) -> dict[str, object]:
        return {
            "write_valid": Out(1),
            "write_grant": In(1),
            "write_target": Out(TARGET_BITS),
            "write_row": Out(ADDRESS_BITS),
            "write_rows": Out(range(self.rows_per_beat + 1)),
            "write_chunk": Out(self.chunk_bits),
            "write_full": Out(1),
            "write_data": Out(self.config.axi_data_bits),
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        low_width, bus = low_bits(c), c.bus_bytes
        layout = descriptor_layout(c)
        incoming = data.View(layout, self.i_payload)
        d = Signal(layout, reset_less=True)

        # Position in the box.
        active, filling, data_follows = Signal(), Signal(), Signal()
        y, lines = Signal(17, reset_less=True), Signal(18, reset_less=True)
        left1 = Signal(16, reset_less=True)
        row, line_row, plane_row = (
            Signal(ADDRESS_BITS, name=n, reset_less=True) for n in ("row", "line_row", "plane_row")
        )
        low, plane_low = (Signal(max(1, low_width), name=n, reset_less=True) for n in ("low", "plane_low"))
        fill_left = Signal(18, reset_less=True)
        rows_left = Signal(16, reset_less=True)  # data rows of the run
        beats_left = Signal(28, reset_less=True)
        primed = Signal()  # `before` holds the beat before
        chunk = Signal(self.chunk_bits)
        before = Signal(c.axi_data_bits, reset_less=True)

        last_chunk = Signal(self.chunk_bits)

        def per_target(target: Value, table: dict[Memory, int]) -> Value:
            return Array(table[t] for t in Memory)[target]

        m.d.comb += last_chunk.eq(per_target(d.target, {t: n - 1 for t, n in self.chunks.items()}))

        def run_beats(target: Value, count: Value, position: Value) -> Value:
            sizes = [(count * row_bytes(c, t) + position + (bus - 1))[low_width : low_width + 28] for t in Memory]
            return Array(sizes)[target]

        def enter(box: data.View, y_: Value | int, row_: Value, low_: Value) -> list:
            """Assignments that begin line y of a box."""
            padding = (box.top > y_) | (y_ >= (box.top + box.count0))
            only_fill = padding | (box.count == 0)
            return [
                y.eq(y_),
                row.eq(row_),
                line_row.eq(row_),
                low.eq(low_),
                filling.eq(only_fill | (box.left != 0)),
                data_follows.eq(~only_fill),
                fill_left.eq(Mux(only_fill, box.left + box.count + box.right, box.left)),
                rows_left.eq(box.count),
                beats_left.eq(run_beats(box.target, box.count, low_)),
                primed.eq(0),
                chunk.eq(0),
            ]

        # What this cycle does.
        valid, null = Signal(), Signal()  # the chunk register; it holds LOAD_SYNC
        room = ~valid | null | self.write_grant
        go = active & room & ~self.halt
        null_step, fill_step, beat_step, flush_step, emit = (
            Signal(name=n) for n in ("null_step", "fill_step", "beat_step", "flush_step", "emit")
        )
        unaligned = low != 0
        m.d.comb += [
            null_step.eq(go & d.null),
            fill_step.eq(go & ~d.null & filling),
            self.beat_ready.eq(go & ~d.null & ~filling & (beats_left != 0)),
            beat_step.eq(self.beat & self.beat_ready),
            flush_step.eq(go & ~d.null & ~filling & (beats_left == 0)),
            emit.eq(fill_step | (beat_step & (primed | ~unaligned)) | flush_step),
            self.step.eq(null_step | fill_step | beat_step | flush_step),
            self.stalled.eq(active & ~self.halt & ~self.step),
            self.current_pc.eq(d.pc),
        ]
        wide = (d.target == Memory.ACT) if self.rows_per_beat > 1 else 0
        rows_now = Signal(range(self.rows_per_beat + 1))  # rows this chunk writes (to ACT, bus wider than a row)
        m.d.comb += rows_now.eq(1)
        if self.rows_per_beat > 1:
            with m.If(wide & ~filling):
                m.d.comb += rows_now.eq(Mux(rows_left < self.rows_per_beat, rows_left, self.rows_per_beat))
        whole_fill = filling & (d.target != Memory.LUT)
        row_done = whole_fill | (chunk == last_chunk)
        fill_done, run_done, line_done = Signal(), Signal(), Signal()
        m.d.comb += [
            fill_done.eq(fill_step & row_done & (fill_left == 1)),
            run_done.eq(emit & ~filling & row_done & (rows_left == rows_now)),
            line_done.eq((fill_done & ~data_follows) | (run_done & (d.right == 0))),
        ]
        last_line = (y == lines - 1) & (left1 == 0)
        done = Signal()
        m.d.comb += [done.eq((line_done & last_line) | null_step), self.i_ready.eq((~active | done) & ~self.halt)]

        with m.If(beat_step):
            m.d.sync += [before.eq(self.beat_data), primed.eq(1), beats_left.eq(beats_left - 1)]
        with m.If(emit):
            m.d.sync += chunk.eq(chunk + 1)
            with m.If(row_done):
                m.d.sync += [chunk.eq(0), row.eq(row + rows_now)]
                with m.If(filling):
                    m.d.sync += fill_left.eq(fill_left - 1)
                with m.Else():
                    m.d.sync += rows_left.eq(rows_left - rows_now)
        with m.If(fill_done & data_follows):
            m.d.sync += filling.eq(0)
        with m.If(run_done & (d.right != 0)):
            m.d.sync += [filling.eq(1), data_follows.eq(0), fill_left.eq(d.right)]
        with m.If(line_done):
            with m.If(y != lines - 1):
                is_data = (y >= d.top) & (y < (d.top + d.count0))
                next_low = Signal.like(low)
                m.d.comb += next_low.eq(low + Mux(is_data, d.low_stride0, 0))
                m.d.sync += enter(d, y + 1, line_row + d.row_stride0, next_low)
            with m.Elif(left1 != 0):
                plane = Signal(ADDRESS_BITS)
                next_plane_low = Signal.like(low)
                m.d.comb += [plane.eq(plane_row + d.row_stride1), next_plane_low.eq(plane_low + d.low_stride1)]
                m.d.sync += [left1.eq(left1 - 1), plane_row.eq(plane), plane_low.eq(next_plane_low)]
                m.d.sync += enter(d, 0, plane, next_plane_low)
            with m.Else():
                m.d.sync += active.eq(0)
        with m.If(null_step):
            m.d.sync += active.eq(0)
        with m.If(self.i_valid & self.i_ready):
            m.d.sync += [
                active.eq(1),
                d.eq(incoming),
                lines.eq(incoming.top + incoming.count0 + incoming.bottom),
                left1.eq(incoming.count1 - 1),
                plane_row.eq(incoming.row),
                plane_low.eq(incoming.low),
            ]
            m.d.sync += enter(incoming, 0, incoming.row, incoming.low)

        # Realigned data: bytes low.. of the beat before, then bytes of this one.
        pair = Cat(before, self.beat_data)
        aligned = Signal(c.axi_data_bits)
        m.d.comb += aligned.eq(Mux(unaligned, pair.word_select(0, 2 * c.axi_data_bits) >> (low << 3), self.beat_data))
        limit = per_target(d.target, {t: rows_of(c, t) for t in Memory})
        beyond = Signal()
        m.d.comb += [
            beyond.eq((row + rows_now) > limit),
            self.range_error.eq(emit & beyond),
            self.range_row.eq(Mux(row >= limit, row, limit)),
        ]
        with m.If(room):
            m.d.sync += [valid.eq((emit & ~beyond) | null_step), null.eq(null_step)]
        ends = Signal()
        with m.If(emit | null_step):
            m.d.sync += [
                self.write_target.eq(d.target),
                self.write_row.eq(row),
                self.write_rows.eq(rows_now),
                self.write_chunk.eq(chunk),
                self.write_full.eq(whole_fill),
                self.write_data.eq(Mux(filling, d.fill.replicate(bus), aligned)),
                self.signal0.eq(d.signal0),
                self.signal1.eq(d.signal1),
                self.give_pc.eq(d.pc),
                ends.eq(done),
            ]
        m.d.comb += [
            self.write_valid.eq(valid & ~null),
            self.give.eq(valid & room & ends),
            self.busy.eq(active | valid),
        ]
        return m
