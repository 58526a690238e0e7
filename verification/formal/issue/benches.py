"""Benches of the way of an instruction to its engine: queues, front ends, semaphores."""

from __future__ import annotations

from functools import reduce
from types import SimpleNamespace

from amaranth.hdl import C, Cat, Mux, Signal, Value, signed

from tilewright.hw.interfaces import ENGINES
from tilewright.hw.issue.front_end import FrontEnd
from tilewright.hw.issue.semaphores import Semaphores
from tilewright.hw.parts.probes import probes
from tilewright.hw.parts.queue import BlockQueue, HeadQueue, Queue
from tilewright.hw.table import header, is_instruction
from tilewright.isa.config import SEMAPHORE_LIMIT
from tilewright.isa.fields import INSTRUCTION_BITS
from tilewright.isa.instructions import Engine
from verification.formal.bench import Bench, contents, implies, opened, stored
from verification.formal.engine import Cut
from verification.formal.machines import SMALL

#: GEMM and VECTOR have one queue.
SHARED = SMALL.with_(name="formal_shared", vector_queue=0)
_Queue = Queue | BlockQueue | HeadQueue


def _of(q: _Queue) -> str:
    """Names the kind of a queue, if it is not the usual one."""
    return f"`{type(q).__name__}`: " * (type(q) is not Queue)


def _first_in_first_out(b: Bench, q: _Queue, entries: list[tuple[Value, Value]], output: str, *, late: bool) -> None:
    """States that a queue equals a list that shifts when its oldest entry leaves.

    Args:
        entries: (held, entry) of the queue, oldest first.
        output: the net that its output comes from.
        late: an entry that leaves makes room one cycle later.
    """
    push, pop = q.i_valid & q.i_ready, q.o_valid & q.o_ready
    model = [Signal(q.width, name=f"model{n}") for n in range(q.depth)]
    count = Signal(range(2 * q.depth + 2), name="count")
    left = Signal.like(count, name="left")
    b.m.d.comb += left.eq(count - pop)
    b.m.d.sync += count.eq(left + push)
    for n, entry in enumerate(model):
        following = model[n + 1] if n + 1 < q.depth else entry
        b.m.d.sync += entry.eq(Mux(push & (left == n), q.i_payload, Mux(pop, following, entry)))
    taking = count + b.past(pop, "popped") if late else count
    b.check(
        "order",
        implies(q.o_valid, q.o_payload == model[0]),
        f"{_of(q)}the entry at the output is the oldest one pushed and not popped",
        Cut(output),
    )
    b.check(
        "conservation",
        (q.level == taking) & implies(q.o_valid, count != 0),
        f"{_of(q)}`level` counts pushes minus pops{', which count one cycle later' * late}: nothing is lost or there "
        "twice",
        Cut("queue.level"),
    )
    b.check(
        "overflow",
        (taking <= q.depth) & (q.i_ready == (taking != q.depth)),
        f"{_of(q)}never more than `depth` entries; it takes entries exactly while there is room",
        Cut("queue.i_ready"),
    )
    for n, ((there, entry), expected) in enumerate(zip(entries, model, strict=True)):
        b.invariant((there == (count > n)) & implies(there, entry == expected))


def _in_ram(only: str | None, q: Queue | BlockQueue, output: str) -> Bench:
    """A queue whose entries are all in its RAM."""
    b = Bench(only)
    opened(q)
    b.part("queue", q)
    entries = contents(b, q, "queue")
    b.invariant(implies(probes(q).held, q.o_payload == entries[0][1]))
    _first_in_first_out(b, q, entries, output, late=False)
    statement = f"{_of(q)}an entry is at the output exactly while there is one"
    b.check("progress", q.o_valid == (q.level != 0), statement, Cut("queue.o_valid"))
    return b


def queue(only: str | None) -> Bench:
    """Queue of 3 entries (a depth that is no power of two)."""
    return _in_ram(only, Queue(8, 3), "queue.o_payload")


def block_queue(only: str | None) -> Bench:
    """Queue of 3 entries whose reads take a cycle."""
    return _in_ram(only, BlockQueue(8, 3), "queue.next_head")


