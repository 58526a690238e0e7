"""Benches of the queues between two clocks."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import Cat, Mux, Signal, Value

from tilewright.fpga.sdram.crossing import AsyncQueue
from verification.formal.bench import Bench, distance, implies, opened, registers, stored
from verification.formal.boards.two_clocks import clocked, synchroniser
from verification.formal.engine import Cut

#: Bits of an entry.
_WIDTH = 4
#: Edges of the reader until an entry is at the output, those of the writer until it may use room.
READER_EDGES, WRITER_EDGES = 3, 4


def _gray(value: Value) -> Value:
    return value ^ (value >> 1)


def _binary(gray: Value) -> Value:
    return Cat(gray[bit:].xor() for bit in range(len(gray)))


def crossing(only: str | None, depth: int = 4) -> Bench:
    """`AsyncQueue`, and of its entries one that the solver chooses when it is pushed."""
    b = Bench(only)
    q = AsyncQueue(_WIDTH, depth, writer="writer", reader="reader")
    part = opened(q)
    words = stored(b, part.submodules.store)
    r = registers(part, "writer") | registers(part, "reader")
    produced, consumed = r["produced"], r["consumed"]
    bits = len(produced)
    write_edge, read_edge = b.free(1, "write_edge"), b.free(1, "read_edge")
    edges = {"produced": (write_edge, read_edge), "consumed": (read_edge, write_edge)}
    becomes = {name: Signal(bits, name=f"{name}_becomes") for name in edges}
    stages = {
        name: synchroniser(b, getattr(part.submodules, f"{name}_crossing"), name, other, own, becomes[name])
        for name, (own, other) in edges.items()
    }
    push, takes = Signal(name="push"), Signal(name="takes")
    b.m.d.comb += [
        push.eq(q.i_valid & q.i_ready),
        takes.eq((~q.o_valid | q.o_ready) & (stages["produced"][1] != r["consumed_gray"])),
        *[
            becomes[name].eq(Mux(moves, _gray(r[f"{name}_after"]), r[f"{name}_gray"]))
            for name, moves in (("produced", push), ("consumed", takes))
        ],
    ]
    b.part("queue", clocked(q, part, writer=write_edge, reader=read_edge))

    # Entries pushed and popped. Those between are in the RAM, and one of them in the register at the output.
    pushed, popped = Signal(bits + 1, name="pushed"), Signal(bits + 1, name="popped")
    held, in_ram = Signal(bits + 1, name="held"), Signal(bits + 1, name="in_ram")
    pops = read_edge & q.o_valid & q.o_ready
    b.m.d.comb += [held.eq(pushed - popped), in_ram.eq(held - q.o_valid)]
    b.m.d.sync += [pushed.eq(pushed + (write_edge & push)), popped.eq(popped + pops)]
    # One of them, and how many are before it.
    marked, mark, entry = Signal(name="marked"), Signal(bits + 1, name="mark"), Signal(_WIDTH, name="entry")
    ahead = Signal(bits + 1, name="ahead")
    b.m.d.comb += ahead.eq(mark - popped)
    with b.m.If(write_edge & push & ~marked & b.free(1, "this_one")):
        b.m.d.sync += [marked.eq(1), mark.eq(pushed), entry.eq(q.i_payload)]
    with b.m.If(pops & (ahead == 0)):
        b.m.d.sync += marked.eq(0)
    b.check(
        "order",
        implies(q.o_valid & marked & (ahead == 0), q.o_payload == entry),
        "`AsyncQueue`: the entry at the output is the oldest one pushed and not popped",
        Cut("queue.produced_seen"),
    )
    b.check(
        "once",
        implies(q.o_valid, held != 0) & implies(marked, ahead < held),
        "`AsyncQueue`: an entry is at the output only if one is pushed and not popped: nothing is there twice",
        Cut("queue.produced_seen"),
    )
    b.check(
        "overflow",
        (in_ram <= depth) & implies(q.i_ready, in_ram < depth),
        "`AsyncQueue`: the RAM never has more entries than it has room for; one is taken only where the "
        "writer knows of room",
        Cut("queue.left"),
    )
    b.check("overflow", implies(q.i_ready, distance(produced, q.left) < depth))
    written = write_edge & q.i_ready & (produced[:-1] == consumed[:-1])
    b.check(
        "still",
        implies(read_edge & takes, ~written),
        "`AsyncQueue`: a word of the RAM is not written in the step in which the reader takes it",
        Cut("queue.produced_seen"),
    )
    b.check(
        "counts",
        (distance(pushed[:bits], q.left) >= in_ram) & (distance(pushed[:bits], q.left) <= depth),
        "`AsyncQueue`: `left` counts no entry that has not left the RAM; of the entries that `come` "
        "counts, the oldest that was not popped is at the output",
        Cut("queue.come"),
    )
    come = distance(q.come, popped[:bits])
    b.check("counts", (come <= held) & implies(come != 0, q.o_valid))
    for name, (own, _) in edges.items():
        gray = r[f"{name}_gray"]
        changed = gray ^ b.past(gray, f"{name}_before")
        b.check(
            "gray",
            implies(changed.any(), b.past(own, f"{name}_moved")) & ((changed & (changed - 1)) == 0),
            "`AsyncQueue`: of a pointer that the other side sees, an edge of its own clock changes at most "
            "one bit, and nothing else any",
            Cut("queue.produced_gray"),
        )
        b.invariant(gray == b.past(Mux(own, becomes[name], gray), f"{name}_became"))
        b.invariant((gray == _gray(r[name])) & (r[f"{name}_after"] == (r[name] + 1)[:bits]))

    # What one side knows of the other's pointer lies behind where it is, and every stage behind the one before.
    b.invariant((produced == pushed[:bits]) & (consumed == (popped + q.o_valid)[:bits]))
    far, near = ([_binary(stage) for stage in stages[name]] for name in edges)
    for later, earlier in pairwise([produced, *far]):
        b.invariant(distance(later, consumed) >= distance(earlier, consumed))
    for later, earlier in pairwise([consumed, *near, q.left]):
        b.invariant(distance(produced, later) <= distance(produced, earlier))
    place = words.word_select(mark[: bits - 1], _WIDTH)
    b.invariant(implies(marked & (ahead >= q.o_valid), place == entry))

    # Edges of the reader while an entry waits, edges of the writer while there is room.
    waits, shut = Signal(3, name="waits"), Signal(3, name="shut")
    waiting, shutting = (held != 0) & ~q.o_valid, (in_ram < depth) & ~q.i_ready
    with b.m.If(read_edge):
        b.m.d.sync += waits.eq(Mux(waiting, waits + 1, 0))
    with b.m.If(write_edge):
        b.m.d.sync += shut.eq(Mux(shutting, shut + 1, 0))
    b.check(
        "progress",
        implies(waiting, waits < READER_EDGES) & implies(shutting, shut < WRITER_EDGES),
        f"`AsyncQueue`: {READER_EDGES} edges of the reader after there is an entry one is at the output, "
        f"{WRITER_EDGES} edges of the writer after there is room it takes one",
        Cut("queue.o_valid"),
    )
    b.invariant(implies(held == 0, waits == 0) & implies(in_ram == depth, shut == 0))
    for n, stage in enumerate(far):
        b.invariant(implies(waiting & (waits > n), stage != consumed))
    for n, known in enumerate((*near, q.left)):
        b.invariant(implies(shutting & (shut > n), distance(produced, known) < depth))
    return b
