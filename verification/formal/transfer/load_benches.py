"""Benches of LOAD: that it does what `isa` says of its instructions.

The statements chain, from an instruction to the bytes in a scratchpad:

1. `load_starts`: what LOAD tells its walker and its data half of an instruction. `walker_runs` and `walker_bursts`
   have the bursts that follow, which cover the bytes of the runs of the box.
2. `load_beats`: the beats LOAD gets from the read port are those of its bursts, in order.
3. `load_segments`: the data half cuts the box into segments, rows of one run or of padding; `buffer` keeps them.
4. `load_steps`: it takes as many beats for the segment of a run as its bursts have, and makes chunks of it: every byte
   of the run with its row and lane, `fill` for the rows of padding, and nothing else. LOAD_CODED: `load_codes`.
5. `load_writes`: every chunk is written, once, in order; an instruction is complete with its last one.

Each follows one instruction (segment, chunk) that the solver chooses among any others, beside a reference that walks
the box by counters and knows of no pipeline. `pc`, which parts only pass on, has in its low bits which instruction it
is: it says which one an event is for, and the properties say that all events of an instruction come, before those of
the next. Invariants put the registers of a part beside the reference.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from tilewright.hw.memory.load_layouts import descriptor_layout, segment_layout
from tilewright.hw.parts.buffer import Buffer
from tilewright.hw.parts.probes import probes
from tilewright.hw.table import field, header, is_instruction
from tilewright.hw.transfer.load import Load
from tilewright.hw.transfer.load_data import LoadData, Part
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import BY_NAME, Memory
from verification.formal.bench import Bench, implies, opened, registers
from verification.formal.bus.axi_benches import instructions
from verification.formal.engine import Cut
from verification.formal.transfer.move_benches import (
    MOVES,
    Lines,
    Turn,
    assume_readiness,
    check_region,
    dims,
    followed,
    per_memory,
    turn,
)


def load_starts(only: str | None, c: NpuConfig = MOVES) -> Bench:
    """LOAD with any instructions and regions; the walker and the data half do as they like."""
    b = Bench(only)
    load = Load(c)
    walker, half, control = load.walker, load.data, load.control
    b.cut(walker, "walker")
    b.cut(half, "half")
    descriptors: Any = opened(load).submodules.descriptors
    opened(descriptors)
    b.part("load", load)
    instructions(b, load, "LOAD", c)
    if not c.weight_codes:
        b.assume(~is_instruction(control.word, "LOAD_CODED"))
    if not c.packed_weights:
        b.assume(~is_instruction(control.word, "LOAD_PACKED"))
    assume_readiness(b, walker)
    box = dims(b, control, "LOAD_DIM")
    pads = {f.name: Signal(f.bits, name=f"pad_{f.name}") for f in BY_NAME["LOAD_PAD"].fields}
    sets = control.configure.any()
    with b.m.If(sets & is_instruction(control.word, "LOAD_PAD")):
        b.m.d.sync += [register.eq(field(control.word, "LOAD_PAD", n)) for n, register in pads.items()]

    def decoded(word: Value) -> SimpleNamespace:
        """Decodes an instruction by the tables of `isa`."""
        of = {n: field(word, "LOAD", n) for n in ("region", "offset", "target", "row", "count")}
        coded = is_instruction(word, "LOAD_CODED") if c.weight_codes else C(0)
        parts, lines = (pads["left"], of["count"], pads["right"]), pads["top"] + box[0]["count"] + pads["bottom"]
        beats = field(word, "LOAD_CODED", "beats")
        packed = is_instruction(word, "LOAD_PACKED") if c.packed_weights else C(0)
        return SimpleNamespace(
            **of,
            coded=coded,
            beats=beats,
            packed=packed,
            box=is_instruction(word, "LOAD") | packed,
            rows=(sum(parts, C(0)) != 0) & (lines != 0) & (box[1]["count"] != 0),
            one=lines == 1,
            one_segment=(lines == 1) & (sum((p != 0 for p in parts), C(0)) == 1) & (box[1]["count"] == 1),
            reads=Mux(coded, beats != 0, (of["count"] != 0) & (box[0]["count"] != 0)),
            bytes=Mux(
                coded,
                beats * c.bus_bytes,
                of["count"]
                * Mux(packed, c.packed_tile_bytes, per_memory(of["target"], [t.row_bytes(c) for t in Memory])),
            ),
        )

    now = decoded(control.word)
    start = control.start
    faulty = start & now.box & ~now.rows
    begin = start & ~faulty
    b.check(
        "operand",
        (load.operand_fault.error == faulty) & implies(faulty, load.operand_fault.pc == control.pc),
        "LOAD: ILLEGAL_OPERAND exactly for a box without a row",
        Cut("load.top"),
    )
    # The walker.
    w = walker
    b.check(
        "bursts",
        w.start == (begin & (now.box | now.coded) & now.reads),
        "LOAD: the walker gets the box of the instruction, count rows of its target, as LOAD_DIM set it "
        "last; none if there is nothing to read, or for a SYNC. LOAD_CODED: `beats` beats from offset on,"
        " its low bits 0",
        Cut("load.bytes_"),
    )
    low = (c.bus_bytes - 1).bit_length()
    offset = Cat(Mux(now.coded, 0, now.offset[:low]), now.offset[low : c.offset_bits])
    b.check("bursts", implies(w.start, w.ready & ~w.null & (w.offset == offset)))
    b.check("bursts", implies(w.start, (w.bytes == now.bytes) & (w.tag == control.pc)))
    for k in range(2):
        count, stride = getattr(w, f"count{k}"), getattr(w, f"mem_stride{k}").as_unsigned()
        as_configured = (count == box[k]["count"]) & (stride == box[k]["mem_stride"].as_unsigned()[: c.offset_bits])
        b.check("bursts", implies(w.start, Mux(now.coded, count == 1, as_configured)))
    check_region(b, load, "LOAD", now.region)
    # The data half.
    d = data.View(descriptor_layout(c), descriptors.i_payload)
    b.check(
        "told",
        descriptors.i_valid == begin,
        "LOAD: the data half gets what the instruction, LOAD_DIM and LOAD_PAD say, whether it is one "
        "segment, and loses none",
        Cut("load.row_stride1"),
    )
    b.check("told", implies(begin, descriptors.i_ready))
    b.check("told", implies(begin, (d.null == ~now.box) & (d.only == (~now.box | now.one_segment))))
    b.check(
        "told", implies(begin & now.box, (d.one == now.one) & (d.target == now.target) & (d.low == now.offset[:low]))
    )
    b.check(
        "told", implies(begin, (d.row == now.row[: c.address_bits]) & (d.count == now.count) & (d.pc == control.pc))
    )
    for name in ("signal0", "signal1"):
        b.check("told", implies(begin, d[name] == header(control.word, name)))
    for name, register in pads.items():
        b.check("told", implies(begin & now.box, d[name] == register))
    for k in range(2):
        row_stride, low_stride = box[k]["row_stride"].as_unsigned(), box[k]["mem_stride"].as_unsigned()
        bits = len(d[f"row_stride{k}"])
        strides = (d[f"row_stride{k}"].as_unsigned() == row_stride[:bits]) & (d[f"low_stride{k}"] == low_stride[:low])
        b.check("told", implies(begin & now.box, (d[f"count{k}"] == box[k]["count"]) & strides))
    if c.packed_weights:
        b.check("told", implies(begin, d.packed == now.packed))
    if c.weight_codes:
        b.check("told", implies(begin, d.coded == now.coded))
        mode = field(control.word, "LOAD_CODED", "mode")
        coded = (d.target == Memory.WGT) & (d.mode == mode) & (d.beats == now.beats)
        b.check("told", implies(begin & now.coded, coded))
    # What passes.
    for name in ("give", "signal0", "signal1", "pc"):
        b.check(
            "passes",
            getattr(load.retire, name) == b.past(getattr(half.retire, name), f"was_{name}"),
            "LOAD: bursts, beats and writes pass unchanged; an instruction retires in the cycle after its last write",
            Cut("load.retire__give"),
        )
    b.check("passes", (half.i_valid == descriptors.o_valid) & (half.i_payload == descriptors.o_payload))
    b.check("passes", descriptors.o_ready == half.i_ready)
    for name in [n for n, member in load.write.signature.members.items() if n != "grant"]:
        b.check("passes", getattr(load.write, name) == getattr(half.write, name))
    read = load.read
    asks = (read.valid == w.o_valid) & (w.o_ready == read.ready) & (read.address == w.o_address)
    b.check("passes", asks & (read.beats == w.o_beats) & (half.beat == read.beat))
    b.check("passes", (half.beat_data == read.data) & (read.beat_ready == half.beat_ready))
    b.check("passes", (half.write.grant == load.write.grant) & (half.halt == control.halt) & (w.halt == control.halt))

    # Errors: a window once its first beat is due and those before it have come; a beat when it is taken.
    window, bus, rows = load.window_fault, load.bus_fault, load.range_fault
    b.check(
        "faults",
        window.error == (w.failed & half.beat_ready & read.idle),
        "LOAD: a run outside its region is reported when its first beat is due and those before it have "
        "come, an error of a beat when that is taken",
        Cut("load.window_fault__error"),
    )
    b.check("faults", (window.address == w.error_address) & (window.pc == w.error_tag))
    b.check("faults", (bus.error == (read.beat & half.beat_ready & read.bad)) & (bus.pc == half.current_pc))
    b.check("faults", bus.address == read.beat_address)
    for name in ("error", "pc", "address"):
        b.check("faults", getattr(rows, name) == getattr(half.range_fault, name))

    shown = probes(load)
    for name, register in pads.items():
        b.invariant(shown.pad[name] == register)
    for k, dim in enumerate(box):
        row_stride, mem_stride = shown.box.row_stride[k].as_unsigned(), shown.box.mem_stride[k].as_unsigned()
        strides = (row_stride == dim["row_stride"].as_unsigned()[: len(row_stride)]) & (
            mem_stride == dim["mem_stride"].as_unsigned()[: len(mem_stride)]
        )
        b.invariant((shown.box.counts[k] == dim["count"]) & strides)
    # What is known of the head a cycle before it starts; its room in the queue.
    was, quiet, head = decoded(b.past(control.word, "was_word")), b.past(~sets, "stayed"), shown.head
    b.invariant(implies(quiet, (head.coded == was.coded) & (head.bytes == was.bytes) & (head.one == was.one)))
    b.invariant(implies(quiet & (was.box | was.coded), head.empty == ~was.reads))
    b.invariant(implies(quiet & was.box, (head.no_rows == ~was.rows) & ~head.sync & (head.only == was.one_segment)))
    null = is_instruction(b.past(control.word, "was_word_"), "LOAD_SYNC") | was.coded
    b.invariant(implies(quiet & null, head.sync & head.only))
    level, depth, queue = descriptors.level, descriptors.depth, probes(descriptors)
    b.invariant((level <= depth) & (queue.full == (level == depth)) & (queue.held == (level != 0)))
    b.invariant(implies(control.ready, w.ready & (level < depth)))
    return b


class Finder(LoadData):
    """The part of the data half that cuts boxes into segments, alone."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        payload = Signal(segment_layout(self.config).size, name="segment")
        self.out = SimpleNamespace(i_valid=Signal(name="given"), i_ready=Signal(name="room"), i_payload=payload)
        self._find(m, self.out)  # type: ignore[arg-type]
        return m


