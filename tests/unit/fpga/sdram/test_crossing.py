"""A queue between two clocks: whatever their ratio and phase, every entry comes out once and in order."""

from __future__ import annotations

import random
from itertools import count

import pytest
from amaranth.hdl import ClockDomain, Module
from amaranth.sim import Simulator

from tilewright.fpga.sdram.crossing import AsyncQueue

ENTRIES = 200


@pytest.mark.medium
@pytest.mark.parametrize("depth", [2, 16])
@pytest.mark.parametrize(
    "period, phase, pushes, pops",
    [(1.0, 0.0, 1, 1), (1.0, 0.37, 0.3, 1), (0.31, 0.1, 1, 0.3), (5.7, 0.2, 1, 1), (0.97, 0.5, 0.6, 0.6)],
)
def test_entries(depth: int, period: float, phase: float, pushes: float, pops: float) -> None:
    """`period` of the reader's clock in cycles of the writer's; entries are offered and taken with a probability."""
    dut = AsyncQueue(16, depth, writer="near", reader="far")
    m = Module()
    m.domains += [ClockDomain("near", reset_less=True), ClockDomain("far", reset_less=True)]
    m.submodules.dut = dut
    rng = random.Random(depth + 100 * pushes + 10 * pops)
    got: list[int] = []
    sent = 0

    async def writer(ctx):  # type: ignore[no-untyped-def]
        nonlocal sent
        while sent < ENTRIES:
            offered = rng.random() < pushes
            ctx.set(dut.i_valid, offered)
            ctx.set(dut.i_payload, 7 * sent & 0xFFFF)
            *_, ready, left = await ctx.tick("near").sample(dut.i_ready, dut.left)
            sent += offered and ready
            assert (sent - left) % (2 * depth) <= depth  # what the writer knows to have left has left
        ctx.set(dut.i_valid, 0)

    async def reader(ctx):  # type: ignore[no-untyped-def]
        for cycle in count():
            takes = rng.random() < pops
            ctx.set(dut.o_ready, takes)
            *_, valid, value, come = await ctx.tick("far").sample(dut.o_valid, dut.o_payload, dut.come)
            if valid and takes:
                got.append(value)
            assert (come - len(got)) % (2 * depth) <= depth + 1  # one is in the register
            if len(got) == ENTRIES:
                break
            assert cycle < 60 * ENTRIES

    simulator = Simulator(m)
    simulator.add_clock(1e-6, domain="near")
    simulator.add_clock(period * 1e-6, phase=phase * 1e-6, domain="far")
    simulator.add_testbench(writer)
    simulator.add_testbench(reader)
    simulator.run()
    assert got == [7 * n & 0xFFFF for n in range(ENTRIES)]
