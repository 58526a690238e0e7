"""The requantiser of VECTOR_WIDE against `tilewright.isa.wide_numerics.requantize_wide_bits`, value by value."""

import numpy as np
import pytest

from tests.common.rtl_bench import drive, simulate
from tilewright.hw.vector.requantizer import REQUANTIZE_STAGES, SCALE_STAGE
from tilewright.hw.vector.wide_requantizer import LIMIT_STAGE, WideRequantizer
from tilewright.isa.instructions import WideByte
from tilewright.isa.wide_numerics import requantize_wide_bits, wide_byte


def vectors(count: int) -> dict[str, np.ndarray]:
    """Sums of any length, ties, both ends of 48 bits; shifts up to 64; limits that are the type's, any, or crossed."""
    rng = np.random.default_rng(7)
    acc = rng.integers(-(1 << 47), 1 << 47, count) >> rng.integers(0, 47, count)
    shift = rng.integers(0, 64, count)
    ties = rng.random(count) < 0.3
    acc = np.where(ties, (2 * rng.integers(-(1 << 17), 1 << 17, count) + 1) << np.minimum(shift, 28), acc)
    acc = np.where(rng.random(count) < 0.05, rng.choice([-(1 << 47), (1 << 47) - 1, 0, -1], count), acc)
    multiplier = np.where(ties, 1, rng.integers(0, 1 << 15, count))
    others = rng.integers(0, 2, count) << 15  # does not matter
    others |= np.where(ties, 0, rng.choice([0, 1, 1023, 512], count)) << 22
    plain = rng.random(count) < 0.6
    return {
        "acc": acc,
        "scale": multiplier | shift << 16 | others,
        "low": np.where(plain, -(1 << 15), rng.integers(-(1 << 15), 1 << 15, count)),
        "high": np.where(plain, (1 << 15) - 1, rng.integers(-(1 << 17), 1 << 17, count)),
        "upper": rng.integers(0, 2, count),
    }


@pytest.mark.slow
def test_bit_exact() -> None:
    count = 6000
    v = vectors(count)
    value = requantize_wide_bits(v["acc"], v["scale"], v["low"], v["high"])
    expected = np.where(v["upper"] == WideByte.HIGH, wide_byte(value, WideByte.HIGH), wide_byte(value, WideByte.LOW))
    dut = WideRequantizer()
    got: list[int] = []

    async def bench(ctx) -> None:
        for t in range(count + REQUANTIZE_STAGES):

            def at(name: str, stage: int, t: int = t) -> int:
                return int(v[name][min(max(t - stage, 0), count - 1)])

            drive(ctx, dut, acc=at("acc", 0), scale=at("scale", SCALE_STAGE))
            drive(ctx, dut, **{name: at(name, LIMIT_STAGE) for name in ("low", "high", "upper")})
            if t >= REQUANTIZE_STAGES:
                got.append((ctx.get(dut.result) ^ 128) - 128)
            await ctx.tick()

    simulate(dut, bench)
    wrong = np.flatnonzero(np.array(got) != expected)
    details = [({k: int(a[i]) for k, a in v.items()}, got[i], int(expected[i])) for i in wrong[:5]]
    assert not wrong.size, f"{wrong.size} of {count} differ: {details}"
