"""The NPU's factor of a RESCALE: where one is found it gives the specification's byte for every sum."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.compiler.importer.tosa.scaling import Scaling, apply_scale, npu_factors
from tilewright.isa import numerics

INT32 = np.array([-(1 << 31)]), np.array([(1 << 31) - 1])


def _scaling(multiplier: int, shift: int, zero: int = 0, double: bool = False) -> Scaling:
    return Scaling(np.array([multiplier]), np.array([shift]), 0, zero, -128, 127, double)


@pytest.mark.parametrize("double", [False, True])
def test_apply_scale_by_exact_integers(double: bool) -> None:
    r = np.random.default_rng(0)
    values, multiplier, shift = r.integers(-(1 << 31), 1 << 31, 300), 1518500250, 40
    for value, got in zip(values.tolist(), apply_scale(values, multiplier, shift, double).tolist()):
        rounding = (1 << 39) + ((1 << 30) if value >= 0 else -(1 << 30)) * double
        assert got == (value * multiplier + rounding) >> shift


def test_a_factor_is_right_for_all_sums_near_every_byte() -> None:
    r, found = np.random.default_rng(1), 0
    for _ in range(60):
        scaling = _scaling(int(r.integers(1 << 30, 1 << 31)), int(r.integers(35, 40)), int(r.integers(-128, 128)))
        factor = npu_factors(scaling, 1, *INT32)
        if isinstance(factor, str):
            continue
        found += 1
        sums = np.concatenate([np.arange(-60000, 60000), r.integers(-(1 << 31), 1 << 31, 5000)])
        got = numerics.requantize(sums, factor.view(np.uint32)[0], scaling.out_zero, -128, 127)
        np.testing.assert_array_equal(got, scaling.of(sums))
    assert 10 < found < 60


def test_ties_have_no_factor_but_where_a_clamp_hides_them() -> None:
    half = _scaling(1 << 30, 33)  # an eighth: TOSA rounds -0.5 up, the NPU to even
    assert "no float32 factor" in str(npu_factors(half, 1, *INT32))
    assert not isinstance(npu_factors(half.clamped(0, 127), 1, *INT32), str)