def head_queue(only: str | None) -> Bench:
    """Instruction queue of 3 entries: in the register, at the output of the RAM, in the RAM."""
    b = Bench(only)
    q = HeadQueue(8, 3)
    opened(q)
    b.part("queue", q)
    i = probes(q)
    ram, words = stored(b, i.store), []
    for n in range(q.depth):
        place = Signal.like(i.following, name=f"place{n}")  # goes round the end of the RAM
        b.m.d.comb += place.eq(i.following + n)
        words.append(ram.word_select(place, q.width))
    count = Signal(range(q.depth + 2), name="held")
    b.m.d.comb += count.eq(q.o_valid + i.behind)
    b.invariant((i.behind <= q.depth) & (q.level == count + i.popped) & (q.level <= q.depth))
    b.invariant((i.some == (i.behind != 0)) & (i.more == (i.behind > 1)) & implies(i.shown, i.some))
    b.invariant((i.full == (q.level == q.depth)) & (i.popped == b.past(q.o_valid & q.o_ready, "left")))
    b.invariant(i.tail == (i.following + i.behind - i.shown)[: len(i.tail)])
    order = [q.o_payload, i.read, *words]  # of those that hold an entry, the first is the oldest
    entries: list[tuple[Value, Value]] = []
    for n in range(q.depth):
        without_head = Mux(i.shown, Cat(order[1:]), Cat(order[2:]))
        with_head = Cat(q.o_payload, without_head)
        chosen = Mux(q.o_valid, with_head, without_head).word_select(n, q.width)
        entries.append((count > n, chosen))
    _first_in_first_out(b, q, entries, "queue.o_next", late=True)
    # One cycle to the output of the RAM, one to the register.
    pop = q.o_valid & q.o_ready
    one = b.past((count != 0) & ~pop, "one_cycle")
    two = b.past(one & ~pop, "two_cycles")
    b.invariant(implies(one, q.o_valid | i.shown))
    b.check(
        "progress",
        implies(two, q.o_valid) & (q.filled == (count != 0)),
        "`HeadQueue`: two cycles after there is an entry, none popped since, one is at the output",
        Cut("queue.o_load"),
    )
    return b


def front_end(only: str | None) -> Bench:
    """The front end of an engine that shares its queue, behind a queue that holds legal instructions, before an engine
    and semaphores that do as they like."""
    b = Bench(only)
    f = FrontEnd(SHARED, Engine.GEMM)
    opened(f)
    word, loads, following = (Signal.like(x) for x in (f.entry_word, f.entry_load, f.entry_next))
    valid = Signal(name="valid")
    b.part(
        "front",
        f,
        entry_valid=valid,
        entry_load=loads,
        entry_marks=f.marks(word),
        entry_word=word,
        entry_next=following,
    )
    engine, asks = f.engine, f.semaphores
    b.m.d.comb += following.eq(b.free(INSTRUCTION_BITS, "next_word"))
    # The head of `HeadQueue`: it goes on when it is taken, by this engine or by the other one of the queue.
    other = b.free(1, "other")
    run, mine = ~f.marks(word)[1], f.entry_valid & f.marks(word)[0]
    b.m.d.comb += loads.eq(~f.entry_valid | f.entry_ready | (other & ~mine))
    with b.m.If(loads):
        b.m.d.sync += [word.eq(following), valid.eq(b.free(1, "next_valid"))]
    n = SHARED.semaphores
    wait0, wait1 = header(word, "wait0"), header(word, "wait1")
    b.assume((header(following, "wait0") <= n) & (header(following, "wait1") <= n))
    b.assume(implies(asks.grant, asks.want))
    b.assume(~f.halt)
    has = Signal(name="has")  # the head was granted what it waits for
    b.m.d.sync += has.eq((has | asks.grant) & ~engine.start)
    b.check(
        "once",
        f.entry_ready == (engine.start | engine.configure.any()),
        "`FrontEnd`: every instruction of its engine, and no other, leaves the queue exactly when it "
        "starts or configures, each of them once and as what it is",
        Cut("front.entry_ready"),
    )
    b.check("once", implies(f.entry_ready, mine) & implies(engine.start, run & ~engine.configure.any()))
    for k, name in enumerate(f.configuring):
        b.check("once", engine.configure[k] == (mine & is_instruction(word, name)))
    b.check(
        "semaphores",
        implies(engine.start, has) & implies(asks.want, ~has & mine & run),
        "`FrontEnd`: an instruction starts after one grant of the semaphores it names, and asks for no others",
        Cut("front.pops"),
    )
    b.check("semaphores", implies(asks.want | has, (asks.wait0 == 1 << wait0) & (asks.wait1 == 1 << wait1)))
    b.check(
        "progress",
        implies(mine & ~run, f.entry_ready),
        "`FrontEnd`: an instruction that configures goes at once, one with its semaphores in the first "
        "cycle in which the engine is ready, and one without asks in every cycle",
        Cut("front.held"),
    )
    b.check("progress", implies(mine & run, Mux(has, engine.start == engine.ready, asks.want)))
    was = b.past(mine, "was_mine")
    b.check(
        "word_before",
        implies(engine.start, was & (word == b.past(word, "last_word"))),
        "`FrontEnd`: the word of an instruction is there in the cycle before its start",
        Cut("front.held"),
    )
    b.invariant((probes(f).held == has) & implies(has, mine & run & was))
    b.invariant(implies(f.entry_valid, (asks.wait0 == 1 << wait0) & (asks.wait1 == 1 << wait1)))
    b.invariant((wait0 <= n) & (wait1 <= n))
    return b


