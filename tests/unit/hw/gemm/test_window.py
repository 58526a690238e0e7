"""The window, one vector at a time and two, against a list of what was pushed."""

from __future__ import annotations

import random

import pytest

from tests.common.rtl_bench import drive, simulate
from tilewright.hw.connections import design
from tilewright.hw.gemm.window import Window
from tilewright.isa.config import preset

TINY = preset("tiny")
CONFIGS = {
    "without delay lines": TINY.with_(block_in=8, window_pairs=1),
    "delay lines": TINY.with_(block_in=8, block_out=4, window_pairs=1, window_delay=6),
    "one slot behind the last line": TINY.with_(
        block_in=16, block_out=4, window_pairs=1, window_delay=16, axi_data_bits=64
    ),
    "one at a time": TINY.with_(block_in=8, block_out=4, window_delay=6),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", CONFIGS)
def test_slots_hold_what_was_pushed(name: str) -> None:
    config, rng = CONFIGS[name], random.Random(name)
    dut = Window(config)
    lanes, total = config.dw_lanes, 0

    def sliced(vector: int, part: int) -> bytes:
        return vector.to_bytes(config.block_in, "little")[part * lanes : (part + 1) * lanes]

    async def bench(ctx) -> None:
        nonlocal total
        for delay in (*range(config.window_delay + 1), 0, config.window_delay):
            pushed: list[bytes] = []
            part = rng.randrange(config.dw_slices)
            ctx.set(dut.slice, part)
            if config.delay_lines:
                ctx.set(dut.delay, delay)
            for _ in range(4 * delay + 20):
                first, second = (rng.getrandbits(8 * config.block_in) for _ in range(2))
                push, clear = rng.random() < 0.9, not pushed
                twice = bool(config.window_pairs and pushed and delay != 1 and rng.random() < 0.5)
                drive(ctx, dut, push=push, vector=first, shift=1, clear=clear)
                if config.window_pairs:
                    drive(ctx, dut, second=second, twice=twice)
                await ctx.tick()
                if not push:
                    continue
                pushed += [sliced(first, part), *([sliced(second, part)] if twice else [])]
                total += twice
                for i, slot in enumerate(dut.slots):
                    age = i + delay * (i // config.window_segment)
                    want = pushed[-1 - age] if age < len(pushed) else bytes(lanes)
                    assert ctx.get(slot).to_bytes(lanes, "little") == want, (delay, i, len(pushed))
            drive(ctx, dut, push=1, vector=first, shift=0, clear=0)
            if config.window_pairs:
                ctx.set(dut.twice, 0)
            await ctx.tick()
            for i, slot in enumerate(dut.slots):
                want = first.to_bytes(config.block_in, "little")[i : i + 1] * lanes
                assert ctx.get(slot).to_bytes(lanes, "little") == want

    simulate(dut, bench)
    design(Window(config), "window")  # checks that all ports are connected
    assert (total > 10) == bool(config.window_pairs)
