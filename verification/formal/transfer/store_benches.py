"""Benches of STORE: that it does what `isa` says of its instructions.

The statements chain, from an instruction to bytes on the bus:

1. `store_starts`: what STORE tells its walker and its reader of an instruction, and that their answers go on as they
   are. `walker_runs` and `walker_bursts` have the bursts that follow.
2. `store_requests`: the reader cuts the box into requests for rows that follow each other; `buffer` keeps them.
3. `store_rows`: it asks for the rows of a request, each once, and hands on what ACT gave for them.
4. `store_beats`: the rows of a run become beats: byte p of the run is byte low + p of its beats, with its strobe.
5. `store_writes`: beats go to the bus as they are, so many to a burst as it has; an instruction is complete when its
   last burst is answered.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from types import SimpleNamespace

from amaranth.hdl import C, Cat, Module, Mux, Shape, Signal
from amaranth.lib import data

from tilewright.hw.interfaces import SEMAPHORE_BITS
from tilewright.hw.memory.load_layouts import low_bits, rows_per_beat
from tilewright.hw.table import field, header, is_instruction
from tilewright.hw.transfer.store import Store
from tilewright.hw.transfer.store_data import StoreReader, more_rows
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import ACT_READ_CYCLES, STORE_ROWS
from verification.formal.bench import Bench, contents, implies, opened, registers
from verification.formal.bus.axi_benches import instructions
from verification.formal.engine import Cut
from verification.formal.transfer.move_benches import MOVES, Lines, assume_readiness, check_region, dims


def store_starts(only: str | None, c: NpuConfig = MOVES) -> Bench:
    """STORE with any instructions and regions; all it is made of does as it likes."""
    b = Bench(only)
    store = Store(c)
    w, write, control = store.walker, store.write, store.control
    b.cut(w, "walker")
    b.cut(write, "write")
    module = opened(store)
    reader, aligner = module.submodules.reader, module.submodules.aligner
    b.cut(reader, "reader")
    b.cut(aligner, "aligner")
    b.part("store", store)
    instructions(b, store, "STORE", c)
    assume_readiness(b, w)
    levels = dims(b, control, "STORE_DIM")

    start, box = control.start, is_instruction(control.word, "STORE")
    now = SimpleNamespace(**{n: field(control.word, "STORE", n) for n in ("region", "offset", "row", "count")})
    b.check(
        "bursts",
        (w.start == start) & implies(start, w.ready & (w.null == ~box)),
        "STORE: the walker gets the box of the instruction, of count * block_in bytes, as STORE_DIM set "
        "it last; a SYNC takes its turn there",
        Cut("store.null"),
    )
    signals = (header(control.word, "signal0"), header(control.word, "signal1"))
    b.check("bursts", implies(start, w.tag == Cat(*signals, control.pc)))
    b.check("bursts", implies(start & box, w.offset == now.offset[: c.offset_bits]))
    b.check("bursts", implies(start & box, w.bytes == now.count * c.block_in))
    low = low_bits(c)
    r = reader
    b.check(
        "reads",
        (r.start == (start & box)) & implies(r.start, r.ready & (r.pc == control.pc)),
        "STORE: the reader gets the same box in rows",
        Cut("store.count0"),
    )
    b.check("reads", implies(r.start, (r.row == now.row[: c.address_bits]) & (r.count == now.count)))
    b.check("reads", implies(r.start, r.low == now.offset[:low]))
    for k, dim in enumerate(levels):
        rows, bytes_ = dim["row_stride"].as_unsigned(), dim["mem_stride"].as_unsigned()
        b.check("bursts", implies(start & box, getattr(w, f"count{k}") == dim["count"]))
        b.check(
            "bursts",
            implies(start & box, getattr(w, f"mem_stride{k}") == dim["mem_stride"][: c.offset_bits].as_signed()),
        )
        row_stride, low_stride = getattr(r, f"row_stride{k}").as_unsigned(), getattr(r, f"low_stride{k}")
        strides = (row_stride == rows[: len(row_stride)]) & (low_stride == bytes_[:low])
        b.check("reads", implies(r.start, (getattr(r, f"count{k}") == dim["count"]) & strides))
    check_region(b, store, "STORE", now.region)

    # What passes from one to the other.
    a, bad = aligner, r.fault.error
    rows = (a.i_valid == (r.o_valid & ~bad)) & (r.o_ready == a.i_ready) & (a.i_data == r.o_data)
    b.check(
        "passes",
        rows & (a.i_more == r.o_more) & (a.i_low == r.o_low) & (a.i_last == r.o_last),
        "STORE: bursts, rows, beats and what the bus says pass unchanged",
        Cut("store.i_valid"),
    )
    beats = (write.beat_valid == a.o_valid) & (a.o_ready == write.beat_ready)
    b.check("passes", beats & (write.beat_data == a.o_data) & (write.beat_strobe == a.o_strobe))
    b.check("passes", (write.burst_valid == w.o_valid) & (w.o_ready == write.burst_ready))
    for name in ("address", "beats", "last", "null", "tag"):
        b.check("passes", getattr(write, f"burst_{name}") == getattr(w, f"o_{name}"))
    for part in (w, r, write):
        b.check("passes", part.halt == control.halt)
    for channel, ports in (("aw", ("valid", "addr", "len")), ("w", ("valid", "data", "strb", "last"))):
        for name in ports:
            b.check("passes", getattr(getattr(store, channel), name) == getattr(getattr(write, channel), name))
        b.check("passes", getattr(write, channel).ready == getattr(store, channel).ready)
    b.check(
        "passes", (write.b.valid == store.b.valid) & (write.b.resp == store.b.resp) & (store.b.ready == write.b.ready)
    )
    act = (store.act.valid == r.act.valid) & (store.act.row == r.act.row) & (store.act.more == r.act.more)
    b.check("passes", act & (r.act.grant == store.act.grant) & (r.act.data == store.act.data))
    b.check(
        "retires",
        store.retire.give == b.past(write.give, "was_given"),
        "STORE: an instruction retires in the cycle after its last response",
        Cut("store.retire__give"),
    )
    tag = Cat(store.retire.signal0, store.retire.signal1, store.retire.pc)
    b.check("retires", tag == b.past(write.give_tag, "was_tag"))
    due = ~a.held & (write.in_burst | (w.o_valid & ~w.o_null))
    b.check(
        "faults",
        store.range_fault.error == (bad & due),
        "STORE: a row beyond ACT is reported when the beats before it are sent and its burst has begun, "
        "or lies in the region; a run outside its region when the bursts before it are complete",
        Cut("store.range_fault__error"),
    )
    b.check("faults", (store.range_fault.pc == r.fault.pc) & (store.range_fault.address == r.fault.address))
    b.check("faults", store.window_fault.error == (w.failed & ~write.in_burst))
    b.check("faults", store.window_fault.address == w.error_address)
    b.check("faults", store.window_fault.pc == w.error_tag[2 * SEMAPHORE_BITS :])
    bus = (store.bus_fault.error == write.error) & (store.bus_fault.address == write.error_address)
    b.check("faults", bus & (store.bus_fault.pc == write.error_tag[2 * SEMAPHORE_BITS :]))

    # What the part keeps beside what is kept here.
    for k, dim in enumerate(levels):
        count, stride = getattr(r, f"count{k}"), getattr(r, f"row_stride{k}").as_unsigned()
        memory = getattr(w, f"mem_stride{k}").as_unsigned()
        b.invariant((count == dim["count"]) & (stride == dim["row_stride"].as_unsigned()[: len(stride)]))
        b.invariant(memory == dim["mem_stride"].as_unsigned()[: len(memory)])
    was = b.past(control.word, "was_word")
    b.invariant(implies(b.past(C(1), "later"), w.null == is_instruction(was, "STORE_SYNC")))
    return b


def _request(c: NpuConfig) -> data.StructLayout:
    """Returns the layout of requests from the reader's first part to the second one."""
    members = {"row": c.address_bits, "more": Shape.cast(more_rows(c)).width, "low": low_bits(c), "last": 1, "bad": 1}
    return data.StructLayout(members)


