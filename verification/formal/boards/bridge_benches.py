"""Benches of what else goes between the clock of the NPU and that of the SDRAM: requests of the serial bridge, and the
reset of what lies between the bus and the chip."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import Cat, Mux, Signal, Value

from tilewright.fpga.sdram.chip import SDRAM_32M
from tilewright.fpga.sdram.controller import PAIR_BYTES
from tilewright.fpga.sdram.memory import MEMORY, SdramMemory
from verification.formal.bench import Bench, implies, opened, registers
from verification.formal.boards.two_clocks import clocked, synchroniser
from verification.formal.engine import Cut
from verification.formal.machines import SMALL

_HZ = 100_000_000
#: Edges of the chip's clock until a request is offered to the controller, those of the NPU's until an answer is given.
OFFER_EDGES, ANSWER_EDGES = 3, 3
#: Edges of the chip's clock until it has done what a reset asks for, those of the NPU's until that goes on.
FAR_EDGES, NEAR_EDGES = 4, 7


class _Memory:
    """`SdramMemory` without its controller, its queues and what asks for segments: what is between the clocks.

    Attributes:
        memory: it.  module: its inside.
        near, far: whether the clock of the NPU has an edge in this step, and that of the chip.
        here, there: its registers on either side.
        takes: the controller takes a request of the bridge.  answers: it has done one.
    """

    def __init__(self, b: Bench) -> None:
        self.memory = memory = SdramMemory(SMALL, SDRAM_32M, _HZ)
        self.module = opened(memory)
        self.near, self.far = b.free(1, "near_edge"), b.free(1, "far_edge")
        self.here, self.there = registers(self.module), registers(self.module, MEMORY)
        b.cut(memory.controller, "controller")
        for name in ("crossing", "front"):
            b.cut(getattr(self.module.submodules, name), name)
        c = memory.controller
        self.takes = c.i_valid & c.i_ready & c.i_tag[0]
        self.answers = (c.w_take & c.w_tag[0]) | (c.r_valid & c.r_tag[0])

    def to_chip(self, b: Bench, name: str, signal: Signal, following: Value, init: int = 0) -> list[Signal]:
        """Returns the stages of the synchroniser of that name to the chip's clock."""
        return self._across(b, name, signal, self.far, self.near, following, init)

    def back(self, b: Bench, name: str, signal: Signal, following: Value) -> list[Signal]:
        """Returns the stages of the synchroniser of that name to the clock of the NPU."""
        return self._across(b, name, signal, self.near, self.far, following, 0)

    def _across(
        self, b: Bench, name: str, signal: Signal, edge: Signal, moves: Signal, following: Value, init: int
    ) -> list[Signal]:
        part = getattr(self.module.submodules, name)
        assert part.i is signal
        becomes = Signal(name=f"{name}_becomes")
        b.m.d.comb += becomes.eq(following)
        b.invariant(
            signal == b.past(Mux(moves, becomes, signal), f"{name}_became") | (init & ~b.past(1, f"{name}_run"))
        )
        return synchroniser(b, part, name, edge, moves, becomes, init)

    def add_memory(self, b: Bench) -> None:
        """Puts the memory into the bench, once all of its submodules are replaced."""
        b.part("memory", clocked(self.memory, self.module, sync=self.near, memory=self.far))


