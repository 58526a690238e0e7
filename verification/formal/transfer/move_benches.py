"""Benches of what LOAD and STORE have in common: the way from a box to bursts. What benches of both need."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Array, C, Cat, Mux, Signal, Value

from tilewright.hw.parts.buffer import Buffer
from tilewright.hw.parts.probes import probes
from tilewright.hw.table import field, is_instruction
from tilewright.hw.transfer.bursts import BurstWalker, run_bits
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Memory
from verification.formal.bench import Bench, contents, implies, opened, registers
from verification.formal.engine import Cut
from verification.formal.machines import SMALL

#: Buses of one row of ACT and of two; the least of everything else.
MOVES = SMALL.with_(name="formal_moves", acc_rows=16, axi_address_bits=20)
MOVES_NARROW = MOVES.with_(name="formal_moves_narrow", block_in=8)
MOVES_CODED = MOVES.with_(name="formal_coded", weight_codes=8)
MOVES_PACKED = MOVES.with_(name="formal_packed", packed_weights=1)
MOVES_WIDE = MOVES.with_(name="formal_moves_64", axi_data_bits=64)


class Turn(enum.IntEnum):
    """Position of an instruction relative to the one that is followed: before it, itself, after it."""

    EARLIER = 0
    IT = 1
    LATER = 2


def turn(pc: Value) -> Value:
    """Returns the turn of an instruction, which benches have in the low bits of `pc`."""
    return pc[:2]


def followed(b: Bench, taken: Value, pc: Value) -> tuple[Value, Signal]:
    """Follows one of the instructions that are taken, whichever the solver likes. Returns that it is taken now, and
    that it was."""
    begun = Signal(name="begun")
    begin = taken & ~begun & b.free(1, "follow")
    b.m.d.sync += begun.eq(begun | begin)
    b.assume(implies(taken, turn(pc) == Mux(begin, Turn.IT, Mux(begun, Turn.LATER, Turn.EARLIER))))
    return begin, begun


class Lines:
    """The lines of a box, by counters.

    Attributes:
        y, z: of the present line.
        last: it is the last of the box.
    """

    def __init__(self, b: Bench, name: str, *, begin: Value, step: Value, ys: Value, zs: Value) -> None:
        self.b, self.name, self.begin, self.step = b, name, begin, step
        self.y, self.z = Signal(18, name=f"{name}_y"), Signal(16, name=f"{name}_z")
        self.ends_plane = self.y + 1 == ys
        self.last = self.ends_plane & (self.z + 1 == zs)
        with b.m.If(begin):
            b.m.d.sync += [self.y.eq(0), self.z.eq(0)]
        with b.m.Elif(step):
            b.m.d.sync += [self.y.eq(Mux(self.ends_plane, 0, self.y + 1)), self.z.eq(self.z + self.ends_plane)]

    def offset(
        self, name: str, base: Value, stride0: Value, stride1: Value, moves0: Value | int = 1
    ) -> tuple[Value, Value]:
        """`base` plus the sum of index * stride over both levels, and over the outer one alone, with the bits of
        `base`; `moves0`: the line counts in y."""
        b = self.b
        inner, outer = (Signal(len(base), name=f"{self.name}_{name}{k}") for k in range(2))
        with b.m.If(self.begin):
            b.m.d.sync += [inner.eq(0), outer.eq(0)]
        with b.m.Elif(self.step):
            b.m.d.sync += inner.eq(Mux(self.ends_plane, 0, inner + Mux(moves0, stride0, 0)))
            b.m.d.sync += outer.eq(outer + Mux(self.ends_plane, stride1, 0))
        plane = (base + outer)[: len(base)]
        return (plane + inner)[: len(base)], plane


def per_memory(target: Value, values: list[Value | int]) -> Value:
    """Selects the list's value for a scratchpad."""
    return Array(Value.cast(v) for v in values)[target]


def dims(b: Bench, control: Any, name: str) -> list[dict[str, Signal]]:
    """Registers of LOAD_DIM or STORE_DIM, by level and field."""
    made = [{n: Signal.like(field(control.word, name, n), name=f"{n}{k}", init=n == "count")
             for n in ("count", "row_stride", "mem_stride")} for k in range(2)]  # fmt: skip
    for k, registers_ in enumerate(made):
        level = field(control.word, name, "level") == k
        with b.m.If(control.configure.any() & is_instruction(control.word, name) & level):
            b.m.d.sync += [register.eq(field(control.word, name, n)) for n, register in registers_.items()]
    return made


def assume_readiness(b: Bench, walker: Any) -> None:
    """Assumes `walker_runs` for the readiness of a walker that was cut out."""
    first = ~b.past(C(1), "begun")
    b.assume(implies(first | b.past(walker.ready_next | (walker.ready & ~walker.start), "was_ready"), walker.ready))


