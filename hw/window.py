"""The window register: the newest activation vectors, slot 0 first."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from isa.config import NpuConfig


class Window(wiring.Component):
    """block_in activation vectors. GEMM uses slot 0 only; without `depthwise` there is no other.

    Latency: a vector pushed in cycle t is slot 0 in cycle t+1.

    Ports:
        push, vector: the new slot 0.
        shift: with push, slot i takes slot i-1 (depthwise); else the other slots keep their contents.
        clear: with push, all other slots become zero.
        slot{i}: contents.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.slots = config.block_in if config.depthwise else 1
        row = 8 * config.block_in
        super().__init__(
            {
                "push": In(1),
                "vector": In(row),
                "shift": In(1),
                "clear": In(1),
                **{f"slot{i}": Out(row) for i in range(self.slots)},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slots = [getattr(self, f"slot{i}") for i in range(self.slots)]
        with m.If(self.push):
            m.d.sync += slots[0].eq(self.vector)
        with m.If(self.push & self.clear):
            m.d.sync += [s.eq(0) for s in slots[1:]]
        with m.Elif(self.push & self.shift):
            m.d.sync += [s.eq(before) for before, s in pairwise(slots)]
        return m
