"""First-in first-out queues, in distributed RAM and in block RAM."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Shape, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.hw.parts.probes import declare_probes


def _ports(width: int, depth: int) -> dict[str, wiring.Member]:
    return {
        "i_valid": In(1),
        "i_ready": Out(1),
        "i_payload": In(width),
        "o_valid": Out(1),
        "o_ready": In(1),
        "o_payload": Out(width),
        "level": Out(range(depth + 1)),
    }


class Queue(wiring.Component):
    """First-word-fall-through queue. An entry pushed in cycle t is at the output in cycle t+1.

    Latency: 1 cycle. `i_ready` depends on the level only, so a full queue takes no entry while one is popped.

    Parameters:
        width: bits of an entry.
        depth: entries.

    Ports:
        i_valid, i_payload, i_ready: input stream.
        o_valid, o_payload, o_ready: output stream.
        level: number of entries in the queue.

    Probes:
        store: the memory.  head, tail: addresses of the oldest entry and of the next one to be written.
        full, held: the queue has no room; it has an entry.
    """

    def __init__(self, width: int, depth: int) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth!r}")
        self.width, self.depth, self.optional = width, depth, {"level"}
        super().__init__(_ports(width, depth))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.store = store = Memory(shape=Shape(self.width), depth=max(2, self.depth), init=[])
        write = store.write_port()
        read = store.read_port(domain="comb")
        head = Signal(range(max(2, self.depth)))
        tail = Signal.like(head)
        push, pop = Signal(), Signal()
        # Whether there is room and whether there is an entry must be known early in the cycle, so both have registers.
        full, held = Signal(), Signal()
        m.d.comb += [
            self.i_ready.eq(~full),
            self.o_valid.eq(held),
            push.eq(self.i_valid & self.i_ready),
            pop.eq(self.o_valid & self.o_ready),
            # The slot at the tail is written whenever there is room; moving the tail is what keeps the entry.
            write.en.eq(self.i_ready),
            write.addr.eq(tail),
            write.data.eq(self.i_payload),
            read.addr.eq(head),
            self.o_payload.eq(read.data),
        ]
        with m.If(push):
            m.d.sync += tail.eq(tail + 1)
            with m.If(tail == self.depth - 1):
                m.d.sync += tail.eq(0)
        with m.If(pop):
            m.d.sync += head.eq(head + 1)
            with m.If(head == self.depth - 1):
                m.d.sync += head.eq(0)
        with m.If(push & ~pop):
            m.d.sync += [self.level.eq(self.level + 1), held.eq(1), full.eq(self.level == self.depth - 1)]
        with m.If(pop & ~push):
            m.d.sync += [self.level.eq(self.level - 1), held.eq(self.level != 1), full.eq(0)]
        declare_probes(self, store=store, head=head, tail=tail, full=full, held=held)
        return m


class BlockQueue(wiring.Component):
    """A queue in block RAM, whose reads take a cycle. Parameters, ports, probes and timing are those of `Queue`.

    What will be the oldest entry is read in the cycle before. An entry that becomes the oldest with its push is not in
    the RAM by then and comes from a register.
    """

    def __init__(self, width: int, depth: int) -> None:
        if depth < 2:
            raise ValueError(f"depth must be at least 2, not {depth!r}")
        self.width, self.depth, self.optional = width, depth, {"level"}
        super().__init__(_ports(width, depth))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.store = store = Memory(shape=Shape(self.width), depth=self.depth, init=[])
        write, read = store.write_port(), store.read_port()
        head, next_head, tail = (Signal(range(self.depth), name=name) for name in ("head", "next_head", "tail"))
        push, pop, full, held = Signal(), Signal(), Signal(), Signal()
        fresh, newest = Signal(), Signal(self.width, reset_less=True)  # the oldest entry was pushed in the cycle before
        m.d.comb += [
            self.i_ready.eq(~full),
            self.o_valid.eq(held),
            push.eq(self.i_valid & self.i_ready),
            pop.eq(self.o_valid & self.o_ready),
            write.en.eq(self.i_ready),  # moving the tail is what keeps the entry
            write.addr.eq(tail),
            write.data.eq(self.i_payload),
            next_head.eq(Mux(pop, Mux(head == self.depth - 1, 0, head + 1), head)),
            read.addr.eq(next_head),
            self.o_payload.eq(Mux(fresh, newest, read.data)),
        ]
        m.d.sync += [head.eq(next_head), newest.eq(self.i_payload), fresh.eq(push & (next_head == tail))]
        with m.If(push):
            m.d.sync += tail.eq(Mux(tail == self.depth - 1, 0, tail + 1))
        with m.If(push & ~pop):
            m.d.sync += [self.level.eq(self.level + 1), held.eq(1), full.eq(self.level == self.depth - 1)]
        with m.If(pop & ~push):
            m.d.sync += [self.level.eq(self.level - 1), held.eq(self.level != 1), full.eq(0)]
        declare_probes(self, store=store, head=head, tail=tail, full=full, held=held)
        return m


class HeadQueue(wiring.Component):
    """A queue in block RAM whose oldest entry is in a register. Parameters and ports are those of `Queue`, with a depth
    of at least 2; an entry popped in cycle t makes room (`level`, `i_ready`) in cycle t+2.

    Latency: QUEUE_CYCLES: the entry is written, read, and goes to the register. One entry per cycle.

    Further ports:
        o_load, o_next: with `o_load` the head becomes `o_next` at the end of this cycle, so that users can register
            values derived from the new head.
        filled: there is an entry, at the output or on its way.

    Probes:
        store, read: the memory, and the word at its output.  following, tail: addresses of the next reads and writes.
        behind, some, more: number of entries in the memory; whether it has one; whether it has more than one.
        shown: the word at the output of the memory is an entry.
        popped: an entry left in the cycle before.  full: the queue has no room.
    """

    def __init__(self, width: int, depth: int) -> None:
        if depth < 2:
            raise ValueError(f"depth must be at least 2, not {depth!r}")
        self.width, self.depth, self.optional = width, depth, {"level", "o_load", "o_next", "filled"}
        super().__init__({**_ports(width, depth), "o_load": Out(1), "o_next": Out(width), "filled": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = (self.depth - 1).bit_length()
        store = Memory(shape=Shape(self.width), depth=1 << bits, init=[], attrs={"ram_style": "block"})
        m.submodules.store = store
        write, read = store.write_port(), store.read_port()
        following, tail = Signal(bits), Signal(bits)  # the entry that is read next, in front of the one that is shown
        push, pop, popped, takes, leaves = Signal(), Signal(), Signal(), Signal(), Signal()
        # Entries in the RAM: how many, whether there is one, whether there are more; the RAM shows the oldest.
        behind, some, more, shown = Signal(range(self.depth + 1)), Signal(), Signal(), Signal()
        full, reads, shows = Signal(), Signal(), Signal()
        m.d.comb += [
            self.i_ready.eq(~full),
            push.eq(self.i_valid & self.i_ready),
            pop.eq(self.o_valid & self.o_ready),
            takes.eq(~self.o_valid | pop),
            leaves.eq(takes & shown),
            write.en.eq(self.i_ready),  # moving the tail is what keeps the entry
            write.addr.eq(tail),
            write.data.eq(self.i_payload),
            # The RAM holds what it shows, so that no address depends on what leaves in this cycle.
            reads.eq(takes | ~shown),
            shows.eq(Mux(leaves, more, some)),
            read.en.eq(reads),
            read.addr.eq(following),
            self.o_load.eq(takes),
            self.o_next.eq(read.data),
            self.filled.eq(self.o_valid | some),
        ]
        with m.If(reads):
            m.d.sync += [shown.eq(shows), following.eq(following + shows)]
        with m.If(takes):
            m.d.sync += [self.o_valid.eq(shown), self.o_payload.eq(self.o_next)]
        with m.If(push):
            m.d.sync += tail.eq(tail + 1)
        with m.If(push & ~leaves):
            m.d.sync += [behind.eq(behind + 1), some.eq(1), more.eq(some)]
        with m.If(leaves & ~push):
            m.d.sync += [behind.eq(behind - 1), some.eq(more), more.eq(behind > 2)]
        m.d.sync += [popped.eq(pop), self.level.eq(self.level + push - popped)]
        with m.If(push & ~popped):
            m.d.sync += full.eq(self.level == self.depth - 1)
        with m.If(popped & ~push):
            m.d.sync += full.eq(0)
        declare_probes(self, store=store, read=read.data, following=following, tail=tail, popped=popped, full=full)
        declare_probes(self, behind=behind, some=some, more=more, shown=shown)
        return m
