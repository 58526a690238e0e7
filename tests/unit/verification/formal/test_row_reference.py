"""The reference that proofs about the row unit compare with, against `isa`."""

import math
import random
from typing import Any

import pytest
from amaranth.hdl import Module, Mux, Signal, Value

from tests.common.rtl_bench import simulate
from tilewright.isa.instructions import ROW_SUM_BITS
from tilewright.isa.numerics import row_scale
from tilewright.isa.row_bits import COUNT_BITS, EPSILON_FRACTION, SQUARES_BITS, TOTAL_BITS
from tilewright.isa.row_norm import row_norm
from verification.formal.vector import row_reference
from verification.formal.vector.row_reference import above_middle, digits, of_digits, product

CASES = pytest.mark.parametrize("cases", [120, pytest.param(1000, marks=pytest.mark.long)])


class Reference(row_reference.Reference):
    """The reference with a module for each of its signals, so that the simulator evaluates only those that change."""

    def wire(self, value: Value, bits: int = 0) -> Signal:
        outer, self.m = self.m, Module()
        signal = super().wire(value, bits)
        outer.submodules += self.m
        self.m = outer
        return signal


def edged(rng: random.Random, bits: int) -> int:
    """Returns a number of any length, or next to a power of two."""
    if rng.random() < 0.2:
        return max(0, min((1 << bits) - 1, (1 << rng.randint(0, bits)) + rng.randint(-1, 1)))
    return rng.getrandbits(rng.randint(0, bits) or 1) % (1 << bits)


@pytest.mark.slow
@CASES
def test_quotients_of_sums(cases: int) -> None:
    rng = random.Random(1)
    m, total, number, exponent = Module(), Signal(ROW_SUM_BITS), Signal(18), Signal(8)
    found = Signal(32)
    m.d.comb += found.eq(Reference(m, "r").row_scale(total, number, exponent))

    async def bench(ctx: Any) -> None:
        for _ in range(cases):
            values = edged(rng, ROW_SUM_BITS), edged(rng, 18), edged(rng, 8)
            for signal, value in zip((total, number, exponent), values):
                ctx.set(signal, value)
            assert ctx.get(found) == row_scale(*values), values

    simulate(m, bench, clock_hz=None)


@pytest.mark.slow
@CASES
def test_norms_of_sums(cases: int) -> None:
    rng = random.Random(2)
    m = Module()
    shapes = {"squares": SQUARES_BITS, "total": TOTAL_BITS, "count": COUNT_BITS, "epsilon": 32 + EPSILON_FRACTION}
    ports = {name: Signal(bits, name=name) for name, bits in (shapes | {"centred": 1}).items()}
    r = Reference(m, "r")
    scaled = product(digits(ports["count"]), digits(ports["squares"]))
    squared = of_digits(product(digits(ports["total"]), digits(ports["total"])))
    radicand = r.radicand(of_digits(scaled), Mux(ports["centred"], squared, 0), ports["epsilon"])
    shifted, exponent = r.shifted(radicand)
    root = r.wire(r.root(shifted))
    factor = r.wire(r.factor(root))
    mean = r.wire(r.mean(ports["total"], ports["count"]))
    offset = r.wire(r.offset(of_digits(product(digits(above_middle(mean)), digits(factor)))), 32)

    async def bench(ctx: Any) -> None:
        for _ in range(cases):
            values = {name: edged(rng, bits) for name, bits in shapes.items()}
            if rng.random() < 0.5:  # a row that there can be
                u = [rng.randint(0, 255) for _ in range(rng.choice([1, 3, 64]))]
                count = len(u) * rng.choice([1, 64])
                values |= {"squares": sum(v * v for v in u) * count // len(u), "total": sum(u) * count // len(u)}
                values["count"] = count % (1 << COUNT_BITS)
            centred = rng.randint(0, 1)
            for name, value in (values | {"centred": centred}).items():
                ctx.set(ports[name], value)
            epsilon = values["epsilon"] - (values["epsilon"] >> 31 + EPSILON_FRACTION << 32 + EPSILON_FRACTION)
            expected = row_norm(values["squares"], values["total"], values["count"], epsilon, bool(centred))
            got = ctx.get(factor), ctx.get(offset), ctx.get(exponent)
            assert got == (expected.factor, expected.offset % (1 << 32), expected.exponent), values

    simulate(m, bench, clock_hz=None)


@pytest.mark.medium
@CASES
def test_roots(cases: int) -> None:
    """Roots of squares and of their neighbours are right."""
    rng = random.Random(3)
    m, radicand, found = Module(), Signal(40), Signal(26)
    m.d.comb += found.eq(Reference(m, "r").root(radicand))

    async def bench(ctx: Any) -> None:
        for _ in range(cases):
            value = max(0, rng.getrandbits(rng.randint(1, 20)) ** 2 + rng.randint(-1, 1))
            ctx.set(radicand, value)
            assert ctx.get(found) == math.isqrt(value << 12) | 1

    simulate(m, bench, clock_hz=None)