def requests(only: str | None) -> Bench:
    """The bridge asks, the controller executes and answers, whenever it likes."""
    b = Bench(only)
    s = _Memory(b)
    mem, c, near, far = s.memory.mem, s.memory.controller, s.near, s.far
    asked, busy = (s.here[f"mem_{name}"] for name in ("asked", "busy"))
    seen, answered, asking = (s.there[f"mem_{name}"] for name in ("seen", "answered", "asking"))
    taken = mem.valid & mem.ready
    on = s.to_chip(b, "bridge_asked", asked, Mux(taken, ~asked, asked))
    back = s.back(b, "bridge_answered", answered, Mux(s.answers, seen, answered))
    s.add_memory(b)

    # The request that was taken last, where it is, and the word that was read for it.
    request = Cat(mem.write, mem.address[(PAIR_BYTES - 1).bit_length() :][: len(c.i_pair)], mem.wdata, mem.strobe)
    kept, word = Signal(len(request), name="kept"), Signal(8 * PAIR_BYTES, name="word_read")
    write, pair, data, strobe = kept[0], kept[1:][: len(c.i_pair)], kept[-36:-4], kept[-4:]
    waits, given, replied = (Signal(name=name) for name in ("waits", "given", "told"))
    with b.m.If(far & s.takes):
        b.m.d.sync += [waits.eq(0), given.eq(1)]
    with b.m.If(far & s.answers):
        b.m.d.sync += [given.eq(0), replied.eq(1), word.eq(c.r_data)]
    with b.m.If(near & mem.rvalid):
        b.m.d.sync += replied.eq(0)
    with b.m.If(near & taken):
        b.m.d.sync += [waits.eq(1), replied.eq(0), kept.eq(request)]
    # `sdram_order*`: an answer for each segment, behind it.
    b.assume(implies(c.w_take & c.w_tag[0], given & write) & implies(c.r_valid & c.r_tag[0], given & ~write))

    offers = c.i_valid & c.i_tag[0]
    b.check(
        "once",
        implies(offers, waits) & implies(mem.ready, ~waits & ~given & (write | ~replied)),
        "SDRAM, serial bridge: a request that was taken is offered to the controller once; the next one "
        "is taken when it has been done, and a word that was read given",
        Cut("memory.mem_asking"),
    )
    b.check(
        "request",
        implies(offers, (c.i_write == write) & (c.i_pair == pair) & (c.i_count == 0)),
        "SDRAM, serial bridge: the controller is offered what was taken, and gets its word and the bytes to write",
        Cut("memory.data_there", 16),
    )
    b.check("request", implies(c.w_take & c.w_tag[0], (c.w_data == data) & (c.w_mask == ~strobe)))
    b.check(
        "stays",
        implies(b.past(offers & ~(far & c.i_ready), "offered"), offers),
        "SDRAM, serial bridge: a request stays until the controller takes it",
        Cut("memory.mem_asking"),
    )
    b.check(
        "answer",
        implies(mem.rvalid, replied & ~write & (mem.rdata == word)),
        "SDRAM, serial bridge: one answer to a read, with the word that the controller gave for it",
        Cut("memory.word", 16),
    )

    # What crosses without a synchroniser was there for a cycle of the other side's clock, and stays while it is taken.
    new_request, new_word = Signal(name="new_request"), Signal(name="new_word")
    b.m.d.sync += [
        new_request.eq(Mux(near & taken, 1, new_request & ~far)),
        new_word.eq(Mux(far & s.answers, 1, new_word & ~near)),
    ]
    copies = on[1] != seen
    b.check(
        "still",
        implies(far & copies, ~new_request & ~(near & taken)),
        "SDRAM, serial bridge: what crosses beside the levels that announce it was there for a cycle of "
        "the other clock, and does not change in the step in which it is taken",
        Cut("memory.mem_seen"),
    )
    b.check("still", implies(near & mem.rvalid, ~new_word & ~(far & s.answers)))

    offered, returned = Signal(3, name="offered_in"), Signal(3, name="returned_in")
    waiting, returning = waits & ~offers, replied & ~mem.rvalid & ~mem.ready
    with b.m.If(far):
        b.m.d.sync += offered.eq(Mux(waiting, offered + 1, 0))
    with b.m.If(near):
        b.m.d.sync += returned.eq(Mux(returning, returned + 1, 0))
    b.check(
        "progress",
        implies(waiting, offered < OFFER_EDGES) & implies(returning, returned < ANSWER_EDGES),
        f"SDRAM, serial bridge: {OFFER_EDGES} edges of the chip's clock after a request was taken it is offered, "
        f"{ANSWER_EDGES} edges of the NPU's after it was done it is answered or the next one may come",
        Cut("memory.mem_asking", 16),
    )

    # A request is a level that changes and goes round; there is one at most.
    change = _changes(b, [asked, *on, seen, answered, *back])
    b.invariant(implies(~busy, change == 0))
    b.invariant(waits == (change[:3].any() | asking))
    b.invariant(given == (change[3] & ~asking))
    b.invariant(implies(asking, change[3]))
    b.invariant(implies(change[4:].any() | (busy & (change == 0)), replied) & implies(replied & ~write, busy))
    b.invariant(implies(replied, ~change[:4].any()))
    b.invariant(implies(~busy, ~waits & ~given))
    fields = ("write", "pair", "data", "strobe")
    crossing, arrived = Cat(s.here[f"{name}_here"] for name in fields), Cat(s.there[f"{name}_there"] for name in fields)
    b.invariant(implies(busy, crossing == kept) & implies(asking | given, arrived == kept))
    b.invariant(implies(replied & ~write, s.there["word"] == word))
    b.invariant(implies(new_request, change[0] | change[1]) & implies(new_word, change[4] | change[5]))
    b.invariant(implies(offered != 0, waits) & implies(returned != 0, replied))
    for n in range(OFFER_EDGES):
        b.invariant(implies(waiting & (offered > n), ~change[: n + 1].any()))
    for n in range(2):
        b.invariant(implies(returning & (returned > n), ~change[4 : n + 5].any()))
    return b


