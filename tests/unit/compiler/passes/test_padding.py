"""Pad between DequantizeLinear and QuantizeLinear: its value is quantised once, by what follows."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.common import onnx_models
from tests.reference.quantized_models import Model

PADS = [0, 0, 1, 2, 0, 0, 2, 1]


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("value", [None, -np.inf, np.inf, 0.1, -0.3, 0.075, 0.125, 1000.0])
@pytest.mark.parametrize(
    "before, after", [((0.05, 3), (0.2, 3)), ((0.2, -5), (0.05, 7)), ((0.05, 3), (0.05, 3)), ((0.05, 127), (0.1, -128))]
)
def test_another_scale_behind(
    before: tuple[float, int], after: tuple[float, int], value: float | None, dtype: type
) -> None:
    """Padding values may be ties, out of range or infinite, in front of another move and behind a product."""
    offset = 128 if dtype == np.uint8 else 0
    m = Model(dtype, seed=1)
    x = m.input((1, 3, 4, 4), before[0], before[1] + offset)
    values = [] if value is None else [m.const(value, np.float32)]
    m.output(m.requantized(m.op("Pad", x, m.const(PADS), *values), after[0], after[1] + offset))
    padded = m.op("Pad", x, m.const(PADS[::-1]), *values)
    m.output(m.requantized(m.op("Transpose", padded, perm=[0, 2, 3, 1]), after[0], after[1] + offset))
    onnx_models.assert_equal(m.build(), m.feeds())


@pytest.mark.medium
@pytest.mark.parametrize("scale", [0.05, 0.031])
def test_least_value_in_front_of_max_pool(scale: float) -> None:
    """Everything of the same scale stays integer, though no integer is -infinity."""
    m = Model(np.int8, seed=2)
    x = m.input((1, 3, 6, 6), 0.05, -4)
    y = m.op("Pad", x, m.const([0, 0, 1, 1, 0, 0, 1, 1]), m.const(-np.inf, np.float32))
    m.output(m.requantized(m.op("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2]), scale, -4))
    onnx_models.assert_equal(m.build(), m.feeds())
    program = tw.compile_program(m.build(), "tiny", cache=False)
    assert any("QMaxPool" in layer.op for layer in program.layers) is (scale == 0.05), program.layers