def check_region(b: Bench, part: Any, engine: str, number: Value) -> None:
    """The walker has the region that the instruction names, as it is at its start, as long as it has a box."""
    w, names = part.walker, ("base", "size", "allowed")
    kept = {n: Signal.like(getattr(w, n), name=f"kept_{n}") for n in names}
    with b.m.If(w.start):
        b.m.d.sync += [kept[n].eq(getattr(part.region, n)) for n in names]
    same = Cat(getattr(w, n) == kept[n] for n in names).all()
    b.check(
        "region",
        implies(part.control.start, part.region.number == number) & implies(~w.ready, same),
        f"{engine}: the region is the one that the instruction names, as it is at its start",
        Cut(f"{engine.lower()}.kept_region__base"),
    )
    b.invariant(implies(~w.ready, same))


def _walker(b: Bench, c: NpuConfig, tag_bits: int) -> BurstWalker:
    """Adds a walker with arbitrary boxes, whose region changes at most when a box comes."""
    w = BurstWalker(c, tag_bits, run_bits(max(t.row_bytes(c) for t in Memory)))
    opened(w)
    opened(probes(w).out)
    region = {n: Signal.like(getattr(w, n), name=f"region_{n}") for n in ("base", "size", "allowed")}
    b.part("walker", w, **region)
    with b.m.If(w.ready):
        b.m.d.sync += [register.eq(b.free(len(register), f"next_{n}")) for n, register in region.items()]
    b.assume(implies(w.start, w.ready & (w.count0 != 0) & (w.count1 != 0) & (w.null | (w.bytes != 0))))
    b.assume(implies(w.halt, ~w.o_ready))  # as the ports of the bus do
    b.assume((region["base"] & (c.bus_bytes - 1)) == 0)
    return w


def walker_runs(only: str | None, c: NpuConfig = MOVES) -> Bench:
    """Boxes to runs: the first stage."""
    b = Bench(only)
    w = _walker(b, c, 2)
    box = probes(w).box
    begin, begun = followed(b, w.start, w.tag)
    names = ("offset", "bytes", "count0", "count1", "mem_stride0", "mem_stride1", "null")
    op = SimpleNamespace(**{n: Signal.like(getattr(w, n), name=f"op_{n}") for n in names})
    with b.m.If(begin):
        b.m.d.sync += [getattr(op, n).eq(getattr(w, n)) for n in names]
    done = Signal(name="done")
    mine = box.take & (turn(box.tag) == Turn.IT)
    lines = Lines(b, "line", begin=begin, step=mine, ys=op.count0, zs=op.count1)
    now, plane = lines.offset("offset", op.offset, op.mem_stride0, op.mem_stride1)
    last = op.null | lines.last
    with b.m.If(mine):
        b.m.d.sync += done.eq(last)
    right = (box.bytes == op.bytes) & (box.now == now) & (box.end == now + op.bytes)
    b.check(
        "runs",
        implies(mine, begun & ~done & (box.null == op.null) & (op.null | right)),
        "LOAD, STORE: run y of plane z of a box is `bytes` bytes, offset + z * mem_stride1 + y * mem_stride0 on",
        Cut("walker.following"),
    )
    b.check(
        "once",
        implies(mine, box.last == last),
        "LOAD, STORE: the runs of a box come in order, each once, the last is marked; boxes come in order",
        Cut("walker.same_plane"),
    )
    b.check("once", implies(box.take & (turn(box.tag) == Turn.LATER), done))
    b.check("once", implies(box.take & (turn(box.tag) == Turn.EARLIER), ~begun))
    b.check("once", implies(begun & w.ready, done))
    was = b.past(w.ready_next | (w.ready & ~w.start), "was_ready")
    b.check(
        "ready",
        implies(was, w.ready),
        "LOAD, STORE: the walker says a cycle ahead when it takes a box, and is ready until there is one",
        Cut("walker.ready_next"),
    )

    busy = begun & ~done
    it = Mux(busy, Turn.IT, Mux(done, Turn.LATER, Turn.EARLIER))
    b.invariant(implies(done, begun) & implies(box.valid, turn(box.tag) == it) & implies(busy, box.valid))
    walks = busy & ~op.null
    b.invariant(implies(busy, (box.null == op.null) & (op.count0 != 0) & (op.count1 != 0)))
    b.invariant(implies(busy & op.null, (lines.y == 0) & (lines.z == 0)))
    b.invariant(implies(walks, right & (box.plane == plane)))
    b.invariant(
        implies(walks, (box.stride0 == op.mem_stride0.as_unsigned()) & (box.stride1 == op.mem_stride1.as_unsigned()))
    )
    b.invariant(implies(walks, (box.left0 == op.count0 - 1 - lines.y) & (box.most0 == op.count0 - 1)))
    b.invariant(implies(walks, (box.left1 == op.count1 - 1 - lines.z) & (box.more_planes == (box.left1 != 0))))
    b.invariant(implies(walks, (box.same_plane == (box.left0 != 0)) & (lines.y < op.count0) & (lines.z < op.count1)))
    return b


