"""A nest of affine loops that walks several row addresses, one step per cycle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from isa.config import ROW_BITS
from isa.instructions import ADDRESS_BITS

COUNT_BITS = 16


STRIDE = signed(ROW_BITS)


class LoopNest(wiring.Component):
    """Walks `levels` loops, level 0 innermost. Each address is its base plus the sum of index * stride, modulo
    2**ADDRESS_BITS. Address registers per level hold the value at the start of the level's current iteration, so
    that a step is one addition.

    Latency: addresses of the first step are out in the cycle after `start`; a step per cycle where `step` is 1.

    Parameters:
        levels: loops.
        addresses: names of the row addresses.

    Ports:
        start: load `config_*` and the bases (wins over `step`).
        count{k}, {a}_stride{k}: configuration, read at `start`.
        {a}_base: first addresses, read at `start`.
        {a}_gate{k}: 1 = address a takes its stride of level k now (combinational; tie to 1 where unused).
        step: advance.
        {a}: current addresses.
        carry: one-hot, the level that the next step advances; 0 in the last step.
        first{k}: index of level k is 0.  at_last{k}: it is count - 1.
        last: every level is at its last index.
    """

    def __init__(self, levels: int, addresses: Sequence[str]) -> None:
        self.levels, self.addresses = levels, tuple(addresses)
        members: dict[str, object] = {"start": In(1), "step": In(1), "last": Out(1), "carry": Out(levels)}
        for k in range(levels):
            members |= {f"count{k}": In(COUNT_BITS), f"first{k}": Out(1), f"at_last{k}": Out(1)}
            for a in self.addresses:
                members |= {f"{a}_stride{k}": In(STRIDE), f"{a}_gate{k}": In(1, init=1)}
        for a in self.addresses:
            members |= {f"{a}_base": In(ADDRESS_BITS), a: Out(ADDRESS_BITS)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        levels = range(self.levels)
        left = [Signal(COUNT_BITS, name=f"left{k}", reset_less=True) for k in levels]  # iterations after this one
        most = [Signal(COUNT_BITS, name=f"most{k}", reset_less=True) for k in levels]  # count - 1
        once = [Signal(name=f"once{k}", reset_less=True) for k in levels]  # count is 1
        below = 1  # all inner levels are at their last index
        for k in levels:
            at_last = getattr(self, f"at_last{k}")
            m.d.comb += self.carry[k].eq(below & ~at_last)
            below = below & at_last
        m.d.comb += self.last.eq(below)

        # `first` and `at_last` are registers beside `left`: they come before everything else in a cycle.
        for k in levels:
            first, at_last = getattr(self, f"first{k}"), getattr(self, f"at_last{k}")
            with m.If(self.step):
                with m.If(self.carry[k]):
                    m.d.sync += [left[k].eq(left[k] - 1), at_last.eq(left[k] == 1), first.eq(0)]
                if k + 1 < self.levels:
                    with m.Elif(self.carry[k + 1 :].any()):
                        m.d.sync += [left[k].eq(most[k]), at_last.eq(once[k]), first.eq(1)]
            with m.If(self.start):
                count = getattr(self, f"count{k}")
                m.d.sync += [left[k].eq(count - 1), most[k].eq(count - 1), first.eq(1)]
                m.d.sync += [once[k].eq(count == 1), at_last.eq(count == 1)]

        for a in self.addresses:
            held = [Signal(ADDRESS_BITS, name=f"{a}_held{k}", reset_less=True) for k in levels]
            stride = [Signal(STRIDE, name=f"{a}_step{k}", reset_less=True) for k in levels]
            following = Signal(ADDRESS_BITS, name=f"{a}_next")
            gates = [getattr(self, f"{a}_gate{k}") for k in levels]
            carried = [held[k] & self.carry[k].replicate(ADDRESS_BITS) for k in levels]  # one of them, by OR
            steps = [stride[k].as_unsigned() & (self.carry[k] & gates[k]).replicate(ROW_BITS) for k in levels]
            m.d.comb += [
                getattr(self, a).eq(held[0]),
                following.eq(reduce(or_, carried) + reduce(or_, steps).as_signed()),
            ]
            for k in levels:
                with m.If(self.step & self.carry[k:].any()):
                    m.d.sync += held[k].eq(following)
                with m.If(self.start):
                    m.d.sync += [held[k].eq(getattr(self, f"{a}_base")), stride[k].eq(getattr(self, f"{a}_stride{k}"))]
        return m
