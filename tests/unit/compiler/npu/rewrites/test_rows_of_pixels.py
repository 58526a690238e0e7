"""Pixels with their channels last, between planes: one turn of the NPU, with onnxruntime's bytes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.quantized_models import Model
from tests.unit.compiler.npu.rewrites.turns import compared, turns_of


def planes(m: Model, batch: int, channels: int, dtype: type) -> str:
    x = m.input((batch, 8, 6, 10), 0.05, int(np.iinfo(dtype).min) + 120)
    return m.requantized(m.op("Conv", x, m.weights((channels, 8, 1, 1))), 0.05, int(np.iinfo(dtype).min) + 117)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(("batch", "channels", "hidden"), [(1, 12, 40), (2, 32, 20), (1, 5, 3)])
def test_block_of_products(batch: int, channels: int, hidden: int, dtype: type) -> None:
    """Two products with a function between, and the sum of planes behind, as in ConvNeXt."""
    m, zero = Model(dtype, seed=2), int(np.iinfo(dtype).min) + 128
    x = planes(m, batch, channels, dtype)
    y = m.requantized(m.op("Transpose", x, perm=[0, 2, 3, 1]), 0.05, zero - 11)
    y = m.requantized(m.op("MatMul", y, m.weights((channels, hidden), axis=1)), 0.2, zero - 3)
    y = m.requantized(m.op("HardSwish", y), 0.15, zero - 100)
    y = m.requantized(m.op("MatMul", y, m.weights((hidden, channels), axis=1)), 0.3, zero)
    if dtype == np.int8:  # weights are int8, and a product of two types stays in floats
        y = m.requantized(m.op("Mul", y, m.weights((channels,))), 0.1, zero)
    y = m.requantized(y, 0.1, zero)
    y = m.requantized(m.op("Transpose", y, perm=[0, 3, 1, 2]), 0.1, zero)
    y = m.requantized(m.op("Add", x, y), 0.173, zero)
    m.output(m.requantized(m.op("Conv", y, m.weights((8, channels, 1, 1))), 0.3, zero))
    assert turns_of(compared(m, "base")) == 1


@pytest.mark.medium
@pytest.mark.parametrize("config", ["tiny", "base"])
def test_flat_rows_between(config: str) -> None:
    """Products of rows [H * W, C], as a Gemm has them, with pixels before and behind, which are an output, too."""
    m = Model(np.int8, seed=3)
    y = m.requantized(m.op("Transpose", planes(m, 1, 16, np.int8), perm=[0, 2, 3, 1]), 0.05, -11)
    y = m.op("Reshape", y, m.const([60, 16], np.int64))
    y = m.requantized(m.op("MatMul", y, m.weights((16, 24), axis=1)), 0.2, 0)
    y = m.requantized(m.op("Reshape", y, m.const([1, 6, 10, 24], np.int64)), 0.2, 0)
    y = m.requantized(m.op("MatMul", y, m.weights((24, 16), axis=1)), 0.3, 0)
    m.output(y)
    y = m.requantized(m.op("Transpose", y, perm=[0, 3, 1, 2]), 0.3, 0)
    m.output(m.requantized(m.op("Conv", y, m.weights((8, 16, 3, 3))), 0.5, 0))
    assert turns_of(compared(m, config)) == 1


@pytest.mark.medium
@pytest.mark.parametrize("heads", [1, 2])
def test_heads_stay(heads: int) -> None:
    """Rows divided into heads are no pixels, though they are transposed as such."""
    m = Model(np.int8, seed=5)
    x = m.requantized(m.op("MatMul", m.input((1, 12, 32), 0.05, 3), m.weights((32, 32), axis=1)), 0.1, 0)
    split = m.op("Reshape", x, m.const([1, 12, heads, 32 // heads], np.int64))
    keys = m.requantized(m.op("Transpose", split, perm=[0, 2, 3, 1]), 0.1, 0)
    keys = m.requantized(m.op("HardSwish", keys), 0.1, 0)
    queries = m.requantized(m.op("Transpose", split, perm=[0, 2, 1, 3]), 0.1, 0)
    m.output(m.requantized(m.op("MatMul", queries, keys), 0.7, 0))
    assert turns_of(compared(m, "base")) >= 1
