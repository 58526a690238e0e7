"""Benches of the second part of LOAD's data half: from segments and beats to the bytes in a scratchpad.

`load_benches` says how they chain. The parts of `LoadData` are taken one by one, by the methods that make them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from tilewright.hw.memory.axi_read import AxiRead
from tilewright.hw.memory.load_layouts import segment_layout
from tilewright.hw.parts.buffer import Buffer
from tilewright.hw.parts.probes import probes
from tilewright.hw.transfer.load_data import LoadData, _chunk_layout
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Memory
from verification.formal.bench import Bench, contents, implies, opened, registers
from verification.formal.engine import Cut
from verification.formal.transfer.load_benches import consistent, is_packed
from verification.formal.transfer.move_benches import MOVES, Turn, followed, per_memory, turn


class Stepper(LoadData):
    """The part of the data half that makes chunks of segments, alone."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size = segment_layout(self.config).size
        valid, ready, payload, following = Signal(name="valid"), Signal(name="ready"), Signal(size), Signal(size)
        self.segments = SimpleNamespace(i_valid=0, o_valid=valid, o_ready=ready, o_payload=payload, o_next=following)
        self._step(m, self.segments)  # type: ignore[arg-type]
        return m


def load_steps(only: str | None, c: NpuConfig = MOVES) -> Bench:
    """The second part of the data half up to the buffer of chunks, with any segments and any beats."""
    b = Bench(only)
    part = Stepper(c)
    module = opened(part)
    inside = SimpleNamespace(**registers(module))
    chunks: Any = module.submodules.chunks
    decoder: Any = module.submodules.decoder if c.weight_codes else None
    if decoder is not None:
        b.cut(decoder, "decoder")  # of it is known what `load_codes` says
        says = Cat(decoder.beat_ready, decoder.step, decoder.last, decoder.beyond, decoder.fault).any()
        b.assume(implies(says, decoder.valid) & implies(decoder.last | decoder.beyond, decoder.step))
        b.assume(~(decoder.last & decoder.beyond))
    b.part("part", part, i_valid=0, i_payload=0)
    segments, layout = part.segments, segment_layout(c)
    bus = c.bus_bytes

    # The buffer of segments, as `buffer` and `load_segments` have it: the next one comes when there is none or the one
    # before leaves; one that does not jump comes at once.
    now, following = data.View(layout, segments.o_payload), data.View(layout, segments.o_next)
    more = b.free(1, "more")
    loads = ~segments.o_valid | segments.o_ready
    b.m.d.comb += segments.o_next.eq(b.free(layout.size, "following"))
    with b.m.If(loads):
        b.m.d.sync += [segments.o_valid.eq(more), segments.o_payload.eq(segments.o_next)]

    def is_coded(s: Any) -> Value:
        return s.coded if c.weight_codes else C(0)

    def legal(s: Any) -> Value:  # what `load_segments` says of segments
        return consistent(s, c) & (s.null | (s.rows != 0)) & implies(is_coded(s), s.null)

    taken = loads & more
    b.assume(implies(taken, legal(following) & (following.jumps | (segments.o_valid & ~now.last))))
    begin, begun = followed(b, taken, following.pc)
    s, start, now_start = Signal(layout, name="s"), Signal(c.address_bits, name="start"), Signal(c.address_bits)
    first = Signal(c.address_bits, name="first")
    b.m.d.comb += first.eq(Mux(following.jumps, following.row, now_start + now.rows))
    with b.m.If(taken):
        b.m.d.sync += now_start.eq(first)
    with b.m.If(begin):
        b.m.d.sync += [s.eq(following), start.eq(first)]

    # A byte of the rows.
    at, value, seen = b.constant(25, "at"), Signal(8, name="value"), Signal(name="seen")
    bytes_, packed = Signal(25, name="bytes_"), is_packed(s, c)
    size = Mux(packed, c.packed_tile_bytes, per_memory(s.target, [t.row_bytes(c) for t in Memory]))  # of a row
    b.m.d.comb += bytes_.eq(s.rows * size)

    # Beats, and the chunks that are pushed: `before`, `x`, `chunk`, `place` count bytes of the beats, rows, chunks of
    # the row, bytes of the chunks.
    done = Signal(name="done")
    busy = begun & ~done
    beat, push = part.beat & part.beat_ready, chunks.i_valid & chunks.i_ready
    entry = data.View(_chunk_layout(c), chunks.i_payload)
    mine, pushed = turn(now.pc) == Turn.IT, turn(entry.pc) == Turn.IT
    before, x, chunk, place = (
        Signal(n, name=name) for n, name in ((26, "before"), (17, "x"), (8, "chunk"), (26, "place"))
    )
    after = Signal(27, name="after")  # bytes of the beats, with the one of this cycle
    b.m.d.comb += after.eq(Mux(beat & mine, before + bus, before))
    reach = Signal(26, name="reach")
    b.m.d.comb += reach.eq(s.low + at)
    comes = beat & mine & (reach >= before) & (reach < before + bus)
    got, known = Signal(8, name="got"), Signal(name="known")
    b.m.d.comb += [got.eq(Mux(comes, part.beat_data.word_select((reach - before)[: bus.bit_length() - 1], 8), value))]
    b.m.d.comb += known.eq(seen | comes)
    chunks_ = per_memory(s.target, [max(1, t.row_bytes(c) // bus) for t in Memory])
    chunks_ = Mux(packed, c.packed_tile_bytes // bus, chunks_)
    most = Mux(s.data, per_memory(s.target, [max(1, bus // t.row_bytes(c)) for t in Memory]), 1)
    rows = Signal(16, name="rows")
    b.m.d.comb += rows.eq(Mux(s.rows - x < most, s.rows - x, most))
    full = ~s.data & ((s.target == Memory.ACT) | (s.target == Memory.WGT))
    ends_row, ends = Signal(name="ends_row"), Signal(name="ends")
    coded = is_coded(s)
    complete, too_far, fails = (decoder.last, decoder.beyond, decoder.fault) if c.weight_codes else (C(0), C(0), C(0))
    b.m.d.comb += ends_row.eq(full | (chunk + 1 == chunks_))
    b.m.d.comb += ends.eq(Mux(coded, complete, s.null | (ends_row & (x + rows == s.rows))))
    with b.m.If(begin):
        b.m.d.sync += [x.eq(0), chunk.eq(0), place.eq(0), before.eq(0), seen.eq(0)]
    with b.m.Elif(busy):
        b.m.d.sync += [before.eq(after), value.eq(got), seen.eq(known)]
    with b.m.If(push & pushed):
        b.m.d.sync += [place.eq(place + bus), chunk.eq(Mux(ends_row, 0, chunk + 1)), done.eq(ends)]
        b.m.d.sync += x.eq(x + Mux(ends_row, rows, 0))

    row = (start + x)[: c.address_bits]
    here = push & pushed
    b.check(
        "once",
        implies(here, busy) & implies(push & (turn(entry.pc) == Turn.LATER), done),
        "LOAD: the chunks of a segment come in order, each once, before those of the next; the last is marked",
        Cut("part.rows_left"),
    )
    b.check("once", implies(push & (turn(entry.pc) == Turn.EARLIER), ~begun))
    b.check("once", implies(here, entry.ends == (s.last & ends)))
    b.check(
        "beats",
        implies(beat & mine & ~coded, busy & s.data & (before < s.low + bytes_)),
        "LOAD: a run takes the beats that hold its bytes, (low + bytes) / bus rounded up; fill takes none",
        Cut("part.skips"),
    )
    b.check("beats", implies(here & ends & ~coded, Mux(s.data, after >= s.low + bytes_, before == 0)))
    b.check(
        "place",
        implies(here, entry.null == (s.null & ~(coded & too_far))),
        "LOAD: a chunk goes to the place of its bytes: row, chunk of the row; or to a whole row of fill",
        Cut("part.next_row"),
    )
    b.check("place", implies(here & ~s.null, is_packed(entry, c) == (packed & s.data)))
    where = (entry.target == s.target) & (entry.row == row) & (entry.rows == rows) & (entry.full == full)
    b.check("place", implies(here & ~s.null, where & (full | (entry.chunk == chunk))))
    b.check(
        "fill",
        implies(here & ~s.null & ~s.data, entry.data == s.fill.replicate(bus)),
        "LOAD: every byte of a row of padding is `fill`",
        Cut("part.before"),
    )
    covered = s.data & (at >= place) & (at < place + bus) & (at < bytes_)
    byte = entry.data.word_select((at - place)[: bus.bit_length() - 1], 8)
    b.check(
        "data",
        implies(here & covered, known & (byte == got)),
        "LOAD: byte p of a run is byte low + p of its beats, at any alignment; it is written when it has come",
        Cut("part.before"),
    )
    limit = per_memory(s.target, [t.rows(c) for t in Memory])
    b.check(
        "range",
        implies(here, entry.beyond == Mux(s.null, coded & too_far, row + rows > limit)),
        "LOAD: a chunk with a row beyond the scratchpad is marked, and is the last",
        Cut("part.failed"),
    )
    failed = Signal(name="failed")
    b.m.d.sync += failed.eq(failed | (push & entry.beyond) | fails)
    b.check("range", implies(push, ~failed))
    b.check(
        "told",
        implies(here, (entry.pc == s.pc) & (entry.signal0 == s.signal0) & (entry.signal1 == s.signal1)),
        "LOAD: chunks have the signals and `pc` of their segment",
        Cut("part.chunks.i_payload"),
    )
    if decoder is not None:  # it makes the steps of LOAD_CODED, and gets its beats
        its = busy & coded
        b.check("once", implies(its & (complete | too_far), here) & implies(here & coded, complete | too_far))
        b.check(
            "beats",
            implies(mine & coded, part.beat_ready == decoder.beat_ready) & implies(decoder.valid, is_coded(now)),
        )
        b.check("place", implies(here & entry.beyond & coded, entry.row == decoder.current))
        same = (decoder.beat == part.beat) & (decoder.beat_data == part.beat_data) & (decoder.mode == s.mode)
        named = same & (decoder.row == s.row) & (decoder.tiles == s.rows) & (decoder.beats == s.beats)
        b.check("told", implies(decoder.valid & mine, its & named))
        b.check("told", (part.code_fault.error == fails) & implies(fails & mine, part.code_fault.pc == s.pc))

    # The part's place beside that of the reference.
    inner = probes(part).place
    b.invariant(implies(done, begun) & implies(begun, (turn(s.pc) == Turn.IT) & legal(s)))
    it = Mux(busy, Turn.IT, Mux(done, Turn.LATER, Turn.EARLIER))
    b.invariant(implies(segments.o_valid, (turn(now.pc) == it) & legal(now)))
    b.invariant(implies(busy, segments.o_valid & (now == s) & (now_start == start)))
    most_now = Mux(now.data & (now.target == Memory.ACT), max(1, bus // c.block_in), 1)
    some = segments.o_valid & ~now.null
    b.invariant(
        implies(some, (inner.row + inner.rows_left)[: c.address_bits] == (now_start + now.rows)[: c.address_bits])
    )
    b.invariant(implies(some, (inner.rows_left != 0) & (inner.ends_rows == (inner.rows_left <= most_now))))
    b.invariant(implies(busy & ~s.data & ~coded, before == 0))
    b.invariant(implies(segments.o_valid & now.null & ~is_coded(now), inner.ends_row & inner.ends_rows & ~inner.skips))
    box, run = busy & ~s.null, busy & s.data & ~s.null
    b.invariant(implies(box, (inner.row == row) & (x < s.rows) & (inner.rows_left == s.rows - x)))
    b.invariant(implies(box, (inner.chunk == Mux(full, 0, chunk)) & (chunk < chunks_) & (inner.ends_row == ends_row)))
    b.invariant(implies(box & full, chunk == 0))
    b.invariant(implies(run, place == x * size + chunk * bus))
    ahead = (s.low != 0) & ~inner.skips
    b.invariant(implies(run, (before == place + Mux(ahead, bus, 0)) & (inner.skips == ((s.low != 0) & (before == 0)))))
    b.invariant(implies(run & (at < bytes_), seen == (before > reach)))
    kept = inner.before.word_select(at[: bus.bit_length() - 1], 8)
    b.invariant(implies(run & (at < bytes_) & seen & (at >= place), kept == value))
    b.invariant(implies(box & ~s.data, (inner.before == s.fill.replicate(bus)) & ~inner.skips & (before == 0)))
    b.invariant(failed == inside.failed)
    return b


class Writer(LoadData):
    """The part of the data half that writes chunks, alone."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = _chunk_layout(self.config)
        m.submodules.chunks = self.buffer = Buffer(layout.size)
        self._write(m, self.buffer, data.View(layout, self.buffer.o_payload))
        return m


def load_writes(only: str | None, c: NpuConfig = MOVES) -> Bench:
    """The end of the data half, with any chunks, and scratchpads that refuse as they like."""
    b = Bench(only)
    part = Writer(c)
    opened(part)
    buffer, layout = part.buffer, _chunk_layout(c)
    behind = SimpleNamespace(**registers(opened(buffer)))
    b.part("part", part, i_valid=0, i_payload=0, beat=0, beat_data=0, halt=0)
    pushed = data.View(layout, buffer.i_payload)
    failed, went = Signal(name="failed"), Signal(name="went")  # a chunk beyond was pushed; the one followed has left
    push = Signal(name="push")
    b.m.d.comb += [buffer.i_payload.eq(b.free(layout.size, "chunk")), buffer.i_valid.eq(b.free(1, "pushes"))]
    b.m.d.comb += push.eq(buffer.i_valid & buffer.i_ready)
    begin, begun = followed(b, push, pushed.pc)
    b.m.d.sync += failed.eq(failed | (push & pushed.beyond))
    # What `load_steps` says of chunks.
    b.assume(implies(push, ~failed & implies(pushed.null, pushed.ends & ~pushed.beyond)))
    e = Signal(layout, name="e")
    with b.m.If(begin):
        b.m.d.sync += e.eq(pushed)

    w, retire, fault = part.write, part.retire, part.range_fault
    write = w.valid & w.grant
    mine = begun & ~went & (turn(retire.pc) == Turn.IT)
    b.m.d.sync += went.eq(went | (mine & (write | retire.give)))
    same, names = Value.cast(1), ["target", "row", "rows", "chunk", "full", "data"]
    names += ["packed"] * bool(c.packed_weights)
    for name in names:
        same = same & (getattr(w, name) == e[name])
    writes = ~e.null & ~e.beyond
    b.check(
        "write",
        implies(mine, (w.valid == writes) & implies(writes, same)),
        "LOAD: every chunk is written once, as it is",
        Cut("part.chunks.spare"),
    )
    b.check("write", implies((write | retire.give) & (turn(retire.pc) == Turn.IT), begun & ~went))
    waits = b.past(w.valid & ~w.grant, "waits")
    for name in names:
        port = getattr(w, name)
        b.check(
            "stays",
            implies(waits, w.valid & (port == b.past(port, f"last_{name}"))),
            "LOAD: a write stays until it is granted",
            Cut("part.chunks.payload"),
        )
    b.check(
        "order",
        implies((write | retire.give) & (turn(retire.pc) == Turn.LATER), went),
        "LOAD: chunks are written in the order in which they were made",
        Cut("part.chunks.more"),
    )
    b.check("order", implies((write | retire.give) & (turn(retire.pc) == Turn.EARLIER), ~went))
    named = (retire.pc == e.pc) & (retire.signal0 == e.signal0) & (retire.signal1 == e.signal1)
    b.check(
        "retire",
        implies(mine, (retire.give == (e.ends & Mux(e.null, ~e.beyond, write))) & named),
        "LOAD: an instruction gives its own signals once, with the grant of its last chunk (SYNC: in its turn)",
        Cut("part.retire__give"),
    )
    beyond = Mux(e.row >= _limit(e.target, c), e.row, _limit(e.target, c))
    b.check(
        "range",
        implies(mine & e.beyond, fault.error & (fault.pc == e.pc) & (fault.address == beyond)),
        "LOAD: a chunk beyond its scratchpad is not written, nor anything after it; the error has the "
        "first row beyond and the instruction",
        Cut("part.range_fault__address"),
    )
    b.check("range", implies(fault.error, ~w.valid & ~retire.give) & implies(b.past(fault.error, "fault"), fault.error))
    b.check("range", implies(fault.error & (turn(fault.pc) == Turn.IT), mine & e.beyond))

    head, spare = data.View(layout, buffer.o_payload), data.View(layout, behind.spare)
    b.invariant(implies(behind.more, buffer.o_valid) & (buffer.i_ready == ~behind.more))
    b.invariant(implies(went, begun) & implies(begun, (turn(e.pc) == Turn.IT) & implies(e.null, e.ends & ~e.beyond)))
    in_head, in_spare = buffer.o_valid & (turn(head.pc) == Turn.IT), behind.more & (turn(spare.pc) == Turn.IT)
    b.invariant(implies(in_head, head == e) & implies(in_spare, spare == e) & ~(in_head & in_spare))
    b.invariant((in_head | in_spare) == (begun & ~went))
    for entry, there in ((head, buffer.o_valid), (spare, behind.more)):
        b.invariant(implies(there & (turn(entry.pc) == Turn.EARLIER), ~went) & implies(there, turn(entry.pc) != 3))
        b.invariant(implies(there & (turn(entry.pc) == Turn.LATER), begun))
        b.invariant(implies(there & entry.beyond, failed & ~entry.null))
    order = turn(head.pc) <= turn(spare.pc)
    b.invariant(implies(behind.more, order) & implies(buffer.o_valid & (turn(head.pc) == Turn.LATER), went))
    return b


def _limit(target: Value, c: NpuConfig) -> Value:
    """Rows of the memory."""
    return per_memory(target, [t.rows(c) for t in Memory])


def load_beats(only: str | None, c: NpuConfig = MOVES) -> Bench:
    """The read port with any bursts of FETCH and LOAD, and a memory that answers bursts in order, with RLAST at the
    last beat of each."""
    b = Bench(only)
    p = AxiRead(c)
    held = registers(opened(p))
    opened(probes(p).owners)
    b.part("port", p)
    load, fetch, bus = p.load, p.fetch, c.bus_bytes
    for who in (load, fetch):
        b.assume(implies(who.valid, (who.beats != 0) & (who.beats <= c.burst_beats)))
    asks = (load.valid & load.ready) | (fetch.valid & fetch.ready)
    ends = p.r.valid & p.r.ready & p.r.last
    of_load = load.valid & load.ready
    address, beats = Mux(of_load, load.address, fetch.address), Mux(of_load, load.beats, fetch.beats)
    asked = b.past(asks, "asked")
    b.check(
        "asks",
        ~((load.valid & load.ready) & (fetch.valid & fetch.ready)),
        "`AxiRead`: every burst that is taken goes to AR as it is, in order",
        Cut("port.ar__addr"),
    )
    b.check("asks", implies(asked, p.ar.valid & (p.ar.addr == b.past(address, "was_address"))))
    b.check("asks", implies(asked, p.ar.len == b.past(beats - 1, "was_len")[:8]))
    b.check("asks", implies(~asked & ~b.past(p.ar.valid & ~p.ar.ready, "waits"), ~p.ar.valid))

    # One of the bursts: how many were asked for before it and are not complete, how many beats of it have come.
    open_, ahead, given = (Signal(8, name=n) for n in ("open", "ahead", "given"))
    begun, done = Signal(name="begun"), Signal(name="done")
    begin = asks & ~begun & b.free(1, "follow")
    mine, size, first = (
        Signal(name="of_load"),
        Signal.like(load.beats, name="beats"),
        Signal.like(load.address, name="first"),
    )
    b.m.d.sync += open_.eq(open_ + asks - ends)
    b.assume(implies(p.r.valid, open_ != 0))
    its = p.r.valid & begun & ~done & (ahead == 0)
    b.assume(implies(its, p.r.last == (given + 1 == size)))
    with b.m.If(begin):
        b.m.d.sync += [begun.eq(1), mine.eq(of_load), size.eq(beats), first.eq(address), ahead.eq(open_ - ends)]
    with b.m.Elif(begun & (ahead != 0)):
        b.m.d.sync += ahead.eq(ahead - ends)
    with b.m.If(its & p.r.ready):
        b.m.d.sync += [given.eq(given + 1), done.eq(p.r.last)]
    b.check(
        "beats",
        implies(its & ~p.halt, Mux(mine, load.beat & ~fetch.beat, fetch.beat & ~load.beat)),
        "`AxiRead`: the beats of a burst go to the engine that asked for it, as they are, in order, each "
        "with its address",
        Cut("port.position"),
    )
    b.check("beats", implies(its & mine, load.beat_address == (first + given * bus)[: c.axi_address_bits]))
    b.check("beats", implies(load.beat, p.r.valid & (load.data == p.r.data) & (load.bad == p.r.resp[1])))
    b.check("beats", implies(load.beat, p.r.ready == load.beat_ready))
    b.check("beats", implies(fetch.beat, p.r.valid & (fetch.data == p.r.data) & p.r.ready))

    owners = probes(p).owners
    entries = contents(b, owners, "owners")
    b.invariant((owners.level == open_) & implies(done, begun) & implies(begun & ~done, ahead < open_))
    for n, (there, entry) in enumerate(entries):
        here = begun & ~done & (ahead == n)
        b.invariant(implies(here, there & (entry[0] == mine) & (entry[1:] == first)))
    waits = begun & ~done
    b.invariant(implies(waits & (ahead != 0), given == 0) & implies(waits, (given < size) & (size <= c.burst_beats)))
    b.invariant(implies(waits & (ahead == 0), held["position"] == given) & implies(~begun, given == 0))
    b.invariant(implies(open_ == 0, held["position"] == 0))
    return b
