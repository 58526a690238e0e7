"""Blocked buffers and tensors."""

import numpy as np
import pytest

from tilewright.isa.program import BlockedLayout, Layout, TensorInfo
from tilewright.runtime.layout import dtype_of, nbytes_of, put_tensor, to_tensor


def test_plain():
    info = TensorInfo("a", (2, 3), "float32", "b")
    raw = np.zeros(32, np.uint8)
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    put_tensor(raw, info, value)
    assert nbytes_of(info) == 24
    np.testing.assert_array_equal(to_tensor(raw, info), value)
    assert dtype_of(TensorInfo("a", (), "bfloat16", "")).itemsize == 2


def test_blocked_by_hand():
    info = TensorInfo("a", (1, 5, 1, 2), "uint8", "b", relayout=BlockedLayout((1, 2, 1, 2, 4), 4, 128))
    raw = np.full(16, 99, np.uint8)
    put_tensor(raw, info, np.arange(10, dtype=np.uint8).reshape(info.shape))
    moved = [[0, 2, 4, 6], [1, 3, 5, 7], [8], [9]]
    assert raw.reshape(4, 4).tolist() == [[v ^ 128 for v in row] + [99] * (4 - len(row)) for row in moved]
    np.testing.assert_array_equal(to_tensor(raw, info).reshape(-1), np.arange(10))


def test_two_bytes_by_hand():
    info = TensorInfo("a", (1, 3, 1, 1), "int16", "b", relayout=BlockedLayout((1, 4, 1, 1, 2), 2))
    raw = np.full(8, 99, np.uint8)
    put_tensor(raw, info, np.array([0x1234, -1, -32768], np.int16).reshape(info.shape))
    assert raw.tolist() == [0x12, 0xFF, 0x80, 99, 0x34 ^ 128, 0xFF ^ 128, 128, 99]
    np.testing.assert_array_equal(to_tensor(raw, info).reshape(-1), [0x1234, -1, -32768])
    assert nbytes_of(info) == 8


@pytest.mark.parametrize(
    "shape, planes, convention",
    [
        ((2, 20, 3, 4), (2, 20, 3, 4), "c1"),
        ((2, 20, 7), (2, 20, 1, 7), "c1"),
        ((3, 20), (3, 20, 1, 1), "c1"),
        ((2, 3, 5, 20), (6, 20, 1, 5), "last"),
        ((5, 20), (1, 20, 1, 5), "last"),
        ((20,), (1, 20, 1, 1), "last"),
    ],
)
def test_blocked_round_trip(shape, planes, convention):
    n, c, h, w = planes
    relayout = BlockedLayout((n, -(-c // 16), h, w, 16), 16, 0, Layout(convention))
    info = TensorInfo("a", shape, "int8", "b", relayout=relayout)
    random = np.random.default_rng(0)
    value = random.integers(-128, 128, shape).astype(np.int8)
    raw = random.integers(0, 256, nbytes_of(info)).astype(np.uint8)
    before = raw.reshape(relayout.shape).copy()
    put_tensor(raw, info, value)
    np.testing.assert_array_equal(to_tensor(raw, info), value)
    blocks = raw.reshape(relayout.shape)
    np.testing.assert_array_equal(blocks[:, -1, ..., c % 16 :], before[:, -1, ..., c % 16 :])  # spare lanes stay
    rows = value.reshape(n, h * w, c) if convention == "last" else np.moveaxis(value.reshape(n, c, h * w), 1, 2)
    np.testing.assert_array_equal(blocks.view(np.int8)[0, 1, 0, 0, :4], rows[0, 0, 16:20])
