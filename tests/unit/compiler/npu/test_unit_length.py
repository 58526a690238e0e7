"""LpNormalization by the row unit: channels of planes, and rows, in one step of the NPU."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.reference.quantized_models import Model
from tilewright.isa.program import CpuStep, NpuStep


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("planes", [True, False])
def test_equals_onnxruntime(planes: bool, dtype: type) -> None:
    """Every fifth row is zeros, which the norm leaves zeros."""
    m = Model(dtype, seed=4)
    zero = int(np.iinfo(dtype).min) + 128
    if planes:
        x = m.input((1, 8, 10, 12), 0.05, zero)
        y = m.requantized(m.op("Conv", x, m.weights((40, 8, 1, 1))), 0.1, zero)
        y = m.requantized(m.op("LpNormalization", y, axis=1, p=2), 1 / 128, zero)
        m.output(m.requantized(m.op("Conv", y, m.weights((8, 40, 1, 1))), 0.01, zero))
    else:
        x = m.input((1, 100, 8), 0.05, zero)
        y = m.requantized(m.op("MatMul", x, m.weights((8, 72))), 0.1, zero)
        y = m.requantized(m.op("LpNormalization", y, axis=-1, p=2), 1 / 128, zero)
        m.output(m.requantized(m.op("MatMul", y, m.weights((72, 20))), 0.01, zero))
    steps = tw.compile_program(m.build(), "base", cache=False).steps
    assert sum(isinstance(step, NpuStep) for step in steps) == 1
    assert not any("QNorm" in o for s in steps if isinstance(s, CpuStep) for o in s.ops)
    feeds = m.feeds()
    for value in feeds.values():
        np.moveaxis(value, 2 if planes else 1, 0)[::5] = 0
    for options in ({}, {"cpu_only": True}):
        report = tw.check(m.build(), feeds, config="base", keep="all", cache=False, **options)
        assert report.ok and {row.max_abs_difference for row in report.rows} <= {0, 1}, report.summary()
        assert sum(row.mismatches for row in report.rows) <= 2
