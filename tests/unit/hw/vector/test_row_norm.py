"""Norms of rows in hardware against `tilewright.isa.row_norm`."""

import random
from typing import Any

import numpy as np
import pytest

from tests.common.rtl_bench import drive, simulate
from tilewright.hw.vector.requantizer import INSIDE_STAGE, REQUANTIZE_STAGES, START, START_STAGE, Requantizer
from tilewright.hw.vector.row_norm import ASK_STAGE, FACTOR_STAGE, WRITE_STAGE, RowNormUnit
from tilewright.isa.config import preset
from tilewright.isa.numerics import quotient
from tilewright.isa.row_bits import EPSILON_FRACTION, FACTOR_BITS
from tilewright.isa.row_norm import RowNorm, normalise, row_norm
from tilewright.isa.timing import ROW_DIVIDE_CYCLES


@pytest.mark.medium
@pytest.mark.parametrize("centred", [True, False])
def test_rows_one_behind_the_other(centred: bool) -> None:
    """Rows start as close together as they may, and further apart; sums are those of rows, also nearly constant ones,
    and any bits."""
    rng = random.Random(4 + centred)
    dut = RowNormUnit(preset("base"))
    count, whole = rng.choice([192, 768, 4096]), rng.choice([0, 921, -5, (1 << 31) - 1])
    epsilon = whole << EPSILON_FRACTION | rng.getrandbits(EPSILON_FRACTION)
    sums, starts, cycle = [], {}, 2
    for place in range(40):
        u = [rng.randint(max(0, m - 30), min(255, m + 30)) for m in [rng.randint(0, 255)] for _ in range(count)]
        sums.append((sum(v * v for v in u), sum(u)))
        if rng.random() < 0.3:  # nearly constant
            u = [100] * (count - 1) + [rng.choice([99, 101])]
            sums[-1] = (sum(v * v for v in u), sum(u))
        elif rng.random() < 0.5:
            sums[-1] = (rng.getrandbits(28), rng.getrandbits(20))
        starts[cycle] = place
        cycle += ROW_DIVIDE_CYCLES + rng.choice([0, 0, 0, 1, 5, 40])

    async def bench(ctx: Any) -> None:
        drive(ctx, dut, count=count, epsilon=epsilon & 0xFFFFFFFFFFFF, centred=centred)
        factors: dict[int, int] = {}
        for t in range(cycle + WRITE_STAGE + 2):
            place = starts.get(t)
            squares, total = sums[place] if place is not None else (rng.getrandbits(28), rng.getrandbits(20))
            drive(ctx, dut, start=place is not None, place=place or 0, squares=squares, total=total)
            if ctx.get(dut.ask):
                found = quotient(1 << 33, ctx.get(dut.root) << 10)
                factors[t + FACTOR_STAGE - ASK_STAGE] = found & ((1 << FACTOR_BITS) - 1)
            ctx.set(dut.factor, factors.get(t, rng.getrandbits(FACTOR_BITS)))
            await ctx.tick()
        for place, (squares, total) in enumerate(sums):
            ctx.set(dut.read, place)
            await ctx.tick()
            offset = ctx.get(dut.offset_now)
            got = RowNorm(ctx.get(dut.factor_now), offset - (offset >> 31 << 32), ctx.get(dut.exponent_now))
            assert got == row_norm(squares, total, count, epsilon, centred)

    simulate(dut, bench)


@pytest.mark.medium
def test_requantiser_with_exponent_and_addend() -> None:
    rng = np.random.default_rng(3)
    count = 1500
    acc = rng.integers(-(1 << 31), 1 << 31, count) >> rng.integers(0, 31, count)
    exponent = rng.integers(0, 21, count)
    with np.errstate(divide="ignore"):
        scale = (rng.uniform(-300, 300, count) / np.where(acc == 0, 1, acc) * 2.0**-exponent).astype(np.float32)
    # Ties: a product of halves, and an addend of halves.
    ties = rng.random(count) < 0.3
    acc, exponent = np.where(ties, rng.integers(-200, 200, count), acc), np.where(ties, 1, exponent)
    scale = np.where(ties, np.float32(0.25), scale).astype(np.float32)
    addend = np.where(ties, rng.integers(-200, 200, count) << 22, rng.integers(-(1 << 31), 1 << 31, count))
    expected = [
        int(normalise(np.int8([0]), RowNorm(0, int(a), int(e)), b, s, 0, -128, 127)[0])
        for a, e, b, s in zip(acc, exponent, addend, scale.view(np.uint32))
    ]
    dut, got = Requantizer(rows=True), []

    async def bench(ctx: Any) -> None:
        drive(ctx, dut, low=-128, high=127)
        for t in range(count + REQUANTIZE_STAGES):
            of = lambda values, stage, t=t: int(values[min(max(t - stage, 0), count - 1)])
            drive(ctx, dut, acc=of(acc, 0), start=START - of(exponent, START_STAGE), addend=of(addend, INSIDE_STAGE))
            ctx.set(dut.scale, of(scale.view(np.uint32), START_STAGE + 1))
            if t >= REQUANTIZE_STAGES:
                got.append(ctx.get(dut.result))
            await ctx.tick()

    simulate(dut, bench)
    wrong = [i for i in range(count) if got[i] != expected[i]]
    assert not wrong, [
        (int(acc[i]), int(exponent[i]), float(scale[i]), int(addend[i]), got[i], expected[i]) for i in wrong[:5]
    ]