class _Finder(StoreReader):
    """The part of the reader that finds the reads of a box, alone."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = _request(self.config)
        self.out = SimpleNamespace(
            i_valid=Signal(name="asks"), i_ready=Signal(name="room"), i_payload=Signal(layout.size)
        )
        self._find(m, self.out, data.View(layout, self.out.i_payload))  # type: ignore[arg-type]
        return m


def store_requests(only: str | None, c: NpuConfig = MOVES) -> Bench:
    """The first part of the reader, with any boxes."""
    b = Bench(only)
    finder = _Finder(c)
    held = registers(opened(finder))
    b.part("finder", finder, act__grant=0, act__data=0, o_ready=0, halt=0)
    out, request = finder.out, data.View(_request(c), finder.out.i_payload)
    b.m.d.comb += out.i_ready.eq(b.free(1, "room"))
    takes = out.i_valid & out.i_ready
    most = rows_per_beat(c)
    names = (
        "row",
        "count",
        "count0",
        "count1",
        "row_stride0",
        "row_stride1",
        "low",
        "low_stride0",
        "low_stride1",
        "pc",
    )
    counts = finder.count != 0
    b.assume(implies(finder.start, finder.ready & counts & (finder.count0 != 0) & (finder.count1 != 0)))
    op = SimpleNamespace(**{n: Signal.like(getattr(finder, n), name=f"op_{n}") for n in names})
    active, failed, x = Signal(name="active"), Signal(name="failed"), Signal(17, name="x")
    rows = Signal(17, name="rows")
    b.m.d.comb += rows.eq(Mux(op.count - x < most, op.count - x, most))
    ends = x + rows == op.count
    line = Lines(b, "line", begin=finder.start, step=takes & ends, ys=op.count0, zs=op.count1)
    line_row, plane_row = line.offset("row", op.row, op.row_stride0, op.row_stride1)
    low, plane_low = line.offset("low", op.low, op.low_stride0, op.low_stride1)
    row = (line_row + x)[: c.address_bits]
    beyond = row + rows > c.act_rows
    with b.m.If(finder.start):
        b.m.d.sync += [getattr(op, n).eq(getattr(finder, n)) for n in names]
        b.m.d.sync += [x.eq(0), active.eq(1)]
    with b.m.Elif(takes):
        b.m.d.sync += [x.eq(Mux(ends, 0, x + rows)), active.eq(~(ends & line.last)), failed.eq(beyond)]
    b.check(
        "rows",
        implies(takes, active & ~failed & (request.row == row) & (request.more == rows - 1)),
        "STORE: the rows of run y of plane z are asked for, `count` from row + z * row_stride1 + y * "
        "row_stride0 on, with the low bits of offset + z * mem_stride1 + y * mem_stride0",
        Cut("finder.next_line"),
    )
    b.check("rows", implies(takes, (request.low == low) & (request.last == ends)))
    b.check(
        "once",
        (finder.ready == ~active) & (out.i_valid == (active & ~failed)),
        "STORE: every run of the box comes once, and nothing else",
        Cut("finder.left1"),
    )
    b.check(
        "range",
        implies(takes, request.bad == beyond),
        "STORE: a request with a row beyond ACT is marked and is the last; the error has the first such "
        "row and the instruction",
        Cut("finder.fault__address"),
    )
    address = Mux(row >= c.act_rows, row, c.act_rows)
    b.check("range", implies(b.past(takes & beyond, "was_beyond"), finder.fault.pc == b.past(op.pc, "was_pc")))
    b.check(
        "range", implies(b.past(takes & beyond, "was_beyond_"), finder.fault.address == b.past(address, "was_address"))
    )

    at = SimpleNamespace(**held)
    b.invariant((finder.finding == active) & (held["$signal"] == failed) & implies(active, x < op.count))
    b.invariant(implies(active, (op.count != 0) & (line.y < op.count0) & (line.z < op.count1)))
    b.invariant(implies(active & ~failed, (at.now_row == row) & (at.line == line_row) & (at.plane == plane_row)))
    b.invariant(implies(active, (at.now_low == low) & (at.plane_low == plane_low) & (at.current_pc == op.pc)))
    b.invariant(implies(active, (at.left == op.count - x) & (at.ends == ends) & (at.first_ends == (op.count <= most))))
    b.invariant(implies(active, (at.left0 == op.count0 - line.y) & (at.ends0 == (at.left0 == 1))))
    b.invariant(implies(active, (at.left1 == op.count1 - line.z) & (at.ends1 == (at.left1 == 1))))
    b.invariant(
        implies(active, (at.whole == op.count) & (at.whole0 == op.count0) & (at.first_ends0 == (op.count0 == 1)))
    )
    strides = ("row_stride0", "row_stride1", "low_stride0", "low_stride1")
    kept = ("$like", "$like$1", "$like$2", "$like$3")
    b.invariant(implies(active, reduce(and_, (held[k] == getattr(op, n) for k, n in zip(kept, strides)))))
    return b


class _Reads(StoreReader):
    """The part of the reader that makes reads, alone."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = _request(self.config)
        valid, ready, payload = Signal(name="asked"), Signal(name="answered"), Signal(layout.size, name="request")
        self.requests = SimpleNamespace(o_valid=valid, o_ready=ready, o_payload=payload)
        self.finding = Signal()
        self._read(m, self.requests, data.View(layout, payload))  # type: ignore[arg-type]
        return m


