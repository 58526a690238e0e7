"""Bench of the loops of GEMM and VECTOR: which rows an instruction names, in which order."""

from __future__ import annotations

from functools import reduce
from operator import add

from amaranth.hdl import C, Cat, Mux, Signal, Value

from tilewright.hw.issue.loop_nest import COUNT_BITS, LoopNest
from verification.formal.bench import Bench, implies
from verification.formal.engine import Cut

_LEVELS, _BITS = 3, 3


class PlainNest:
    """Counters that do what `LoopNest` says, for one that is in the bench or cut out of it.

    Attributes:
        active: there is a step.
        index: of every level.
        values: what the outputs are then.
    """

    def __init__(self, b: Bench, nest: LoopNest) -> None:
        levels, shape = range(nest.levels), nest.stride
        self.active = active = Signal(name="nest_active")
        # What is configured, and what is at work.
        counts = [[Signal(COUNT_BITS, init=1, name=f"{w}_count{k}") for k in levels] for w in ("next", "now")]
        strides = {
            a: [[Signal(shape, name=f"{w}_{a}{k}") for k in levels] for w in ("next", "now")] for a in nest.addresses
        }
        bases = {a: Signal(nest.bits, name=f"{a}_base") for a in nest.addresses}
        inner = Signal(nest.levels, name="inner")
        for k in levels:
            with b.m.If(nest.configure & (nest.level == k)):
                b.m.d.sync += counts[0][k].eq(nest.count)
                b.m.d.sync += [strides[a][0][k].eq(getattr(nest, f"{a}_stride")) for a in nest.addresses]
        # Indices, and index * stride by adding; an outer address adds where its gate is open.
        self.index = index = [Signal(COUNT_BITS, name=f"nest_index{k}") for k in levels]
        offset = {a: [Signal(nest.bits, name=f"{a}_offset{k}") for k in levels] for a in nest.addresses}
        at_last: list[Value] = [i == count - 1 for i, count in zip(index, counts[1])]
        twice = Signal(name="nest_twice")  # two iterations of level 0
        if nest.pairs:
            left = counts[1][0] - 1 - index[0]
            at_last[0] = (left == 0) | (twice & (left == 1))
            then = Mux(at_last[0], counts[1][0] - 1, left - Mux(twice, 2, 1))  # left behind this step
            with b.m.If(nest.step):
                b.m.d.sync += twice.eq(nest.pair & (then != 0))
        below: list[Value] = [C(1)]
        for k in levels:
            with b.m.If(nest.step & below[k]):
                both = twice if k == 0 else C(0, 1)
                b.m.d.sync += index[k].eq(Mux(at_last[k], 0, index[k] + Mux(both, 2, 1)))
                for a in nest.addresses:
                    gate = getattr(nest, f"{a}_gate")[k] if a in nest.outer else 1
                    stride = strides[a][1][k] if a in nest.outer else Mux(both, strides[a][1][k] << 1, strides[a][1][k])
                    more = offset[a][k] + Mux(gate, stride, 0)
                    b.m.d.sync += offset[a][k].eq(Mux(at_last[k], 0, more))
            below.append(below[k] & at_last[k])
        with b.m.If(nest.start):
            b.m.d.sync += [active.eq(1), inner.eq(nest.inner)]
            b.m.d.sync += [now.eq(following) for following, now in zip(*counts)]
            for a in nest.addresses:
                b.m.d.sync += [now.eq(following) for following, now in zip(*strides[a])]
                b.m.d.sync += [bases[a].eq(getattr(nest, f"{a}_base")), *(o.eq(0) for o in offset[a])]
            b.m.d.sync += [*(i.eq(0) for i in index), twice.eq(0)]
        with b.m.Elif(nest.step & below[-1]):
            b.m.d.sync += active.eq(0)
        self.values: dict[str, Value] = {
            "carry": Cat(below[k] & ~at_last[k] for k in levels),
            "last": below[-1],
            "group_first": Cat(~inner[k] | (index[k] == 0) for k in levels).all(),
            "group_last": Cat(~inner[k] | at_last[k] for k in levels).all(),
        }
        if nest.pairs:
            self.values["twice"] = twice
        for a in nest.addresses:
            outside = a in nest.outer
            terms = [Mux(inner[k], 0, offset[a][k]) if outside else offset[a][k] for k in levels]
            self.values[a] = reduce(add, terms, bases[a])[: nest.bits]


def loop_nest(only: str | None) -> Bench:
    """Three loops with an address that takes every stride and one that keeps its value within a group, configured while
    the nest before is at work, beside plain counters."""
    b = Bench(only)
    nest = LoopNest(_LEVELS, ("a", "b"), ("b",), _BITS)
    b.part("nest", nest, b_gate=C((1 << _LEVELS) - 1, _LEVELS))
    plain, begun = PlainNest(b, nest), Signal(name="begun")
    active, values, ends = plain.active, plain.values, nest.step & plain.values["last"]
    b.assume((nest.level < _LEVELS) & (nest.count != 0))
    # VECTOR starts its nest in every cycle until there is an instruction: the last one before a step counts.
    b.assume(implies(nest.step, active) & implies(nest.start, ~begun & ~nest.step | ends))
    b.m.d.sync += begun.eq((begun | nest.step) & ~nest.start & ~ends)

    b.state(
        "addresses",
        "`LoopNest`: an address is its base plus the sum of index * stride of all levels, in every step",
        Cut("nest.here", 12),
    )
    b.state(
        "outer",
        "`LoopNest`: an address of the outer kind takes the levels outside the group alone",
        Cut("nest.outside", 12),
    )
    b.state(
        "order",
        "`LoopNest`: a step advances the lowest level that is not at its last index, and sets those below to 0; the "
        "last step is that in which none is left",
        Cut("nest.carry", 12),
    )
    b.state(
        "groups",
        "`LoopNest`: `group_first` and `group_last` are with the first and the last step of a group",
        Cut("nest.group_last_stepped", 12),
    )
    stepped = b.past(nest.step & ~nest.start & ~ends, "stepped")
    for name, port in (("addresses", "a"), ("outer", "b")):
        b.check(name, implies(active, getattr(nest, port) == values[port]))
        following = b.past(getattr(nest, f"{port}_next"), f"{port}_was_next")
        b.check(name, implies(stepped, following == values[port]))
    for name, ports in (("order", ("last", "carry")), ("groups", ("group_first", "group_last"))):
        for port in ports:
            b.check(name, implies(active, getattr(nest, port) == values[port]))
    return b
