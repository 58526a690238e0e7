"""Benches of STORE from the rows that were read to the bus; `store_benches` says how they chain."""

from __future__ import annotations

from amaranth.hdl import C, Mux, Signal

from tilewright.hw.memory.axi_write import AxiWrite
from tilewright.hw.memory.load_layouts import low_bits, rows_per_beat
from tilewright.hw.parts.probes import probes
from tilewright.hw.transfer.store_data import StoreAligner
from tilewright.isa.config import NpuConfig
from verification.formal.bench import Bench, contents, implies, opened, registers
from verification.formal.engine import Cut
from verification.formal.transfer.move_benches import MOVES, Turn, followed, turn


def store_beats(only: str | None, c: NpuConfig = MOVES) -> Bench:
    """Rows to beats, up to the buffer of beats, with any rows."""
    b = Bench(only)
    a = StoreAligner(c)
    module = opened(a)
    held, beats = registers(module), module.submodules.beats
    b.part("aligner", a)
    bus, most = c.bus_bytes, rows_per_beat(c)
    waits = b.past(a.i_valid & ~a.i_ready, "waits")  # it comes from a queue
    for name in ("i_data", "i_more", "i_low", "i_last"):
        port = getattr(a, name)
        b.assume(implies(waits, a.i_valid & (port == b.past(port, f"was_{name}"))))
    b.assume(a.i_more < most)
    push = beats.i_valid & beats.i_ready
    data_, strobe = beats.i_payload[: 8 * bus], beats.i_payload[8 * bus :]

    # Of the run: bytes that were taken, bytes of the beats that were made, whether all rows were taken.
    taken, made = Signal(25, name="taken"), Signal(25, name="made")
    inside, ended, kept_low = Signal(name="inside"), Signal(name="ended"), Signal(low_bits(c), name="kept_low")
    low, have, end = Signal(low_bits(c), name="low"), Signal(25, name="have"), Signal(26, name="end")
    there = a.i_valid & ~ended
    size = (a.i_more + 1) * c.block_in
    b.m.d.comb += [low.eq(Mux(inside, kept_low, a.i_low)), have.eq(taken + Mux(there, size, 0)), end.eq(low + have)]
    b.assume(have < 1 << 23)  # runs have less than 2**16 rows
    known = ended | (there & a.i_last)
    over = push & known & (made + bus >= end)
    with b.m.If(over):
        b.m.d.sync += [inside.eq(0), ended.eq(0), taken.eq(0), made.eq(0)]
    with b.m.Else():
        b.m.d.sync += made.eq(made + Mux(push, bus, 0))
        with b.m.If(a.i_ready):
            b.m.d.sync += [taken.eq(have), inside.eq(1), ended.eq(a.i_last), kept_low.eq(low)]
        with b.m.Elif(push):
            b.m.d.sync += [inside.eq(1), kept_low.eq(low)]
    for lane in range(bus):
        of_run = (made + lane >= low) & (made + lane < end)
        b.check(
            "strobes",
            implies(push, strobe[lane] == of_run),
            "STORE: strobes of the beats of a run are exactly those of its bytes",
            Cut("aligner.kept_strobe"),
        )
    b.check(
        "once",
        implies(push, known | (made + bus <= end)) & implies(push, there | ended),
        "STORE: a run gives the beats that hold its bytes, once each, and no other",
        Cut("aligner.flushing"),
    )
    b.check("once", implies(a.i_ready, there))
    # A byte of every run.
    at, kept = b.constant(24, "at"), Signal(8, name="value")
    value = Signal(8, name="value_now")
    new = a.i_data.word_select((at - taken)[: (c.block_in * most - 1).bit_length()], 8)
    b.m.d.comb += value.eq(Mux(at >= taken, new, kept))
    b.m.d.sync += kept.eq(value)
    lane = low + at - made
    covered = (at < have) & (low + at >= made) & (lane < bus)
    b.check(
        "data",
        implies(push & covered, data_.word_select(lane[: low_bits(c)], 8) == value),
        "STORE: byte p of a run, in rows of block_in bytes, is byte low + p of its beats, at any alignment",
        Cut("aligner.position"),
    )

    index, position, started, flushing = (held[n] for n in ("index", "position", "$signal", "flushing"))
    done = taken + index * bus  # bytes whose piece was taken
    b.invariant((taken < 1 << 23) & (index < max(1, c.block_in // bus)))
    b.invariant(started == (inside & ~ended))
    b.invariant((flushing == ended) & implies(ended, inside & (index == 0)) & implies(index != 0, waits))
    b.invariant(implies(inside, low + done == made + position) & implies(~inside, (made == 0) & (done == 0)))
    for lane_ in range(bus):
        of_run = inside & (made + lane_ >= low) & (made + lane_ < low + done)
        b.invariant(held["kept_strobe"][lane_] == of_run)
    place = low + at - made
    stays = inside & (at < done) & (low + at >= made)
    now = Mux(at >= taken, new, kept)
    b.invariant(implies(stays, held["$signal$1"].word_select(place[: low_bits(c)], 8) == now))
    return b


def store_writes(only: str | None, c: NpuConfig = MOVES) -> Bench:
    """The write port with any bursts and beats, and a memory that answers bursts it has received, in order."""
    b = Bench(only)
    p = AxiWrite(c, 2)
    opened(p)
    inside = probes(p)
    opened(inside.pending)
    b.part("port", p)
    b.assume(implies(p.burst_valid & ~p.burst_null, (p.burst_beats != 0) & (p.burst_beats <= c.burst_beats)))
    b.assume(implies(b.past(p.halt, "halted"), p.halt))
    # Beats: the first is taken with its burst, the others before another burst is.
    beats, left = Signal.like(p.burst_beats, name="beats"), Signal.like(p.burst_beats, name="beats_left")
    takes = p.beat_valid & p.beat_ready
    begins = p.burst_valid & p.burst_ready & ~p.burst_null
    idle = p.halt & (~p.w.valid | p.w.ready) & (left != 0)  # a beat that writes nothing
    b.m.d.comb += beats.eq(Mux(begins, p.burst_beats, left))
    b.m.d.sync += left.eq(beats - (takes | idle))
    b.check(
        "beats",
        implies(takes, beats != 0) & implies(begins, takes & (left == 0)),
        "STORE: a burst takes as many beats as it has, before the next one; they go to W as they are, "
        "those after a halt without strobes",
        Cut("port.left"),
    )
    b.check("beats", implies(p.burst_valid & p.burst_ready & p.burst_null, left == 0))
    for name, port, value in (("data", p.w.data, p.beat_data), ("strobe", p.w.strb, p.beat_strobe)):
        b.check("beats", implies(b.past(takes, f"took_{name}"), p.w.valid & (port == b.past(value, f"was_{name}"))))
    b.check("beats", implies(b.past(takes, "took_last"), p.w.last == b.past(beats == 1, "was_last")))
    b.check("beats", implies(b.past(idle, "was_idle"), p.w.valid & (p.w.strb == 0)))
    moved = b.past(takes | idle | (p.w.valid & ~p.w.ready), "moved")
    b.check("beats", implies(~moved, ~p.w.valid))
    began = b.past(begins, "began")
    b.check(
        "bursts",
        implies(began, p.aw.valid & (p.aw.addr == b.past(p.burst_address, "was_address"))),
        "STORE: bursts go to AW as they are",
        Cut("port.aw__addr"),
    )
    b.check("bursts", implies(began, p.aw.len == b.past(p.burst_beats - 1, "was_len")[:8]))
    b.check("bursts", implies(~began & ~b.past(p.aw.valid & ~p.aw.ready, "waits"), ~p.aw.valid))

    # One of the bursts or SYNCs: how many of those before are open, or it, if it is not a SYNC.
    pushes = p.burst_valid & p.burst_ready
    begin, begun = followed(b, pushes, p.burst_tag)
    answered = p.b.valid & p.b.ready
    open_, ahead = Signal(8, name="open"), Signal(8, name="ahead")
    ends, null, gone = Signal(name="ends"), Signal(name="null"), Signal(name="gone")
    b.m.d.sync += open_.eq(open_ + begins - answered)
    b.assume(implies(p.b.valid, open_ != 0))
    with b.m.If(begin):
        b.m.d.sync += [ahead.eq(open_ - answered), ends.eq(p.burst_last), null.eq(p.burst_null)]
    with b.m.Elif(answered & (ahead != 0)):
        b.m.d.sync += ahead.eq(ahead - 1)
    its = answered & begun & ~gone & ~null & (ahead == 0)  # its response
    gives = p.give & (turn(p.give_tag) == Turn.IT)
    with b.m.If(its | (inside.pending.o_valid & inside.pending.o_ready & (turn(p.give_tag) == Turn.IT))):
        b.m.d.sync += gone.eq(1)
    good = its & ends & ~p.b.resp[1] & ~p.halt
    b.check(
        "complete",
        implies(gives, begun & ~gone & (ahead == 0)),
        "STORE: an instruction is complete with the response to its last burst, a SYNC when all before it"
        " are, once and in order",
        Cut("port.pending.o_ready"),
    )
    b.check("complete", implies(begun & ~null, gives == good))
    b.check("complete", implies(p.give & (turn(p.give_tag) == Turn.LATER), gone))
    b.check("complete", implies(p.give & (turn(p.give_tag) == Turn.EARLIER), ~gone))
    b.check(
        "error",
        p.error == (answered & p.b.resp[1]),
        "STORE: an error is that of the burst that the response is for",
        Cut("port.error"),
    )
    b.check("error", implies(its & p.b.resp[1], p.error & (turn(p.error_tag) == Turn.IT)))

    b.invariant((left == inside.left) & (p.in_burst == (left != 0)) & implies(gone, begun))
    entries = contents(b, inside.pending, "pending")
    burst = [there & ~entry[1] for there, entry in entries]
    b.invariant(sum(burst, C(0)) == open_)
    here = [there & (turn(entry[2:4]) == Turn.IT) for there, entry in entries]
    b.invariant(sum(here, C(0)) == (begun & ~gone))
    for n, (there, entry) in enumerate(entries):
        before = sum(burst[:n], C(0))
        b.invariant(implies(here[n], (entry[0] == ends) & (entry[1] == null) & (ahead == before)))
        b.invariant(implies(there & (turn(entry[2:4]) == Turn.EARLIER), ~gone) & implies(there, turn(entry[2:4]) != 3))
        b.invariant(implies(there & (turn(entry[2:4]) == Turn.LATER), begun))
        for later, behind in entries[n + 1 :]:
            b.invariant(implies(later, turn(entry[2:4]) <= turn(behind[2:4])))
    return b
