"""Packed inputs with few channels: the remaining convolution gives the sums of the original one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.npu.blocks.test_tables import relayout
from tilewright.compiler.npu.blocks.packing import plan_packing, repack_weights
from tilewright.isa.config import PRESETS

BASE = PRESETS["base"]


def convolved(
    x: np.ndarray, w: np.ndarray, pad: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> np.ndarray:
    """Returns the convolution of [C, H, W] with [O, C, kh, kw], computed output by output."""
    (_, h, width), (o, _, kh, kw) = x.shape, w.shape
    padded = np.pad(x, ((0, 0), (pad[0], pad[0]), (pad[1], pad[1])))
    oh = (h + 2 * pad[0] - (kh - 1) * dilation[0] - 1) // stride[0] + 1
    ow = (width + 2 * pad[1] - (kw - 1) * dilation[1] - 1) // stride[1] + 1
    out = np.zeros((o, oh, ow), np.int64)
    for y in range(oh):
        for z in range(ow):
            rows = slice(y * stride[0], y * stride[0] + (kh - 1) * dilation[0] + 1, dilation[0])
            columns = slice(z * stride[1], z * stride[1] + (kw - 1) * dilation[1] + 1, dilation[1])
            out[:, y, z] = np.tensordot(w, padded[:, rows, columns], 3)
    return out


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "dilation", "pad"),
    [
        (3, (7, 7), (2, 2), (1, 1), (3, 3)),
        (3, (3, 3), (1, 1), (1, 1), (1, 1)),
        (1, (5, 3), (1, 2), (2, 1), (2, 0)),
        (3, (11, 11), (4, 4), (1, 1), (2, 2)),
        (2, (1, 5), (1, 1), (1, 1), (0, 2)),
    ],
)
def test_same_sums(
    channels: int, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], pad: tuple[int, int]
) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (channels, 19, 17))
    w = rng.integers(-128, 128, (4, channels, *kernel))
    expected = convolved(x, w, pad, stride, dilation)
    out = expected.shape[1], expected.shape[2]
    plan = plan_packing(BASE, channels, (19, 17), out, 4, kernel, stride, dilation, pad)
    assert plan is not None
    shape, tables = plan.tables(1, BASE.block_in, stride[1], pad[1], dilation[1])
    packed = np.moveaxis(relayout(x[None], shape, tables)[0], -1, 0)[: plan.packed_channels]
    remaining = convolved(
        packed, repack_weights(plan, w), (plan.pad_rows, 0), (plan.stride_rows, 1), (plan.dilation_rows, 1)
    )
    np.testing.assert_array_equal(remaining[:, : out[0], : out[1]], expected)


def test_not_where_channels_fill_the_array() -> None:
    assert plan_packing(BASE, 64, (8, 8), (8, 8), 64, (3, 3), (1, 1), (1, 1), (1, 1)) is None


def test_a_slow_host_packs_less() -> None:
    """The 7x7 of a ResNet is packed by all rows, or by two where the CPU is slow; unpacked it has more bytes."""
    shape = (BASE, 3, (224, 224), (112, 112), 64, (7, 7), (2, 2), (1, 1), (3, 3))
    plans = [plan_packing(*shape, byte_cycles) for byte_cycles in (0.0, 0.35, 100.0)]
    assert [plan.rows if plan else None for plan in plans] == [7, 2, 2]
