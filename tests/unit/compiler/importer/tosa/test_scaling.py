"""The NPU's passes of a RESCALE: added, they give the specification's byte for every sum."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.compiler.importer.tosa.passes import Pass, npu_passes
from tilewright.compiler.importer.tosa.scaling import Scaling, apply_scale
from tilewright.isa import numerics

INT32 = np.array([-(1 << 31)]), np.array([(1 << 31) - 1])


def _scaling(multiplier: int, shift: int, zero: int = 0, double: bool = False) -> Scaling:
    return Scaling(np.array([multiplier]), np.array([shift]), 0, zero, -128, 127, double)


def _added(passes: list[Pass], sums: np.ndarray) -> np.ndarray:
    """The machine's results of sums [sums, channels], int64."""
    whole = np.zeros(sums.shape, np.int64)
    for k, part in enumerate(passes):
        made = numerics.requantize(
            sums + part.offsets, part.factors.view(np.uint32), part.zero, part.low, part.high
        ).astype(np.int64)
        whole = made if not k else np.clip(whole + made - part.low, -128, 127)
    return whole


@pytest.mark.parametrize("double", [False, True])
def test_apply_scale_by_exact_integers(double: bool) -> None:
    r = np.random.default_rng(0)
    values, multiplier, shift = r.integers(-(1 << 31), 1 << 31, 300), 1518500250, 40
    for value, got in zip(values.tolist(), apply_scale(values, multiplier, shift, double).tolist()):
        rounding = (1 << 39) + ((1 << 30) if value >= 0 else -(1 << 30)) * double
        assert got == (value * multiplier + rounding) >> shift


def test_one_pass_is_right_for_all_int32() -> None:
    r, found = np.random.default_rng(1), 0
    for _ in range(60):
        scaling = _scaling(int(r.integers(1 << 30, 1 << 31)), int(r.integers(35, 40)), int(r.integers(-128, 128)))
        passes = npu_passes(scaling, *INT32, limit=1)
        if isinstance(passes, str):
            assert "no float32 factors round like its 31-bit multipliers; 1 passes have" in passes
            continue
        found += 1
        sums = np.concatenate([np.arange(-60000, 60000), r.integers(-(1 << 31), 1 << 31, 5000)])[:, None]
        np.testing.assert_array_equal(_added(passes, sums), scaling.of(sums))
    assert 10 < found < 60


@pytest.mark.parametrize("double", [False, True])
def test_passes_are_right_for_all_sums_of_a_layer(double: bool) -> None:
    r, channels, counts = np.random.default_rng(2), 24, []
    for zero, low in ((-128, -128), (5, -128), (-20, -20)):
        multiplier, shift = r.integers(1 << 30, 1 << 31, channels), r.integers(37, 40, channels)
        scaling = Scaling(multiplier, shift, 0, zero, low, 127, double)
        reach = np.full(channels, -140_000), r.integers(100_000, 150_000, channels)
        passes = npu_passes(scaling, *reach)
        assert not isinstance(passes, str)
        assert passes[0].low == low and passes[-1].high == 127
        sums = np.arange(reach[0].min(), reach[1].max() + 1)[:, None]
        within = (sums >= reach[0]) & (sums <= reach[1])
        got = _added(passes, np.clip(sums, *reach))
        np.testing.assert_array_equal(got[within], np.broadcast_to(scaling.of(sums), got.shape)[within])
        counts.append(len(passes))
    assert max(counts) > 1


def test_ties_have_a_pass_where_all_of_them_can_lie_above_its_zero_point() -> None:
    eighth = _scaling(1 << 30, 33)  # TOSA rounds -0.5 up, the NPU to even
    assert len(npu_passes(eighth, *INT32)) == 2  # for all int32 no offset can be added
    assert len(npu_passes(eighth.clamped(0, 127), *INT32)) == 1
    sums = np.arange(-20_000, 20_001)[:, None]
    passes = npu_passes(eighth, sums[0], sums[-1])
    assert isinstance(passes, list) and len(passes) == 1 and passes[0].zero == -128
    np.testing.assert_array_equal(_added(passes, sums), eighth.of(sums))


def test_what_has_no_passes_says_why() -> None:
    reach = np.array([-1000]), np.array([1000])
    scaling = _scaling(1518500250, 38)
    assert "input zero point 3" in str(npu_passes(Scaling(scaling.multiplier, scaling.shift, 3, 0, -128, 127), *reach))
    assert "a multiplier is 0" in str(npu_passes(_scaling(0, 38), *reach))
    assert "leave 32 bits" in str(npu_passes(scaling, reach[0], np.array([1 << 31])))


def test_a_constant_result_is_one_pass() -> None:
    passes = npu_passes(_scaling(1518500250, 38).clamped(7, 7), *INT32)
    assert isinstance(passes, list) and len(passes) == 1
    assert set(_added(passes, np.array([[-(1 << 31)], [0], [(1 << 31) - 1]])).ravel()) == {7}
