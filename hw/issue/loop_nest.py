"""A nest of affine loops that walks several row addresses, one step per cycle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.isa.config import ROW_BITS
from tilewright.isa.instructions import ADDRESS_BITS

COUNT_BITS = 16


class LoopNest(wiring.Component):
    """Walks `levels` loops, level 0 innermost. Each address is its base plus the sum of index * stride, modulo
    2**bits. Holds the configuration of the next nest beside the one at work.

    A step advances one level, and all levels below it go back to their first index. So counts, strides and the
    addresses at which the levels stand are kept in RAMs, of which a step reads one word:

    - A level's count and strides have two places. One is at work, the other takes what is configured for the next
      nest; `start` makes the next nest's place the one at work, which for a level that was not configured is the same.
    - After a step that advances level k, levels 0 to k stand at the same address. It is written once, to place k, and
      the lower levels remember that theirs is there. A level finds its address at its own place or at one above.

    What a step needs to know first (`carry`, `last`, the flags of its group, and where in the RAMs its count, strides
    and addresses are) comes from registers that are computed with the step before.

    Latency: a level configured in cycle t counts from a `start` in t+1 on; addresses of the first step are out in the
    cycle after `start`; a step per cycle where `step` is 1.

    Parameters:
        levels: loops, at least 2.
        addresses: names of the row addresses.
        outer: the addresses that keep their value within a group.
        bits: bits of an address.
        pairs: a step may make two iterations of the innermost level. It then moves the addresses twice, but `outer`
            ones, which have not moved in the first, once.

    Ports:
        configure, level, count, {a}_stride: configure a level. Levels never configured have count 1.
        start: take the configuration over, `inner` and the bases (wins over `step`).
        inner: levels of a group.
        {a}_base: first addresses.
        {a}_gate: bit k = outer address a takes its stride of level k now (combinational; all 1 where unused).
        step: advance.
        {a}: current addresses.  {a}_next: addresses after a step.
        carry: one-hot, the level that the next step advances; 0 in the last step.
        last: every level is at its last index.
        pair: with `step` and pairs: the next step makes two iterations of level 0, if there are two.
        twice: with pairs: the next step makes two (never the first one); `carry` and `last` are of both together.
        group_first, group_last: every inner level is at index 0, at its last index.
        group_last_started, group_last_stepped: `group_last` after `start`, after a step.
    """

    def __init__(
        self,
        levels: int,
        addresses: Sequence[str],
        outer: Sequence[str] = (),
        bits: int = ADDRESS_BITS,
        *,
        pairs: bool = False,
    ) -> None:
        self.pairs = pairs
        self.bits, self.stride = bits, signed(min(ROW_BITS, bits))
        self.levels, self.addresses, self.outer = levels, tuple(addresses), tuple(outer)
        #: Ports that not every nest needs; unused gates take every stride.
        self.optional = {"carry", "group_last", "group_last_started", "group_last_stepped"}
        self.optional |= {f"{a}_next" for a in self.addresses} | {f"{a}_gate" for a in self.outer}
        every = (1 << levels) - 1
        members: dict[str, object] = {
            "configure": In(1),
            "level": In(range(levels)),
            "count": In(COUNT_BITS),
            "start": In(1),
            "inner": In(levels),
            "step": In(1),
            "carry": Out(levels),
            "last": Out(1),
            "group_first": Out(1),
            "group_last": Out(1),
            "group_last_started": Out(1),
            "group_last_stepped": Out(1),
        }
        for a in self.addresses:
            members |= {f"{a}_stride": In(self.stride), f"{a}_base": In(bits)}
            members |= {a: Out(bits), f"{a}_next": Out(bits)}
        members |= {f"{a}_gate": In(levels, init=every) for a in self.outer}
        if pairs:
            members |= {"pair": In(1), "twice": Out(1)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        #: The level that the next step advances, as a number; bit k of `moves`: it advances level k or one above.
        self.advanced, self.moves = Signal(range(self.levels)), Signal(self.levels)
        #: `carry` and `advanced` after a step of this cycle; `carry` of the first step of the configured nest.
        self.carry_next, self.advanced_next = Signal(self.levels), Signal.like(self.advanced)
        self.first_carry = Signal(self.levels)
        self.first = self._per_level("first")
        self.inner_levels = Signal(self.levels, reset_less=True)
        loop = self._loops(m)
        self._count(m, loop)
        self._walk(m, loop)
        return m

    def _number(self, carry: Value) -> Value:
        """Encodes `carry` as the number of the level that is advanced."""
        bits = range(len(self.advanced))
        return Cat(Cat(carry[k] for k in range(self.levels) if k >> bit & 1).any() for bit in bits)

    def _per_level(self, name: str, init: int = 0) -> list[Signal]:
        return [Signal(name=f"{name}{k}", init=init, reset_less=not init) for k in range(self.levels)]

    def _loops(self, m: Module) -> data.View:
        """Keeps the configuration. Returns count (less 1) and strides of the level that the next step advances."""
        layout = data.StructLayout({"most": COUNT_BITS, **dict.fromkeys(self.addresses, self.stride)})
        places = 1 << (self.levels - 1).bit_length()
        m.submodules.loops = loops = Memory(shape=layout, depth=2 * places, init=[])
        write, read = loops.write_port(), loops.read_port(domain="comb")
        at_work, following = Signal(self.levels), Signal(self.levels)  # which place of each level
        other = Signal()  # the place to configure: not the one at work from the next cycle on
        level = Signal(range(places))
        m.d.comb += [
            level.eq(self.level),
            other.eq(~Mux(self.start, following.bit_select(level, 1), at_work.bit_select(level, 1))),
            write.en.eq(self.configure),
            write.addr.eq(Cat(level, other)),
            write.data.most.eq(self.count - 1),
        ]
        m.d.comb += [write.data[a].eq(getattr(self, f"{a}_stride")) for a in self.addresses]
        # Where it is read is known with the step before, or with `start`.
        with m.If(self.step):
            m.d.sync += read.addr.eq(Cat(self.advanced_next, (self.carry_next & at_work).any()))
        with m.If(self.start):
            m.d.sync += at_work.eq(following)
            m.d.sync += read.addr.eq(Cat(self._number(self.first_carry), (self.first_carry & following).any()))
        for k in range(self.levels):
            with m.If(self.configure & (self.level == k)):
                m.d.sync += following[k].eq(other)
        return read.data

    def _count(self, m: Module, loop: data.View) -> None:
        """Counts iterations left of every level, and computes the flags of the level that a step advances."""
        levels, per_level = range(self.levels), self._per_level
        # Configured: whether the count is 1 or 2.
        next_once, next_twice = per_level("next_once", init=1), [Signal(name=f"next_twice{k}") for k in levels]
        configured = [Signal(name=f"configured{k}") for k in levels]  # `next_once`, a cycle ahead
        for k in levels:
            chosen = self.configure & (self.level == k)
            with m.If(chosen):
                m.d.sync += [next_once[k].eq(self.count == 1), next_twice[k].eq(self.count == 2)]
            m.d.comb += configured[k].eq(Mux(chosen, self.count == 1, next_once[k]))

        # Iterations after this one; in the first one the count is used instead, so that going back changes nothing.
        m.submodules.left = left = Memory(shape=COUNT_BITS, depth=1 << len(self.advanced), init=[])
        write, read = left.write_port(), left.read_port(domain="comb")
        now = Signal(COUNT_BITS)
        m.d.comb += [
            read.addr.eq(self.advanced),
            now.eq(Mux((self.carry & Cat(self.first)).any(), loop.most, read.data)),
            write.en.eq(self.step),
            write.addr.eq(self.advanced),
            write.data.eq(now - 1),
        ]
        if self.pairs:
            with m.If(self.twice & self.carry[0]):
                m.d.comb += write.data.eq(now - 2)
        # At work. `soon`: one iteration is left after the next step of the level.
        once, twice, soon, at_last = (per_level(name) for name in ("once", "twice", "soon", "at_last"))

        def flags(at_last: Sequence[Value]) -> tuple[Value, Value, Value]:
            """Returns `carry`, `last` and `moves` of a step of these levels."""
            below = [Cat(at_last[:k]).all() for k in levels]
            last = Cat(at_last).all()
            return Cat(b & ~here for b, here in zip(below, at_last)), last, Cat(b & ~last for b in below)

        # `carry`, `last` and `moves` of the first step of the configured nest.
        first_last, first_moves = Signal(init=1), Signal(self.levels)
        m.d.sync += [to.eq(value) for to, value in zip((self.first_carry, first_last, first_moves), flags(configured))]

        def group_last(at_last: Sequence[Value], inner: Value) -> Value:
            return (Cat(at_last) | ~inner).all()

        first_next, at_last_next = [], []
        for k in levels:
            wraps = self.moves[k + 1] if k + 1 < self.levels else C(0, 1)
            first_next.append(~self.carry[k] & (wraps | self.first[k]))
            at_last_next.append(Mux(self.carry[k], soon[k], Mux(wraps, once[k], at_last[k])))
            with m.If(self.step & self.moves[k]):
                m.d.sync += [
                    self.first[k].eq(~self.carry[k]),
                    at_last[k].eq(Mux(self.carry[k], soon[k], once[k])),
                    soon[k].eq(Mux(self.carry[k], now == 2, twice[k])),
                ]
            with m.If(self.start):
                m.d.sync += [
                    once[k].eq(next_once[k]),
                    twice[k].eq(next_twice[k]),
                    soon[k].eq(next_twice[k]),
                    self.first[k].eq(1),
                    at_last[k].eq(next_once[k]),
                ]
        if self.pairs:
            at_last_next[0] = self._pair(m, now)
        m.d.comb += [
            self.group_last_started.eq(group_last(next_once, self.inner)),
            self.group_last_stepped.eq(group_last(at_last_next, self.inner_levels)),
        ]
        carry, last, moving = flags(at_last_next)
        m.d.comb += [self.carry_next.eq(carry), self.advanced_next.eq(self._number(carry))]
        with m.If(self.step):
            m.d.sync += [self.carry.eq(carry), self.last.eq(last), self.moves.eq(moving)]
            m.d.sync += self.advanced.eq(self.advanced_next)
        with m.If(self.start):
            m.d.sync += [self.carry.eq(self.first_carry), self.last.eq(first_last), self.moves.eq(first_moves)]
            m.d.sync += [self.advanced.eq(self._number(self.first_carry)), self.inner_levels.eq(self.inner)]
        with m.If(self.start | self.step):
            m.d.sync += [
                self.group_first.eq(self.start | (Cat(first_next) | ~self.inner_levels).all()),
                self.group_last.eq(Mux(self.start, self.group_last_started, self.group_last_stepped)),
            ]

    def _pair(self, m: Module, now: Value) -> Value:
        """Counts level 0, of which a step may make two iterations. Returns whether the step after this one leaves it at
        its last index, or goes on from there.

        Args:
            now: iterations after this one, if it is level 0 that the step advances.
        """
        # Bit n: n iterations follow this one; the one after this step; the first one of the nest at work, of the next.
        left = Signal(4, reset_less=True)
        after, every, following = Signal(4), Signal(4, reset_less=True), Signal(4, init=1)
        with m.If(self.configure & (self.level == 0)):
            m.d.sync += following.eq(Cat(self.count == n + 1 for n in range(4)))
        m.d.comb += after.eq(Mux(self.moves[1], every, left))
        with m.If(self.carry[0]):
            m.d.comb += after.eq(Mux(self.twice, Cat(left[2:], now == 4, now == 5), Cat(left[1:], now == 4)))
        with m.If(self.step):
            m.d.sync += [left.eq(after), self.twice.eq(self.pair & ~after[0])]
        with m.If(self.start):
            m.d.sync += [left.eq(following), every.eq(following), self.twice.eq(0)]
        return after[0] | (self.pair & after[1])

    def _walk(self, m: Module, loop: data.View) -> None:
        """Computes the addresses."""
        layout = data.StructLayout(dict.fromkeys(self.addresses, self.bits))
        top = self.levels - 1
        m.submodules.stands = stands = Memory(shape=layout, depth=1 << len(self.advanced), init=[])
        write, read = stands.write_port(), stands.read_port(domain="comb")
        # The place of the address of each level but the innermost, whose is the current one.
        place = [Signal(range(self.levels), name=f"place{k}", reset_less=True) for k in range(1, top)] + [C(top)]
        for k, where in enumerate(place[:-1], 1):
            with m.If(self.step & self.moves[k]):
                m.d.sync += where.eq(self.advanced)
            with m.If(self.start):
                m.d.sync += where.eq(top)
        chosen = [where & here.replicate(len(self.advanced)) for where, here in zip(place, self.carry_next[1:])]
        m.d.comb += [write.en.eq(self.start | self.step), write.addr.eq(Mux(self.start, top, self.advanced))]
        # Where the level stands that the next step advances: known with the step before. Levels up to the one that a
        # step advances stand at the current address then (`here`), as all do after `start`.
        here = Signal(reset_less=True)
        outside = Signal(reset_less=True)  # the level is one outside the group
        with m.If(self.step):
            m.d.sync += [read.addr.eq(reduce(or_, chosen)), here.eq((self.carry_next & self.moves).any())]
            m.d.sync += outside.eq((self.carry_next & ~self.inner_levels).any())
        with m.If(self.start):
            m.d.sync += [here.eq(1), outside.eq((self.first_carry & ~self.inner).any())]
        for a in self.addresses:
            following, load = getattr(self, f"{a}_next"), Signal(self.bits, name=f"{a}_load")
            start = Mux(here, getattr(self, a), read.data[a])
            stride: Value = loop[a]
            if self.pairs and a not in self.outer:
                stride = Mux(self.twice & self.carry[0], stride << 1, stride)
            if a in self.outer:
                takes = outside & ~(self.carry & ~getattr(self, f"{a}_gate")).any()
                stride = (loop[a].as_unsigned() & takes.replicate(len(stride))).as_signed()
            m.d.comb += [
                following.eq(start + stride),
                load.eq(Mux(self.start, getattr(self, f"{a}_base"), following)),
                write.data[a].eq(load),
            ]
            with m.If(self.start | (self.step & self.moves[0])):
                m.d.sync += getattr(self, a).eq(load)


def report_range(m: Module, fault: Any, pc: Value, steps: Value, limits: Sequence[tuple[Signal, Value]]) -> None:
    """Drives the `Fault` of an engine one cycle after a step with a bad address; the row and the instruction for two
    cycles.

    Parameters:
        pc: instruction of the step.
        steps: there is a step with addresses.
        limits: addresses in order of their checks, each with whether it is bad.
    """
    beyond = Signal(len(limits), reset_less=True)
    bad = Cat(condition for _, condition in limits)
    m.d.sync += fault.error.eq(steps & bad.any())
    with m.If(~fault.error):
        m.d.sync += [beyond.eq(bad), fault.pc.eq(pc)]
    for n, (address, _) in reversed(list(enumerate(limits))):
        row = Signal.like(address, name=f"row{n}", reset_less=True)
        with m.If(~fault.error):
            m.d.sync += row.eq(address)
        with m.If(beyond[n]):
            m.d.comb += fault.address.eq(row)
