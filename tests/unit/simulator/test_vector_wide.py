"""VECTOR with results of 16 bits, with values worked out by hand."""

import numpy as np

from tests.unit.simulator.by_hand import TINY, bench
from tilewright.isa import wide_numerics
from tilewright.isa.encoding import op
from tilewright.isa.instructions import WideByte

SIXTEEN = TINY.with_(name="sixteen", wide_results=1)


def test_vector_wide_bytes_of_rounded_sums(path: str) -> None:
    """Sums of high bytes in rows 2 and 3, of low bytes in rows 5 and 6: 256 times the one and the other, times 3/4."""
    b = bench(path, SIXTEEN)
    b.pads.acc[8:16] = [0, 1, -1, 100, 1 << 24, -(1 << 24), -3, 9]
    b.pads.acc[20:28] = [2, 2, 254, -3, 0, 5, 0, 1]
    b.pads.prm[1, :, 0] = 0
    b.pads.prm[1, :, 1] = wide_numerics.wide_parameters(0, *wide_numerics.wide_multiplier(0.75))[1]
    nest = [
        op("VECTOR_LOOP", level=0, count=2, a_stride=3),
        op("VECTOR_LOOP", level=1, count=2, a_stride=1, dst_stride=2),
    ]
    wide = {"a": 2, "prm": 1, "reduce": 1, "low": -30000, "high": 20000}
    b.run([*nest, op("VECTOR_WIDE", byte=WideByte.HIGH, dst=8, **wide), op("VECTOR_WIDE", dst=9, **wide)])
    values = 256 * b.pads.act[8:11:2].astype(int) + b.pads.act[9:12:2] + 128
    # 1.5, 193.5, -1.5, 19197.75; far beyond the limits; -576, 1728.75
    assert values.tolist() == [[2, 194, -1, 19198], [20000, -30000, -576, 1729]]


def test_vector_wide_wraps_at_48_bits_and_shifts_once_a_row(path: str) -> None:
    b = bench(path, SIXTEEN)
    b.pads.acc[0:12] = [1, 0, 1, -1, 0, 0, 0, 0, 0, 0, 0, 0]
    b.pads.acc[12:16] = [3, -1, 1 << 30, 0]
    b.pads.prm[0, :, 0] = [0, 7, 0, 0]
    b.pads.prm[0, :, 1] = [1 | 24 << 16, 2, 1 | 45 << 16, 1 | 23 << 16]
    loop = op("VECTOR_LOOP", level=0, count=4, a_stride=1, dst_stride=5, prm_stride=5)
    b.run([loop, op("VECTOR_WIDE", reduce=1, low=-32768, high=32767, dst=3)])
    # (2**24 + 3) / 2**25 is above a half; (-1 + 7) * 2 / 2; (2**24 + 2**30) / 2**46; -(2**24) / 2**24.
    assert (b.pads.act[3].astype(int) + 128).tolist() == [1, 6, 0, 255]
    b.pads.acc[0] = 1 << 23
    b.run([loop, op("VECTOR_WIDE", reduce=1, low=-32768, high=32767, dst=3, byte=WideByte.HIGH)])
    assert b.pads.act[3, 0] == -128  # 2**23 * 2**24 is -2**47 in 48 bits


def test_vector_wide_has_biases_of_42_bits(path: str) -> None:
    b = bench(path, SIXTEEN)
    b.pads.acc[0:4] = [5, -5, 1 << 30, 0]
    biases = np.array([(1 << 40) - 5, -wide_numerics.WIDE_BIAS_MOST, 1 << 31, -1])
    low, scale = wide_numerics.wide_parameters(biases, 1 << 14, [46, 46, 39, 15])
    b.pads.prm[0, :, 0], b.pads.prm[0, :, 1] = low.view(np.uint32), scale
    b.run([op("VECTOR_WIDE", low=-32768, high=32767), op("VECTOR_WIDE", dst=1, byte=1, low=-32768, high=32767)])
    values = 256 * b.pads.act[1].astype(int) + b.pads.act[0] + 128
    assert values.tolist() == [1 << 8, -(1 << 9), 3 << 5, 0]  # 2**40 / 2**32; -511.5 - 2**-30; 3 * 2**30 / 2**25; -1/2


def test_vector_wide_without_a_second_row(path: str) -> None:
    """A row is a sum with `reduce` 0; where limits cross, the upper one holds."""
    b = bench(path, SIXTEEN)
    b.pads.acc[4:8] = [-(1 << 31), (1 << 31) - 1, 1000, -1000]
    b.pads.prm[0, :, 0] = 24
    b.pads.prm[0, :, 1] = wide_numerics.wide_parameters(0, 1 << 14, 15)[1]  # a half
    b.run([op("VECTOR_WIDE", a=1, low=-32768, high=32767), op("VECTOR_WIDE", a=1, low=300, high=5, dst=1)])
    assert (b.pads.act[0].astype(int) + 128).tolist() == [0, 255, 0, -488 & 255]
    assert (b.pads.act[1].astype(int) + 128).tolist() == [5] * 4
