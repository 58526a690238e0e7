"""A nest of affine loops that walks several row addresses, one step per cycle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from isa.config import ROW_BITS
from isa.instructions import ADDRESS_BITS

COUNT_BITS = 16


STRIDE = signed(ROW_BITS)


class LoopNest(wiring.Component):
    """Walks `levels` loops, level 0 innermost. Each address is its base plus the sum of index * stride, modulo
    2**ADDRESS_BITS. Address registers per level hold the value at the start of the level's current iteration, so
    that a step is one addition. Holds the configuration of the next nest beside the one at work.

    What a step needs to know first (`carry`, `last`, the flags of its group) comes from registers that are computed
    with the step before.

    Latency: a level configured in cycle t counts from a `start` in t+1 on; addresses of the first step are out in the
    cycle after `start`; a step per cycle where `step` is 1.

    Parameters:
        levels: loops.
        addresses: names of the row addresses.
        outer: those of them that keep their value within a group.

    Ports:
        configure, level, count, {a}_stride: configure a level. Levels never configured have count 1.
        start: take the configuration over, `inner` and the bases (wins over `step`).
        inner: levels of a group.
        {a}_base: first addresses.
        {a}_gate: bit k = outer address a takes its stride of level k now (combinational; all 1 where unused).
        step: advance.
        {a}: current addresses.  {a}_next: those after a step.
        carry: one-hot, the level that the next step advances; 0 in the last step.
        last: every level is at its last index.
        group_first, group_last: every inner level is at index 0, at its last index.
        group_last_started, group_last_stepped: `group_last` after `start`, after a step.
    """

    def __init__(self, levels: int, addresses: Sequence[str], outer: Sequence[str] = ()) -> None:
        self.levels, self.addresses, self.outer = levels, tuple(addresses), tuple(outer)
        #: What not every nest needs; gates take every stride.
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
            members |= {f"{a}_stride": In(STRIDE), f"{a}_base": In(ADDRESS_BITS)}
            members |= {a: Out(ADDRESS_BITS), f"{a}_next": Out(ADDRESS_BITS)}
        members |= {f"{a}_gate": In(levels, init=every) for a in self.outer}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        levels = range(self.levels)
        chosen = [self.configure & (self.level == k) for k in levels]

        def per_level(name: str, bits: int = 1, init: int = 0) -> list[Signal]:
            return [Signal(bits, name=f"{name}{k}", init=init, reset_less=not init) for k in levels]

        # Configured: count - 1, and whether the count is 1 or 2.
        next_most, next_once, next_twice = (
            [Signal(COUNT_BITS, name=f"next_most{k}") for k in levels],
            per_level("next_once", init=1),
            [Signal(name=f"next_twice{k}") for k in levels],
        )
        configured = [Signal(name=f"configured{k}") for k in levels]  # `next_once`, a cycle ahead
        for k in levels:
            with m.If(chosen[k]):
                m.d.sync += [
                    next_most[k].eq(self.count - 1),
                    next_once[k].eq(self.count == 1),
                    next_twice[k].eq(self.count == 2),
                ]
            m.d.comb += configured[k].eq(Mux(chosen[k], self.count == 1, next_once[k]))

        # At work. `left`: iterations after this one; in the first one `most` counts instead, so that wrapping around
        # loads nothing. `soon`: there is one.
        left, most = per_level("left", COUNT_BITS), per_level("most", COUNT_BITS)
        once, twice, soon = per_level("once"), per_level("twice"), per_level("soon")
        first, at_last = per_level("first"), per_level("at_last")
        inner = Signal(self.levels, reset_less=True)

        # Bit k of `moves`: the step advances level k or one above; of `outer_carry`: `carry` without inner levels.
        moves, outer_carry = Signal(self.levels), Signal(self.levels)

        def flags(at_last: Sequence[Value]) -> tuple[Value, Value, Value]:
            """`carry`, `last` and `moves` of a step of these levels."""
            below = [Cat(at_last[:k]).all() for k in levels]
            last = Cat(at_last).all()
            return Cat(b & ~here for b, here in zip(below, at_last)), last, Cat(b & ~last for b in below)

        # `carry`, `last` and `moves` of the first step of the configured nest.
        first_carry, first_last, first_moves = Signal(self.levels), Signal(init=1), Signal(self.levels)
        m.d.sync += [to.eq(value) for to, value in zip((first_carry, first_last, first_moves), flags(configured))]

        def group_last(at_last: Sequence[Value], inner: Value) -> Value:
            return (Cat(at_last) | ~inner).all()

        first_next, at_last_next = [], []
        for k in levels:
            wraps = moves[k + 1] if k + 1 < self.levels else C(0, 1)
            first_next.append(~self.carry[k] & (wraps | first[k]))
            at_last_next.append(Mux(self.carry[k], soon[k], Mux(wraps, once[k], at_last[k])))
            now = Signal(COUNT_BITS, name=f"now{k}")
            m.d.comb += now.eq(Mux(first[k], most[k], left[k]))
            with m.If(self.step & moves[k]):
                m.d.sync += [
                    first[k].eq(~self.carry[k]),
                    at_last[k].eq(Mux(self.carry[k], soon[k], once[k])),
                    soon[k].eq(Mux(self.carry[k], now == 2, twice[k])),
                ]
            with m.If(self.step & self.carry[k]):
                m.d.sync += left[k].eq(now - 1)
            with m.If(self.start):
                m.d.sync += [
                    most[k].eq(next_most[k]),
                    once[k].eq(next_once[k]),
                    twice[k].eq(next_twice[k]),
                    soon[k].eq(next_twice[k]),
                    first[k].eq(1),
                    at_last[k].eq(next_once[k]),
                ]
        m.d.comb += [
            self.group_last_started.eq(group_last(next_once, self.inner)),
            self.group_last_stepped.eq(group_last(at_last_next, inner)),
        ]
        with m.If(self.step):
            carry, last, moving = flags(at_last_next)
            m.d.sync += [self.carry.eq(carry), self.last.eq(last), moves.eq(moving), outer_carry.eq(carry & ~inner)]
        with m.If(self.start):
            m.d.sync += [self.carry.eq(first_carry), self.last.eq(first_last), moves.eq(first_moves)]
            m.d.sync += outer_carry.eq(first_carry & ~self.inner)
        with m.If(self.start | self.step):
            m.d.sync += [
                self.group_first.eq(self.start | (Cat(first_next) | ~inner).all()),
                self.group_last.eq(Mux(self.start, self.group_last_started, self.group_last_stepped)),
            ]
        with m.If(self.start):
            m.d.sync += inner.eq(self.inner)

        for a in self.addresses:
            held, stride, next_stride = (
                [Signal(ADDRESS_BITS, name=f"{a}_held{k}", reset_less=True) for k in levels],
                [Signal(STRIDE, name=f"{a}_step{k}", reset_less=True) for k in levels],
                [Signal(STRIDE, name=f"{a}_next_step{k}") for k in levels],
            )
            for k in levels:
                with m.If(chosen[k]):
                    m.d.sync += next_stride[k].eq(getattr(self, f"{a}_stride"))
            takes = outer_carry & getattr(self, f"{a}_gate") if a in self.outer else self.carry
            following, load = getattr(self, f"{a}_next"), Signal(ADDRESS_BITS, name=f"{a}_load")
            carried = [held[k] & self.carry[k].replicate(ADDRESS_BITS) for k in levels]  # one of them, by OR
            steps = [stride[k].as_unsigned() & takes[k].replicate(ROW_BITS) for k in levels]
            m.d.comb += [
                getattr(self, a).eq(held[0]),
                following.eq(reduce(or_, carried) + reduce(or_, steps).as_signed()),
                load.eq(Mux(self.start, getattr(self, f"{a}_base"), following)),
            ]
            for k in levels:
                with m.If(self.start | (self.step & moves[k])):
                    m.d.sync += held[k].eq(load)
                with m.If(self.start):
                    m.d.sync += stride[k].eq(next_stride[k])
        return m


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