def walker_bursts(only: str | None, c: NpuConfig = MOVES) -> Bench:
    """Runs to bursts: a run of the first stage is followed, through stages that the bench marks, to its bursts."""
    b = Bench(only)
    w = _walker(b, c, 1)
    i = probes(w)
    box, run, rest, out = i.box, i.run, i.rest, i.out
    bus = c.bus_bytes
    begun = Signal(name="begun")
    begin = box.take & ~begun & b.free(1, "follow")
    b.m.d.sync += begun.eq(begun | begin)

    # When the run of each place comes: of both later stages and of the bursts that wait, oldest first.
    coming = Mux(begin, Turn.IT, Mux(begun, Turn.LATER, Turn.EARLIER))
    second, third, oldest, newer = (Signal(2, name=f"turn{n}") for n in range(4))
    with b.m.If(box.take):
        b.m.d.sync += second.eq(coming)
    with b.m.If(run.take):
        b.m.d.sync += third.eq(second)
    push, pop = out.i_valid & out.i_ready, out.o_valid & out.o_ready
    with b.m.If(pop):
        b.m.d.sync += oldest.eq(newer)
    with b.m.If(push):
        with b.m.If(out.level - pop == 0):
            b.m.d.sync += oldest.eq(third)
        with b.m.Else():
            b.m.d.sync += newer.eq(third)

    # The run, and how many of its beats were handed on.
    names = ("bytes", "null", "tag")
    op = SimpleNamespace(**{n: Signal.like(getattr(box, n), name=f"op_{n}") for n in names})
    first, last, inside = Signal(c.axi_address_bits + 1, name="first"), Signal(name="last_run"), Signal(name="inside")
    given, beats = Signal(len(run.beats), name="given_beats"), Signal(len(run.beats), name="beats_of_run")
    with b.m.If(begin):
        b.m.d.sync += [getattr(op, n).eq(getattr(box, n)) for n in names]
        b.m.d.sync += [first.eq(w.base + box.now), last.eq(box.last)]
        b.m.d.sync += inside.eq(box.null | (w.allowed & (box.now + box.bytes <= w.size)))
    low = (bus - 1).bit_length()
    b.m.d.comb += beats.eq((first[:low] + op.bytes + (bus - 1)) >> low)
    done = Signal(name="done")
    hands = w.o_valid & w.o_ready
    mine = hands & (oldest == Turn.IT)
    ends = op.null | (given + w.o_beats == beats)
    with b.m.If(mine):
        b.m.d.sync += [given.eq(given + w.o_beats), done.eq(ends)]
    place = (first[low:] + given)[: c.axi_address_bits - low]
    b.check(
        "cover",
        implies(mine, begun & ~done & inside & (w.o_null == op.null) & (w.o_tag == op.tag)),
        "LOAD, STORE: the bursts of a run that lies in its region cover the beats that hold its bytes, in"
        " order, each once, from the region's base on",
        Cut("walker.beats3"),
    )
    b.check("cover", implies(mine & ~op.null, (w.o_address >> low == place) & (w.o_address[:low] == 0)))
    b.check("cover", implies(mine & ~op.null, (w.o_beats != 0) & (given + w.o_beats <= beats)))
    b.check(
        "once",
        implies(hands & (oldest == Turn.LATER), done) & implies(hands & (oldest == Turn.EARLIER), given == 0),
        "LOAD, STORE: all bursts of a run come, before those of the next; the last of a box is marked; a "
        "SYNC is one item",
        Cut("walker.last3"),
    )
    b.check("once", implies(mine, w.o_last == (last & ends)) & implies(begun & ~w.busy, done))
    b.check(
        "refused",
        implies(w.failed & (second == Turn.IT), ~done & ~inside & (given == 0)),
        "LOAD, STORE: a run is refused only if it leaves its region, when all bursts before it are taken;"
        " the error has its first byte and its instruction",
        Cut("walker.inside2"),
    )
    b.check("refused", implies(w.failed & (second == Turn.IT), (w.error_address == first) & (w.error_tag == op.tag)))

    # Where the beats of the run are; those of other runs are before or behind.
    e = contents(b, out, "out")
    turns = [(e[0][0], oldest), (e[1][0], newer), (rest.valid, third), (run.valid, second)]
    for n, (there, at) in enumerate(turns):
        b.invariant(implies(there & (at == Turn.EARLIER), (given == 0) & ~done) & implies(there, at <= Turn.LATER))
        b.invariant(implies(there & ~begun, at == Turn.EARLIER))
        for later, behind in turns[n + 1 :]:
            b.invariant(implies(there & later, at <= behind))
    at2, at3 = run.valid & (second == Turn.IT), rest.valid & (third == Turn.IT)
    waiting: Value = C(0)
    for n, (there, entry) in enumerate(e):
        entry_turn = (oldest, newer)[n]
        entry_beats, entry_last, entry_null = entry[: w.beat_bits], entry[w.beat_bits], entry[w.beat_bits + 1]
        entry_tag, address = entry[w.beat_bits + 2], entry[w.beat_bits + 3 :]
        it = there & (entry_turn == Turn.IT)
        reached = given + waiting + entry_beats
        b.invariant(implies(it, (entry_null == op.null) & (entry_tag == op.tag) & begun & ~done & inside & ~at2))
        b.invariant(implies(it & ~op.null, (address == (first[low:] + given + waiting)[: len(address)])))
        b.invariant(implies(it & ~op.null, (entry_beats != 0) & (reached <= beats)))
        b.invariant(implies(it, entry_last == (last & (op.null | (reached == beats)))))
        waiting = waiting + Mux(it, entry_beats, 0)
    some = Cat(there & ((oldest, newer)[n] == Turn.IT) for n, (there, _) in enumerate(e)).any()
    sent = given + waiting
    b.invariant(implies(begun & ~done, at2 | at3 | some) & implies(done, begun & ~at2 & ~at3 & ~some))
    b.invariant(implies(~begun, ~at2 & ~at3 & ~some & (given == 0)) & ~(at2 & at3) & implies(at2, given == 0))
    b.invariant(implies(begun & ~done & ~op.null & ~at2 & ~at3, sent == beats) & implies(at3, inside))
    both = e[1][0] & (oldest == Turn.IT) & (newer == Turn.IT)
    b.invariant(implies(op.null & some, ~at3 & ~both) & implies(begun & ~op.null, beats != 0))
    b.invariant(implies(at3 & ~op.null, (rest.address == (first[low:] + sent)[: len(rest.address)])))
    b.invariant(implies(at3 & ~op.null, (rest.beats == beats - sent) & (sent < beats)))
    b.invariant(implies(at3, (rest.tag == op.tag) & (rest.null == op.null) & (rest.last == last)))
    b.invariant(implies(at2, (run.tag == op.tag) & (run.null == op.null) & (run.last == last)))
    b.invariant(implies(at2, (run.inside == inside) & (Cat(run.low, run.address, run.beyond) == first)))
    b.invariant(implies(at2 & ~op.null, run.beats == beats))
    # The burst of the third stage, once it is cut.
    reach = c.burst_beats - (rest.address & (c.burst_beats - 1))
    cut = (rest.final == (rest.beats <= reach)) & (rest.burst == Mux(rest.final, rest.beats, reach))
    b.invariant(implies(rest.valid, Mux(rest.null, rest.final & ~rest.turn, rest.turn | cut)))
    b.invariant(implies(rest.turn, rest.valid) & implies(box.valid & ~box.null, box.bytes != 0))
    b.invariant(implies(box.valid, box.end == box.now + box.bytes))
    return b


