"""The requantiser against `isa.numerics.requantize`, value by value."""

import numpy as np
import pytest

from hw.requantizer import FINAL_STAGE, INSIDE_STAGE, REQUANTIZE_STAGES, SCALE_STAGE, WINDOW_STAGE, Requantizer
from isa.instructions import Rounding
from isa.numerics import requantize
from tests.common.rtl_bench import drive, simulate


def vectors(count: int) -> dict[str, np.ndarray]:
    """Random and adversarial operands: ties, values one step beside them, extremes of exponents and int32."""
    rng = np.random.default_rng(7)
    acc = rng.integers(-(1 << 31), 1 << 31, count, dtype=np.int64) >> rng.integers(0, 31, count)
    scale = (rng.integers(0, 1 << 23, count) | (rng.integers(100, 140, count) << 23)).astype(np.uint32)
    scale |= (rng.integers(0, 2, count).astype(np.uint32) << 31).astype(np.uint32)
    # Products next to n + 1/2: scale chosen as (n + 1/2) / acc in float32, plus or minus a few steps.
    near = rng.random(count) < 0.6
    target = rng.integers(-140, 140, count) + 0.5 - np.where(rng.random(count) < 0.2, rng.integers(-128, 128, count), 0)
    safe = np.where(acc == 0, 1, acc)
    steps = rng.integers(-3, 4, count)
    close = (target / safe).astype(np.float32).view(np.uint32).astype(np.int64) + steps
    scale = np.where(near, close & 0xFFFFFFFF, scale).astype(np.uint32)
    # Exact ties: acc odd, scale a power of two.
    exact = rng.random(count) < 0.1
    acc = np.where(exact, rng.integers(-600, 600, count), acc)
    scale = np.where(exact, rng.integers(124, 128, count).astype(np.uint32) << 23, scale).astype(np.uint32)
    # Tiny values beside a tie given by the zero point, and extremes.
    wild = rng.random(count) < 0.1
    acc = np.where(
        wild, rng.choice([0, 1, -1, (1 << 31) - 1, -(1 << 31), 1 << 24, (1 << 24) + 1, -((1 << 25) + 3)], count), acc
    )
    scale = np.where(
        wild,
        rng.choice([0, 1, 0x7FFFFF, 0x800000, 0x7F800000, 0x7FFFFFFF, 0xFF800001, 0x80000000, 0x3F7FFFFF], count),
        scale,
    ).astype(np.uint32)
    zero_point = rng.integers(-128, 128, count)
    full = rng.random(count) < 0.8
    return {
        "acc": acc,
        "scale": scale,
        "zero_point": zero_point,
        "low": np.where(full, -128, rng.integers(-128, 128, count)),
        "high": np.where(full, 127, rng.integers(-128, 128, count)),
        "rounding": rng.integers(0, 3, count),
    }


@pytest.mark.slow
def test_bit_exact() -> None:
    count = 12000
    v = vectors(count)
    expected = np.zeros(count, np.int64)
    for mode in Rounding:
        mask = v["rounding"] == mode
        expected[mask] = requantize(*(v[k][mask] for k in ("acc", "scale", "zero_point", "low", "high")), mode)
    dut = Requantizer()
    got: list[int] = []

    async def bench(ctx) -> None:
        for t in range(count + REQUANTIZE_STAGES):

            def at(name: str, stage: int, t: int = t) -> int:
                return int(v[name][min(max(t - stage, 0), count - 1)])

            drive(ctx, dut, acc=at("acc", 0), scale=at("scale", SCALE_STAGE))
            inside = Rounding.EVEN_ZERO_POINT_INSIDE
            zero_point = at("zero_point", INSIDE_STAGE) if at("rounding", INSIDE_STAGE) == inside else 0
            ctx.set(dut.inside_zero_point, zero_point)
            mode, zero_point = at("rounding", WINDOW_STAGE), at("zero_point", WINDOW_STAGE)
            drive(ctx, dut, window=mode == inside, away=mode == Rounding.HALF_AWAY)
            drive(ctx, dut, zero_point=0 if mode == inside else zero_point)
            drive(ctx, dut, low=min(at("low", FINAL_STAGE), at("high", FINAL_STAGE)), high=at("high", FINAL_STAGE))
            if t >= REQUANTIZE_STAGES:
                got.append(ctx.get(dut.result))
            await ctx.tick()

    simulate(dut, bench)
    wrong = np.flatnonzero(np.array(got) != expected)
    details = [({k: int(a[i]) for k, a in v.items()}, got[i], int(expected[i])) for i in wrong[:5]]
    assert not wrong.size, f"{wrong.size} of {count} differ: {details}"
