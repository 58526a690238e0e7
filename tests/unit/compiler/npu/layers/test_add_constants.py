"""Constants of Adds: a QAdd's own as the machine stores its values, and the operand pairs that bound constant c."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.compiler.graph.graph import Quant, Tensor
from tilewright.compiler.graph.ops.elementwise import AddConstants, QAdd
from tilewright.compiler.npu.int8_storage import StoredType
from tilewright.compiler.npu.layers.add_constants import (
    _constant_range,
    _multipliers,
    _reference_results,
    _step_pairs,
    stored_add_constants,
)

BYTES = (np.int8, np.uint8)


def tensor(dtype: Any) -> Tensor:
    return Tensor("t", (4,), np.dtype(dtype), None, Quant.of(np.float32(0.05), 3))


@pytest.mark.parametrize("y", BYTES)
@pytest.mark.parametrize("b", BYTES)
@pytest.mark.parametrize("a", BYTES)
@pytest.mark.parametrize(
    ("ma", "mb", "c", "shift"), [(1, 1, 0, 0), (3, -5, 7, 2), (-700, 900, 12345, 10), (0, 1 << 22, -9, 23)]
)
def test_constants_of_the_op_itself(ma: int, mb: int, c: int, shift: int, a: Any, b: Any, y: Any) -> None:
    found = stored_add_constants(QAdd(constants=AddConstants(ma, mb, c, shift)), *map(tensor, (a, b, y)))
    assert found is not None and found.shift == shift
    low = [int(np.iinfo(dtype).min) for dtype in (a, b, y)]
    values = np.arange(256)
    wanted = ((values[:, None] + low[0]) * ma + (values + low[1]) * mb + c) >> shift
    on_machine = ((values[:, None] - 128) * found.ma + (values - 128) * found.mb + found.c) >> shift
    np.testing.assert_array_equal(on_machine + 128, wanted - low[2])


@pytest.mark.parametrize(
    ("constants", "fits"),
    [
        (AddConstants((1 << 23) - 1, 1, 0, 0), True), (AddConstants(1 << 23, 1, 0, 0), False),
        (AddConstants(1, -(1 << 23), 0, 0), False), (AddConstants(1, 1, 0, 31), True),
        (AddConstants(1, 1, 0, 32), False), (AddConstants(0, 0, (1 << 31) - 1, 0), True),
        (AddConstants(0, 0, 1 << 31, 0), False), (AddConstants(1, 0, (1 << 31) - 129, 0), True),
        (AddConstants(1, 0, 128 - (1 << 31), 0), False), (AddConstants(0, 1, 128 - (1 << 31), 0), False),
    ],
)  # fmt: skip
def test_constants_for_which_the_machine_has_no_room(constants: AddConstants, fits: bool) -> None:
    found = stored_add_constants(QAdd(constants=constants), *[tensor(np.int8)] * 3)
    assert found == (constants if fits else None)


@pytest.mark.medium
def test_pairs_beside_a_step_decide() -> None:
    """The pairs next to a step of the result, and the two corners, bound c as tightly as all pairs do."""
    rng, bound = np.random.default_rng(1), 0
    for _ in range(40):
        scales = np.exp(rng.uniform((-5, -9, -5), (-2, -2, -1))).astype(np.float32)
        types: list[StoredType] = [(float(s), int(rng.integers(-128, 128)), 0) for s in scales]
        low, high = (-128, 127) if rng.random() < 0.5 else sorted(int(v) for v in rng.choice(256, 2, False) - 128)
        a, b, target = _reference_results(types[0], types[1], types[2], low, high, False)
        fa, fb, ft = _step_pairs(a, b, target)
        for ma, mb, shift in list(_multipliers(*types))[:100:20]:
            few, every = (
                _constant_range(x * ma + y * mb, t, shift, low, high) for x, y, t in ((fa, fb, ft), (a, b, target))
            )
            assert few == every
            bound += every is not None
    assert bound > 20


@pytest.mark.parametrize(
    "ratios", [(1.0, 1.0), (0.3, 0.004), (2.0**-12, 1.0), (700.0, 3.0), (1e-9, 1e-9), (2.0**14, 1.0)]
)
def test_multipliers_have_as_many_bits_as_fit(ratios: tuple[float, float]) -> None:
    """Multipliers with most bits come first; sums of products stay below 2**30, so that c can be as large."""
    types: list[StoredType] = [(0.01 * ratio, 5, 0) for ratio in ratios]
    found = list(_multipliers(types[0], types[1], (0.01, -3, 0)))
    shifts = [shift for _, _, shift in found]
    assert shifts == sorted(shifts, reverse=True) and set(shifts) == set(range(8, max(shifts) + 1))
    for ma, mb, shift in found:
        assert max(abs(ma), abs(mb)) < 1 << 23 and (abs(ma) + abs(mb)) * 128 < 1 << 30
        assert max(abs(m / 2**shift - ratio) for m, ratio in zip((ma, mb), ratios)) < 4 * 2.0**-shift
    assert max(shifts) == 23 or sum(ratios) * 2 ** (max(shifts) + 1) * 128 > 0.99 * (1 << 30)


def test_corners_decide_where_all_results_are_one() -> None:
    q = np.arange(-128, 128)
    a, b, _ = _step_pairs(q[:, None], q[None, :], np.full((256, 256), 5))
    assert sorted(a + b) == [-256, 254]