def buffer(only: str | None) -> Bench:
    """The buffer between the parts of both engines."""
    b = Bench(only)
    q = Buffer(8)
    inside = SimpleNamespace(**registers(opened(q)))
    b.part("buffer", q)
    push, pop = q.i_valid & q.i_ready, q.o_valid & q.o_ready
    oldest, newer = Signal(8, name="oldest"), Signal(8, name="newer")
    count, left = Signal(3, name="count"), Signal(3, name="left")
    b.m.d.comb += left.eq(count - pop)
    b.m.d.sync += count.eq(left + push)
    b.m.d.sync += oldest.eq(Mux(push & (left == 0), q.i_payload, Mux(pop, newer, oldest)))
    b.m.d.sync += newer.eq(Mux(push & (left == 1), q.i_payload, newer))
    b.check(
        "order",
        implies(q.o_valid, q.o_payload == oldest) & (q.o_valid == (count != 0)),
        "`Buffer`: the entry at the output is the oldest one pushed and not popped, there while there is one",
        Cut("buffer.spare"),
    )
    b.check(
        "overflow",
        (count <= 2) & (q.i_ready == (count != 2)),
        "`Buffer`: it takes entries exactly while it holds less than two",
        Cut("buffer.more"),
    )
    b.check(
        "next",
        q.o_load == (~q.o_valid | q.o_ready),
        "`Buffer`: with `o_load` the output becomes `o_next`",
        Cut("buffer.o_load"),
    )
    b.check("next", implies(b.past(q.o_load, "loaded"), q.o_payload == b.past(q.o_next, "was_next")))
    b.invariant((inside.more == (count == 2)) & implies(inside.more, inside.spare == newer))
    return b