def resets(only: str | None) -> Bench:
    """A reset of the bus at any time, while the bridge goes on: the controller is idle whenever it likes."""
    b = Bench(only)
    s = _Memory(b)
    memory, c, near, far = s.memory, s.memory.controller, s.near, s.far
    state, settle, asked = (s.here[name] for name in ("state", "settle", "reset_asked"))
    near_reset, is_open = (s.here[name] for name in ("near_reset", "is_open"))
    far_reset, done = (s.there[name] for name in ("far_reset", "reset_done"))
    states = SdramMemory.State
    ask, clear = Signal(name="ask"), Signal(name="clear")
    b.m.d.comb += [
        ask.eq((state == states.OPEN) & memory.bus_reset),
        clear.eq((state == states.CLEAR) & (settle == 0) & ~memory.bus_reset),
    ]
    on = s.to_chip(b, "asked", asked, Mux(ask, 1, asked & ~clear), init=1)
    back = s.back(b, "done", done, on[1] & far_reset & (c.idle | done))
    s.add_memory(b)

    # Between the clocks: nothing passes while it is shut, and it is shut from a reset on until what was under way has
    # ended.
    crossing = s.module.submodules.crossing
    b.check(
        "shut",
        implies(b.past(near & memory.bus_reset, "reset_before"), ~is_open),
        "SDRAM, reset of the bus: nothing passes from the edge that sees it on, until it opens again",
        Cut("memory.is_open"),
    )
    for name in ("ar", "aw", "w"):
        outside, inside = getattr(memory.axi, name), getattr(crossing.axi, name)
        b.check("shut", implies(~is_open, ~outside.ready & ~inside.valid))
    for name in ("r", "b"):
        outside, inside = getattr(memory.axi, name), getattr(crossing.axi, name)
        b.check("shut", implies(~is_open, ~outside.valid & ~inside.ready))
    owed = Signal(init=1, name="owed")
    b.m.d.sync += owed.eq((near & ask) | (owed & ~(far & far_reset & c.idle)))
    b.check(
        "ended",
        implies(is_open, ~owed) & implies(far_reset & c.i_valid, c.i_tag[0]),
        "SDRAM, reset of the bus: it opens when the segments that were under way have ended; while the "
        "far side is in reset it asks for none",
        Cut("memory.reset_done", 16),
    )

    # How often the pointers of either side went back to their start, modulo 2, and what the other side's synchronisers
    # have of it: a pointer that was caught while it went back counts as one from before.
    near_turn, near_was, near_stages = _turns(b, "near", near, near_reset, far)
    far_turn, far_was, far_stages = _turns(b, "far", far, far_reset, near)
    b.check(
        "far",
        implies(~far_reset, _all_are(near_stages, near_turn)),
        "SDRAM, reset of the bus: the far side, unless it is in reset, sees no pointer of the near side "
        "from before it went back to the start",
        Cut("memory.far_reset", 16),
    )
    # From a reset on until its near end is cleared, nothing that it does is seen.
    closed = Signal(init=1, name="closed")
    with b.m.If(near & (ask | (near_reset & ~near_was))):
        b.m.d.sync += closed.eq(ask)
    b.check(
        "near",
        implies(~closed & ~near_reset, _all_are(far_stages, far_turn)),
        "SDRAM, reset of the bus: the near side, from the end of its reset on until the next one of the "
        "bus, sees no pointer of the far side from before it went back to the start",
        Cut("memory.reset_done", 16),
    )

    # Edges of either side until it does what it has to.
    far_late, near_late = Signal(3, name="far_late"), Signal(3, name="near_late")
    far_has_to = (asked != done) & (c.idle | ~asked)
    near_has_to = (asked == done) & ~is_open & ~memory.bus_reset
    with b.m.If(far):
        b.m.d.sync += far_late.eq(Mux(far_has_to, far_late + 1, 0))
    with b.m.If(near):
        b.m.d.sync += near_late.eq(Mux(near_has_to & ~clear, near_late + 1, 0))
    with b.m.If(near & (ask | clear)):
        b.m.d.sync += far_late.eq(0)
    b.check(
        "progress",
        implies(far_has_to, far_late < FAR_EDGES) & implies(near_has_to, near_late < NEAR_EDGES),
        "SDRAM, reset of the bus: with the controller idle, the far side has done what the near side asks"
        f" for in {FAR_EDGES} edges; then the near side goes on within {NEAR_EDGES} of its own",
        Cut("memory.far_reset", 16),
    )

    # The level that asks for a reset goes round as well.
    change = _changes(b, [asked, *on, done, *back])
    is_ask, is_clear = state == states.ASK, state == states.CLEAR
    is_release, opens = state == states.RELEASE, state == states.OPEN
    far_done, near_done = Signal(3, name="far_done"), Signal(3, name="near_done")  # edges of what has to be done
    b.m.d.comb += [
        far_done.eq(Mux(change[0], 0, Mux(change[1], 1, Mux(asked & ~far_reset, 2, 3)))),
        near_done.eq(Mux(is_clear, 6 - settle, Mux(change[3], 0, Mux(change[4], 1, Mux(opens, 3, 2))))),
    ]
    b.invariant(Mux(asked == done, is_open | (near_late <= near_done), (near_late == 0) & (far_late <= far_done)))
    b.invariant(asked == (is_ask | is_clear))
    b.invariant(implies(opens | is_clear, change == 0))
    b.invariant(implies(done | is_clear | (is_release & on[1]), far_reset & far_was))
    b.invariant(implies(~is_ask & far_reset, far_was))
    b.invariant(implies(near_reset, (is_ask & near_was & far_reset & (change[:2] == 0)) | is_clear | is_release))
    b.invariant(implies(near_reset & is_release, near_was & back[0] & back[1]))
    b.invariant(implies(near_was & ~near_reset, ~is_clear) & implies(near_reset & is_ask, ~back[1]))
    b.invariant(implies(is_clear, near_reset == (settle != 3)) & implies(is_clear & (settle < 2), near_was))
    b.invariant(implies(opens | is_ask, _all_are(near_stages, near_turn)))
    b.invariant(implies(is_clear & ~near_was, _all_are(near_stages, near_turn)))
    for seen, stage in zip(on, near_stages, strict=True):
        b.invariant(implies(is_release & ~seen, stage == near_turn))
    b.invariant(implies(back[1] & is_ask, far_stages[0] == far_turn))
    b.invariant(implies(is_clear, (far_stages[0] == far_turn) & ((settle == 3) | (far_stages[1] == far_turn))))
    b.invariant(implies(opens | is_release, _all_are(far_stages, far_turn) & ~closed))
    b.invariant(implies(is_ask, closed & ~is_open) & implies(is_clear & near_was, ~closed))
    b.invariant(implies(owed, is_ask & ~done) & implies(is_open, opens))
    return b


def _changes(b: Bench, ring: list[Signal]) -> Value:
    """Returns the place where a level that goes round a ring changes, one-hot over its registers but the last."""
    change = Cat(a ^ c for a, c in pairwise(ring))
    b.invariant((change & (change - 1))[: len(change)] == 0)
    return change


def _turns(b: Bench, name: str, edge: Value, reset: Value, other: Value) -> tuple[Signal, Signal, list[Signal]]:
    """Returns the number of resets of a side, modulo 2; whether it was in reset at its last edge; and the synchroniser
    stages by which the other side sees that number."""
    turn, before = Signal(name=f"{name}_turn"), Signal(init=1, name=f"{name}_was_reset")
    stages = [Signal(name=f"{name}_turn{n}") for n in range(2)]
    with b.m.If(edge):
        b.m.d.sync += [before.eq(reset), turn.eq(turn ^ (reset & ~before))]
    with b.m.If(other):
        b.m.d.sync += [stages[0].eq(turn), stages[1].eq(stages[0])]
    return turn, before, stages


def _all_are(bits: list[Signal], value: Value) -> Value:
    return Cat(bits) == value.replicate(len(bits))
