"""Norms of rows in integers, against exact fractions."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from tilewright.isa.row_bits import EPSILON_FRACTION, FACTOR_BITS, MEAN_FRACTION
from tilewright.isa.row_norm import FACTOR_SCALE, RowNorm, mean_of, normalise, row_norm


@pytest.mark.medium
@pytest.mark.parametrize("centred", [True, False])
def test_rows_against_exact_values(centred: bool) -> None:
    rng = random.Random(3)
    for _ in range(300):
        n = rng.choice([1, 2, 3, 17, 192, 1024, 4096])
        spread = rng.choice([0, 1, 20, 127])
        middle = rng.randint(-128 + spread, 127 - spread)
        q = [rng.randint(middle - spread, middle + spread) for _ in range(n)]
        u = [v + 128 for v in q]
        epsilon = rng.choice([1, 7, 1000, rng.randrange(1 << 31)]) << EPSILON_FRACTION
        epsilon = epsilon + rng.getrandbits(EPSILON_FRACTION) if spread else epsilon
        got = row_norm(sum(v * v for v in u), sum(u), n, epsilon, centred)
        exact = n * sum(v * v for v in u) - (sum(u) ** 2 if centred else 0) + Fraction(epsilon, 1 << EPSILON_FRACTION)
        assert 0 < got.factor < 1 << FACTOR_BITS and 0 <= got.exponent <= 20
        # factor * 2**exponent is 2**FACTOR_SCALE / sqrt(exact), of a root of 26 bits truncated to 23.
        ratio = Fraction(got.factor * 2**got.exponent) ** 2 * exact / Fraction(1 << 2 * FACTOR_SCALE)
        assert abs(ratio - 1) < Fraction(1, 1 << 20)
        mean = Fraction(sum(u), n)
        assert 0 <= mean - Fraction(mean_of(sum(u), n), 1 << MEAN_FRACTION) < Fraction(1, 1 << MEAN_FRACTION)
        error = got.offset - -(mean - 128) * got.factor
        assert abs(error - Fraction(got.factor, 2 << MEAN_FRACTION)) <= Fraction(
            1 + Fraction(got.factor, 1 << MEAN_FRACTION), 2
        )


@pytest.mark.parametrize("n", [2, 16, 192, 1024])
def test_epsilon_of_rows_that_are_nearly_constant(n: int) -> None:
    """One element differs by 1: the fraction of epsilon is as exact as the factor is."""
    rng = random.Random(n)
    for _ in range(50):
        epsilon = rng.getrandbits(EPSILON_FRACTION + 4)
        got = row_norm(n * 100**2 + 201, n * 100 + 1, n, epsilon, centred=True)
        exact = n - 1 + Fraction(epsilon, 1 << EPSILON_FRACTION)
        ratio = Fraction(got.factor * 2**got.exponent) ** 2 * exact / Fraction(1 << 2 * FACTOR_SCALE)
        assert abs(ratio - 1) < Fraction(1, 1 << 20)


def test_values_against_exact_ones() -> None:
    """Ties of the sum of product and bias go to even; the product alone was rounded to 24 bits."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        row = RowNorm(
            int(rng.integers(1 << 22, 1 << 23)), int(rng.integers(-(1 << 29), 1 << 29)), int(rng.integers(21))
        )
        values = rng.integers(-128, 128, 16).astype(np.int8)
        scale = (rng.normal(0, 1, 16) * 2.0 ** (-24 - row.exponent)).astype(np.float32)
        bias = rng.integers(-(1 << 29), 1 << 29, 16).astype(np.int32)
        got = normalise(values, row, bias, scale.view(np.uint32), 5, -128, 127)
        for q, s, b, y in zip(values, scale, bias, got):
            start = np.float32(int(q) * row.factor + row.offset)
            product = Fraction(float(np.float32(start * s))) * 2**row.exponent
            exact = product + Fraction(int(b), 1 << 23)
            assert y == min(max(round(exact) + 5, -128), 127)


def test_ties_and_what_is_less_than_a_bit() -> None:
    half, tiny = np.array([1 << 22], np.int32), np.float32(2.0**-60)
    even = RowNorm(1, 0, 0)
    scales = {0.0: 0, float(tiny): 1, -float(tiny): 0}
    for scale, expected in scales.items():
        assert normalise(np.int8([1]), even, half, np.float32([scale]).view(np.uint32), 0, -128, 127) == [expected]
    assert normalise(np.int8([1]), even, 3 * half, np.float32([0]).view(np.uint32), 0, -128, 127) == [2]


def test_products_beyond_the_range_saturate() -> None:
    scale = np.float32([2.0**20, -(2.0**20)]).view(np.uint32)
    bias = np.int32([-(1 << 30), 1 << 30])  # 128 the other way
    assert normalise(np.int8([1, 1]), RowNorm(3, 0, 7), bias, scale, 0, -128, 127).tolist() == [127, -128]
    assert math.isclose(float(scale.view(np.float32)[0]), 2.0**20)
