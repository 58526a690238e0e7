"""The requantiser against `tilewright.isa.numerics.requantize`, value by value."""

import numpy as np
import pytest

from tests.common.rtl_bench import drive, simulate
from tilewright.hw.vector.requantizer import (
    FINAL_STAGE,
    INSIDE_STAGE,
    REQUANTIZE_STAGES,
    SCALE_STAGE,
    WINDOW_STAGE,
    Requantizer,
)
from tilewright.isa.instructions import Rounding
from tilewright.isa.numerics import requantize
from verification.programs.requantizer_operands import beside_ties, random_operands


def vectors(count: int) -> dict[str, np.ndarray]:
    """Random operands, and all that lie beside a tie, with any zero points, limits and modes."""
    rng = np.random.default_rng(7)
    found = random_operands(count, rng)
    acc, scale = np.array(beside_ties(), np.int64).T
    found["acc"][: acc.size], found["scale"][: acc.size] = acc, scale
    return found


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