def is_packed(part: Any, c: NpuConfig) -> Value:
    """Returns the bit of a descriptor, segment or chunk that its weights have 4 bits."""
    return Value.cast(part.packed) if c.packed_weights else C(0)


def consistent(segment: data.View, c: NpuConfig) -> Value:
    """Returns a bit: the redundant fields of a segment agree with the others. `one_chunk`: every chunk ends a row;
    `few_rows`: a chunk can end all of them."""
    packed = is_packed(segment, c)
    one = per_memory(segment.target, [int(t.row_bytes(c) <= c.bus_bytes) for t in Memory])
    one = Mux(packed, int(c.packed_tile_bytes <= c.bus_bytes), one)
    filled = ~segment.data & ((segment.target == Memory.ACT) | (segment.target == Memory.WGT))
    most = Mux(segment.data & (segment.target == Memory.ACT), max(1, c.bus_bytes // c.block_in), 1)
    right = (segment.one_chunk == (filled | one)) & (segment.few_rows == (segment.rows <= most))
    right = right & implies(packed, segment.target == Memory.WGT)
    return Mux(segment.null, segment.one_chunk & segment.few_rows & segment.last & ~segment.data, right)


def load_segments(only: str | None, c: NpuConfig = MOVES) -> Bench:
    """The first part of the data half, with any legal descriptors."""
    b = Bench(only)
    finder = Finder(c)
    inside = SimpleNamespace(**registers(opened(finder)))
    b.part("finder", finder, beat=None, beat_data=None, write__grant=None, halt=None)
    out, s = finder.out, data.View(segment_layout(c), finder.out.i_payload)
    buffer = Buffer(len(out.i_payload))
    behind = SimpleNamespace(**registers(opened(buffer)))
    b.part("buffer", buffer, i_valid=out.i_valid, i_payload=out.i_payload)
    b.m.d.comb += out.i_ready.eq(buffer.i_ready)
    d = Signal(descriptor_layout(c), name="d")  # the one that is followed
    incoming = data.View(descriptor_layout(c), finder.i_payload)
    taken, done = finder.i_valid & finder.i_ready, Signal(name="done")
    begin, begun = followed(b, taken, incoming.pc)
    with b.m.If(begin):
        b.m.d.sync += d.eq(incoming)

    def legal(d: Any) -> Value:  # what `load_starts` says of descriptors
        lines, parts = d.top + d.count0 + d.bottom, (d.left, d.count, d.right)
        one_part = sum((p != 0 for p in parts), C(0)) == 1
        box = (lines != 0) & Cat(parts).any() & (d.count1 != 0) & (d.one == (lines == 1))
        box = box & implies(is_packed(d, c), d.target == Memory.WGT)
        return (d.null | box) & (d.only == (d.null | (d.one & one_part & (d.count1 == 1))))

    b.assume(implies(taken, legal(incoming)))

    gives, mine = out.i_valid & out.i_ready, turn(s.pc) == Turn.IT
    after = Signal(c.address_bits, name="after")  # the row after the segment before
    start, x, wide = Signal(c.address_bits, name="start"), Signal(18, name="x"), d.left + d.count + d.right
    b.m.d.comb += start.eq(Mux(s.jumps, s.row, after))
    with b.m.If(gives):
        b.m.d.sync += after.eq(start + s.rows)
    ends_line = x + s.rows == wide
    line = Lines(b, "line", begin=begin, step=gives & mine & ends_line, ys=d.top + d.count0 + d.bottom, zs=d.count1)
    has_data = (line.y >= d.top) & (line.y < d.top + d.count0)
    line_row, plane_row = line.offset("row", d.row, d.row_stride0, d.row_stride1)
    low, plane_low = line.offset("low", d.low, d.low_stride0, d.low_stride1, has_data)
    with b.m.If(begin):
        b.m.d.sync += x.eq(0)
    with b.m.Elif(gives & mine):
        b.m.d.sync += [x.eq(Mux(ends_line, 0, x + s.rows)), done.eq(d.null | (ends_line & line.last))]
    here, box = gives & mine, gives & mine & ~d.null
    row = (line_row + x)[: c.address_bits]
    b.check(
        "once",
        implies(here, begun & ~done & (s.null == d.null)) & implies(begun & ~out.i_valid, done),
        "LOAD: a box is cut into segments without a gap, one after the other, and the last is marked; "
        "boxes follow in their order",
        Cut("finder.last_line"),
    )
    b.check(
        "once",
        implies(gives & (turn(s.pc) == Turn.LATER), done) & implies(gives & (turn(s.pc) == Turn.EARLIER), ~begun),
    )
    b.check("once", implies(here, s.last == (d.null | (ends_line & line.last))))
    b.check(
        "rows",
        implies(box, (s.target == d.target) & (start == row) & (s.rows != 0) & (x + s.rows <= wide)),
        "LOAD: the segments of line y of plane z begin at row + z * row_stride1 + y * row_stride0, and "
        "are left + count + right rows",
        Cut("finder.line_row"),
    )
    run = has_data & (x == d.left) & (s.rows == d.count)
    padding = ~has_data | (x + s.rows <= d.left) | (x >= d.left + d.count)
    b.check(
        "kind",
        implies(box, Mux(s.data, run & (s.low == low), padding & (s.fill == d.fill))),
        "LOAD: the rows from `left` on of the lines from `top` on are `count` rows of a run that begins "
        "at offset + z * mem_stride1 + (y - top) * mem_stride0 (in a beat), for count0 lines; the rest is"
        " fill",
        Cut("finder.middle"),
    )
    b.check(
        "told",
        implies(here, (s.pc == d.pc) & (s.signal0 == d.signal0) & (s.signal1 == d.signal1)),
        "LOAD: segments have the signals and `pc` of their instruction",
        Cut("finder.d.signal0"),
    )
    b.check("told", implies(here, consistent(s, c)))
    b.check("told", implies(box, is_packed(s, c) == is_packed(d, c)))
    comes = buffer.o_load & (behind.more | buffer.i_valid)
    last, jumps = (data.View(segment_layout(c), p) for p in (buffer.o_payload, buffer.o_next))
    b.check(
        "at_once",
        implies(comes & ~jumps.jumps, buffer.o_valid & ~last.last),
        "LOAD: a segment that goes on where one ended comes as soon as that leaves",
        Cut("finder.fresh"),
    )

    # The part's place beside that of the reference, which makes the proof short.
    at, busy = probes(finder).line, begun & ~done
    held = data.View(descriptor_layout(c), inside.d)
    b.invariant(implies(inside.active, turn(held.pc) == Mux(busy, Turn.IT, Mux(done, Turn.LATER, Turn.EARLIER))))
    b.invariant(
        implies(done, begun) & implies(busy, inside.active & (held == d)) & implies(begun, turn(d.pc) == Turn.IT)
    )
    b.invariant(implies(behind.more, buffer.o_valid) & (buffer.i_ready == ~behind.more))
    newest = data.View(segment_layout(c), Mux(behind.more, behind.spare, buffer.o_payload))
    b.invariant(implies(inside.active & ~at.fresh, buffer.o_valid & ~newest.last))
    b.invariant(implies(behind.more & ~newest.jumps, ~last.last))
    whole = inside.active & ~held.null
    has, parts = Cat(at.has_left, at.has_count, at.has_right), Cat(held.left != 0, held.count != 0, held.right != 0)
    lengths = Mux(at.part == Part.LEFT, held.left, Mux(at.part == Part.MIDDLE, held.count, held.right))
    b.invariant(implies(inside.active, legal(held) & (inside.only == held.only)))
    b.invariant(implies(whole, (has == parts) & (lengths != 0) & (at.part <= Part.RIGHT)))
    b.invariant(implies(whole & held.only, at.last_line & at.last_plane))
    box = busy & ~d.null
    ys = d.top + d.count0 + d.bottom
    b.invariant(implies(box, (at.next_y == line.y + 1) & (line.y < ys) & (line.z < d.count1)))
    b.invariant(implies(box, (at.middle == has_data) & (at.last_line == line.ends_plane) & (at.one_line == (ys == 1))))
    b.invariant(implies(box, (at.planes_left == d.count1 - line.z) & (at.last_plane == (line.z + 1 == d.count1))))
    b.invariant(implies(box, (at.middle_end == d.top + d.count0) & (at.last_y + 1 == ys)))
    b.invariant(implies(box, (at.row == line_row) & (at.plane_row == plane_row)))
    b.invariant(implies(box, (at.low == low) & (at.plane_low == plane_low)))
    places = Mux(at.part == Part.LEFT, 0, Mux(at.part == Part.MIDDLE, d.left, d.left + d.count))
    b.invariant(implies(box, (x == places) & (at.fresh == (x == 0))))
    b.invariant(implies(box & (x != 0), after == row))
    return b