def store_rows(only: str | None, c: NpuConfig = MOVES) -> Bench:
    """The second part of the reader, with any requests, and banks of ACT that refuse as they like."""
    b = Bench(only)
    part = _Reads(c)
    module = opened(part)
    held, rows_ = registers(module), module.submodules.rows
    opened(rows_)
    b.part("part", part)
    act, requests = part.act, part.requests
    request = data.View(_request(c), requests.o_payload)
    b.assume(act.grant <= act.more + 1)
    b.assume(request.more < rows_per_beat(c))
    with b.m.If(~requests.o_valid | requests.o_ready):  # as `buffer` has it
        b.m.d.sync += [requests.o_valid.eq(b.free(1, "more")), requests.o_payload.eq(b.free(_request(c).size, "next"))]

    # Rows granted of the request; reads that are on their way or wait.
    done, flying = Signal(8, name="done"), Signal(4, name="flying")
    step, pop = act.valid & (act.grant != 0), part.o_valid & part.o_ready
    complete = done + act.grant == request.more + 1
    b.m.d.sync += flying.eq(flying + step - pop)
    with b.m.If(step):
        b.m.d.sync += done.eq(Mux(complete, 0, done + act.grant))
    asks = (act.row == request.row + done) & (act.more == request.more - done)
    b.check(
        "asks",
        implies(act.valid, requests.o_valid & asks) & (requests.o_ready == (step & complete)),
        "STORE: the rows of a request are asked for in order, till each was granted",
        Cut("part.act__valid"),
    )

    # One of the reads.
    begun, gone, age, ahead = Signal(name="begun"), Signal(name="gone"), Signal(2, name="age"), Signal(4, name="ahead")
    begin = step & ~begun & b.free(1, "follow")
    layout = data.StructLayout({n: s for n, s in _request(c).members.items() if n != "row"})
    item, value = Signal(layout, name="item"), Signal(len(act.data), name="value")
    with b.m.If(begin):
        b.m.d.sync += [begun.eq(1), age.eq(0), ahead.eq(flying - pop), item.more.eq(act.grant - 1)]
        b.m.d.sync += [item.low.eq(request.low), item.last.eq(request.last & complete), item.bad.eq(request.bad)]
    with b.m.Else():
        b.m.d.sync += [age.eq(Mux(age == ACT_READ_CYCLES, age, age + 1)), ahead.eq(ahead - pop)]
    with b.m.If(age == ACT_READ_CYCLES - 1):
        b.m.d.sync += value.eq(act.data)
    now = begun & ~gone
    mine = now & part.o_valid & (ahead == 0)
    with b.m.If(mine & part.o_ready):
        b.m.d.sync += gone.eq(1)
    same = (part.o_more == item.more) & (part.o_low == item.low) & (part.o_last == item.last)
    b.check(
        "rows",
        implies(mine, (age == ACT_READ_CYCLES) & (part.o_data == value) & same),
        "STORE: what a read gave is handed on, with its number of rows, place in a beat, whether they end a run",
        Cut("part.granted1"),
    )
    b.check("rows", implies(mine, part.fault.error == item.bad))
    b.check(
        "once",
        implies(part.o_valid, flying != 0) & (flying <= STORE_ROWS),
        "STORE: reads are handed on in order, once each; none finds the queue full",
        Cut("part.reserved"),
    )
    b.check("once", implies(rows_.i_valid, rows_.i_ready))

    pending = [held[f"pending{t}"] for t in range(ACT_READ_CYCLES)]
    entries = contents(b, rows_, "rows")
    b.invariant((held["reserved"] == flying) & (flying == rows_.level + pending[0] + pending[1]))
    if "done" in held:
        b.invariant(held["done"] == done)
    b.invariant(implies(requests.o_valid, done <= request.more) & implies(~requests.o_valid, done == 0))
    b.invariant(implies(gone, begun) & implies(now, ahead < flying))
    for t in range(ACT_READ_CYCLES):
        older = rows_.level + (pending[1] if t == 0 else 0)
        granted = data.View(layout, held[f"granted{t}"]).as_value() == item.as_value()
        b.invariant(implies(now & (age == t), pending[t] & granted & (ahead == older)))
    width = len(act.data)
    for n, (there, entry) in enumerate(entries):
        waits = now & (age == ACT_READ_CYCLES) & (ahead == n)
        b.invariant(implies(waits, there & (entry[:width] == value) & (entry[width:] == item.as_value())))
    b.invariant(implies(now & (age == ACT_READ_CYCLES), ahead < rows_.level) & (age <= ACT_READ_CYCLES))
    return b