def semaphores(only: str | None) -> Bench:
    """Two semaphores, four engines; an overflow stops the machine, so what follows it is left out."""
    b = Bench(only)
    n = 2
    s = Semaphores(SimpleNamespace(semaphores=n, offset_bits=32))  # type: ignore[arg-type]
    opened(s)
    b.part("semaphores", s)
    inside = probes(s)
    granted: dict[Engine, Signal] = {}  # in the cycle before
    asks, retired = dict(zip(ENGINES, s.takes)), dict(zip(ENGINES, s.gives))
    for e in ENGINES:
        x, y = retired[e].signal0, retired[e].signal1
        b.assume((x <= n) & (y <= n) & ((x == 0) | (x != y)))
        x, y = asks[e].wait0, asks[e].wait1
        for mask in (x, y):
            b.assume((mask != 0) & ((mask & (mask - 1)) == 0))
        b.assume(((x & y) >> 1) == 0)
        # The waits stay in the cycle after the grant, in which the engine has what it wants.
        granted[e] = b.past(asks[e].grant, f"{e.name}_granted")
        same = (x == b.past(x, f"{e.name}_wait0")) & (y == b.past(y, f"{e.name}_wait1"))
        b.assume(implies(granted[e], same & ~asks[e].want))
    over = Signal(name="over")
    with b.m.If(s.overflow.error):
        b.m.d.sync += over.eq(1)
    live = ~over & ~s.overflow.error

    def signals(e: Engine, i: int) -> Value:
        return (retired[e].signal0 == i) | (retired[e].signal1 == i)

    def waits(e: Engine) -> Value:
        return (asks[e].wait0 | asks[e].wait1)[1:]

    # What is given counts a cycle later.
    gave: dict[Engine, list[Signal]] = {}
    for e in ENGINES:
        given = [retired[e].give & signals(e, i) for i in range(1, n + 1)]
        gave[e] = [b.past(x, f"{e.name}_gave{i}") for i, x in enumerate(given)]
        b.invariant((Cat(gave[e]) == inside.given_to[e][1:]) & (inside.granted[e] == granted[e]))
        b.invariant(inside.given[e] == b.past(retired[e].give, f"{e.name}_given"))
        b.invariant(implies(Cat(gave[e]).any(), inside.given[e]))
    exceeded: list[Value] = []
    for i in range(1, n + 1):
        balance = Signal(signed(16), name=f"balance{i}")  # gives minus takes, by counting
        after = Signal(signed(17), name=f"after{i}")
        gives = reduce(lambda a, c: a + c, [gave[e][i - 1] for e in ENGINES])
        takes = reduce(lambda a, c: a + c, [granted[e] & waits(e)[i - 1] for e in ENGINES])
        b.m.d.comb += after.eq(balance + gives - takes)
        b.m.d.sync += balance.eq(after)
        exceeded.append(after > SEMAPHORE_LIMIT)
        b.check(
            "counted",
            implies(live, balance == inside.counts[i - 1]),
            "a counter is the number of gives minus takes: each counts once, whatever the engines do in one cycle",
            Cut("semaphores.total1"),
        )
        b.check(
            "not_negative",
            implies(live, (balance >= 0) & (after >= 0)),
            "no counter goes below 0",
            Cut("semaphores.takes__0__grant"),
        )
        b.check(
            "limit",
            implies(live, balance <= SEMAPHORE_LIMIT),
            "no counter goes beyond 255 without an error",
            Cut("semaphores.beyond1", 68),
        )
    late = Signal(name="late")
    b.m.d.sync += late.eq(live & Cat(exceeded).any())
    b.check(
        "overflow",
        implies(~over, s.overflow.error == late),
        "the error is raised exactly one cycle after that in which a counter would go beyond 255",
        Cut("semaphores.beyond1"),
    )

    there = Cat(c != 0 for c in inside.counts)
    b.invariant(implies(live, inside.there == Cat(C(1, 1), there)))
    # A take that does not count yet is backed by its counter, alone.
    for i in range(n):
        taking = [granted[e] & waits(e)[i] for e in ENGINES]
        b.invariant(implies(live, reduce(lambda a, c: a + c, taking) <= there[i]))
    able = {e: asks[e].want & ((waits(e) & ~there) == 0) for e in ENGINES}
    for e in ENGINES:
        b.check(
            "grant",
            implies(live & asks[e].grant, able[e]),
            "an engine gets its two counts together, when it asks and both are there",
            Cut("semaphores.gemm_able"),
        )
        others = [(x, (able[x] & (x < e)) | granted[x]) for x in ENGINES if x != e]
        refused = Cat(first & (waits(x) & waits(e)).any() for x, first in others).any()
        b.check(
            "priority",
            implies(live & able[e], asks[e].grant != refused),
            "an engine that could have both is refused exactly when a lower one could have one of them, or "
            "another took it in the cycle before",
            Cut("semaphores.gemm_able"),
        )
    none_granted = ~Cat(granted.values()).any()
    b.check(
        "progress",
        implies(live & none_granted & Cat(able.values()).any(), Cat(a.grant for a in s.takes).any()),
        "if an engine could have both and none took any in the cycle before, one is granted",
        Cut("semaphores.gemm_able"),
    )
    return b
