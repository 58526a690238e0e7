"""Bench of the loops of GEMM and VECTOR: which rows an instruction names, in which order."""

from __future__ import annotations

from functools import reduce
from operator import add

from amaranth.hdl import C, Cat, Mux, Signal, Value, signed

from hw.formal.bench import Bench, implies
from hw.loop_nest import COUNT_BITS, LoopNest

_LEVELS, _BITS = 3, 3


def loop_nest(only: str | None) -> Bench:
    """Three loops with an address that takes every stride and one that keeps its value within a group, configured while
    the nest before is at work, beside plain counters."""
    b = Bench(only)
    nest = LoopNest(_LEVELS, ("a", "b"), ("b",), _BITS)
    b.part("nest", nest, b_gate=C((1 << _LEVELS) - 1, _LEVELS))
    levels, shape = range(_LEVELS), signed(_BITS)
    active, ends, begun = Signal(name="active"), Signal(name="ends"), Signal(name="begun")
    b.assume((nest.level < _LEVELS) & (nest.count != 0))
    # VECTOR starts its nest in every cycle until there is an instruction: the last one before a step counts.
    b.assume(implies(nest.step, active) & implies(nest.start, ~begun & ~nest.step | (nest.step & ends)))
    b.m.d.sync += begun.eq((begun | nest.step) & ~nest.start & ~(nest.step & ends))
    with b.m.If(nest.start):
        b.m.d.sync += active.eq(1)
    with b.m.Elif(nest.step & ends):
        b.m.d.sync += active.eq(0)

    # What is configured, and what is at work.
    counts = [[Signal(COUNT_BITS, init=1, name=f"{name}_count{k}") for k in levels] for name in ("next", "now")]
    strides = {a: [[Signal(shape, name=f"{n}_{a}{k}") for k in levels] for n in ("next", "now")] for a in "ab"}
    bases = {a: Signal(_BITS, name=f"{a}_base") for a in "ab"}
    inner = Signal(_LEVELS, name="inner")
    for k in levels:
        with b.m.If(nest.configure & (nest.level == k)):
            b.m.d.sync += counts[0][k].eq(nest.count)
            b.m.d.sync += [strides[a][0][k].eq(getattr(nest, f"{a}_stride")) for a in "ab"]
    with b.m.If(nest.start):
        b.m.d.sync += [now.eq(following) for following, now in zip(*counts)]
        b.m.d.sync += [now.eq(following) for a in "ab" for following, now in zip(*strides[a])]
        b.m.d.sync += [bases[a].eq(getattr(nest, f"{a}_base")) for a in "ab"]
        b.m.d.sync += inner.eq(nest.inner)

    # Indices, and index * stride by adding.
    index = [Signal(COUNT_BITS, name=f"index{k}") for k in levels]
    offset = {a: [Signal(_BITS, name=f"{a}_offset{k}") for k in levels] for a in "ab"}
    at_last = [i == count - 1 for i, count in zip(index, counts[1])]
    below: list[Value] = [C(1)]
    for k in levels:
        moves = nest.step & below[k]
        with b.m.If(moves):
            b.m.d.sync += index[k].eq(Mux(at_last[k], 0, index[k] + 1))
            for a in "ab":
                b.m.d.sync += offset[a][k].eq(Mux(at_last[k], 0, offset[a][k] + strides[a][1][k]))
        with b.m.If(nest.start):
            b.m.d.sync += [x.eq(0) for x in (index[k], offset["a"][k], offset["b"][k])]
        below.append(below[k] & at_last[k])
    b.m.d.comb += ends.eq(below[-1])

    outside = [Mux(inner[k], 0, offset["b"][k]) for k in levels]
    expected = {a: reduce(add, terms, bases[a])[:_BITS] for a, terms in (("a", offset["a"]), ("b", outside))}
    carry = Cat(below[k] & ~at_last[k] for k in levels)
    firsts, lasts = (
        Cat(f).all() for f in ([~inner[k] | (index[k] == 0) for k in levels], [~inner[k] | at_last[k] for k in levels])
    )
    b.check("addresses", implies(active, nest.a == expected["a"]))
    b.check("outer", implies(active, nest.b == expected["b"]))
    b.check("order", implies(active, (nest.last == ends) & (nest.carry == carry)))
    b.check("groups", implies(active, (nest.group_first == firsts) & (nest.group_last == lasts)))
    stepped = b.past(nest.step & ~nest.start & ~ends, "stepped")
    for name, port in (("addresses", "a"), ("outer", "b")):
        b.check(name, implies(stepped, b.past(getattr(nest, f"{port}_next"), f"{port}_was_next") == expected[port]))
    return b
