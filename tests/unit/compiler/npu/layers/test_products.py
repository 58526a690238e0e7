"""Lower bounds of `tilewright.compiler.npu.layers.products`: taps and steps equal a count one by one."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.compiler.npu.layers.products import Products, minimum_constants, taps_inside, transposed_taps
from tilewright.compiler.npu.layers.rest import Rest
from tilewright.isa.config import PRESETS

CASES = [(7, 3, 1, 1, 1), (8, 3, 2, 1, 1), (9, 5, 1, 2, 4), (6, 1, 2, 1, 0), (5, 4, 3, 1, 2)]


@pytest.mark.parametrize(("size", "kernel", "stride", "dilation", "pad"), CASES)
def test_taps(size: int, kernel: int, stride: int, dilation: int, pad: int) -> None:
    outputs = (size + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1
    found = taps_inside(outputs, size, kernel, stride, dilation, pad)
    for o in range(outputs):
        assert found[o] == sum(0 <= o * stride - pad + k * dilation < size for k in range(kernel))


@pytest.mark.parametrize(("size", "kernel", "stride", "dilation", "pad"), CASES)
def test_taps_of_a_transposed_convolution(size: int, kernel: int, stride: int, dilation: int, pad: int) -> None:
    outputs = (size - 1) * stride + (kernel - 1) * dilation + 1 - 2 * pad
    found = transposed_taps(outputs, size, kernel, stride, dilation, pad)
    assert len(found) == outputs
    for o in range(outputs):
        assert found[o] == sum(i * stride + k * dilation - pad == o for i in range(size) for k in range(kernel))


@pytest.mark.parametrize("name", ["tiny", "base", "large"])
def test_steps(name: str) -> None:
    config, r = PRESETS[name], np.random.default_rng(0)
    rows, columns = (taps_inside(n, n, 3, 1, 1, 1) for n in (6, 5))
    wanted = [r.random(n) < 0.7 for n in (6, 5)]
    lanes = 0
    for y in np.flatnonzero(wanted[0]):
        for x in np.flatnonzero(wanted[1]):
            products = rows[y] * columns[x] * 13
            lanes += 24 * -(-products // config.block_in)
    assert Products(rows, columns, 13, 24).steps(config, *wanted) == -(-lanes // config.block_out)


def test_constants() -> None:
    weights = np.zeros((1, 4, 3, 1, 1), np.int8)
    weights[0, :2, :, 0, 0] = 5
    bias, scale = np.array([1, 1, 2, 2], np.int32), np.array([1, 1, 1, 3], np.float32)
    key, nbytes = minimum_constants([weights], [None], bias, scale)
    assert nbytes == 6 + 8 * 3  # pairs (1, 1), (2, 1) and (2, 3)
    assert minimum_constants([weights.copy()], [None], bias, scale) == (key, nbytes)
    rest = Rest.of(np.ones((1, 4, 3, 1, 1), np.int8), 1, PRESETS["base"])
    other, more = minimum_constants([weights], [rest], bias, scale)
    assert other != key and more == nbytes + 12
