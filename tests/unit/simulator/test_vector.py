"""VECTOR with values worked out by hand."""

import numpy as np
import pytest

from tests.unit.simulator.by_hand import TALL, WIDE, bench, one_prm
from tilewright.isa.encoding import op
from tilewright.isa.instructions import Rounding, Source


def test_vector_acc(path: str) -> None:
    b = bench(path)
    one_prm(b, 2, bias=10, scale=0.5)
    b.pads.acc[8:16] = [-7, -8, 1000, -1000, 1, 3, 5, 7]
    b.run(
        [
            op("VECTOR_POST", zp=3, lo=-100, hi=100),
            op("VECTOR_LOOP", level=0, count=2, a_stride=1, dst_stride=-1),
            op("VECTOR", source=Source.ACC, a=2, dst=9, prm=2),
        ]
    )
    assert b.pads.act[9].tolist() == [5, 4, 100, -100]  # 1.5 -> 2, 1 -> 1
    assert b.pads.act[8].tolist() == [9, 9, 11, 11]  # 5.5 -> 6, 6.5 -> 6, 7.5 -> 8, 8.5 -> 8


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        (Rounding.EVEN, [1, 3, 3, 1]),  # 0.5 -> 0, 1.5 -> 2, 2.5 -> 2, -0.5 -> 0; then + 1
        (Rounding.EVEN_ZERO_POINT_INSIDE, [2, 2, 4, 0]),  # 1.5, 2.5, 3.5, 0.5
        (Rounding.HALF_AWAY, [2, 3, 4, 0]),  # 1, 2, 3, -1; then + 1
    ],
)
def test_vector_rounding(path: str, rounding: Rounding, expected: list[int]) -> None:
    b = bench(path)
    one_prm(b, scale=0.5)
    b.pads.acc[:4] = [1, 3, 5, -1]
    b.run([op("VECTOR_POST", zp=1, lo=-128, hi=127), op("VECTOR", rounding=rounding)])
    assert b.pads.act[0].tolist() == expected


def test_vector_views_of_acc(path: str) -> None:
    """VECTOR rows have block_in lanes over the same elements as the rows of GEMM."""
    for config in (WIDE, TALL):
        b = bench(path, config)
        one_prm(b)
        b.pads.acc[:64] = np.arange(64)
        b.run([op("VECTOR_POST", lo=-128, hi=127), op("VECTOR", a=3)])
        assert b.pads.act[0].tolist() == list(range(3 * config.block_in, 4 * config.block_in))


def test_vector_mul(path: str) -> None:
    b = bench(path)
    one_prm(b, bias=1)
    b.pads.act[1], b.pads.act[2] = [1, 2, -3, 4], [5, 5, 5, -128]
    b.run([op("VECTOR_POST", za=1, zb=-2, lo=-128, hi=127), op("VECTOR", source=Source.MUL, a=1, b=2, dst=3)])
    assert b.pads.act[3].tolist() == [1, 8, -27, -128]


def test_vector_sum_and_max(path: str) -> None:
    b = bench(path)
    one_prm(b, 1, bias=-2)
    b.pads.act[:4] = [[1, -1, 5, 100], [2, -2, 4, 100], [3, -3, 3, 100], [4, -4, 2, 100]]
    nest = [
        op("VECTOR_POST", lo=-128, hi=127),
        op("VECTOR_LOOP", level=0, count=2, a_stride=1, dst_stride=50, prm_stride=50),  # only a moves inside
        op("VECTOR_LOOP", level=1, count=2, a_stride=2, dst_stride=1),
    ]
    b.run([*nest, op("VECTOR", source=Source.SUM, reduce=1, dst=10, prm=1)])
    assert b.pads.act[10:12].tolist() == [[1, -5, 7, 127], [5, -9, 3, 127]]
    b.run([*nest, op("VECTOR", source=Source.MAX, reduce=2, dst=10)])
    assert b.pads.act[10].tolist() == [4, -1, 5, 100]


def test_vector_add(path: str) -> None:
    b = bench(path)
    b.pads.act[0], b.pads.act[1] = [1, -1, 100, -100], [2, 2, 100, -100]
    b.run(
        [
            op("VECTOR_ADD", ma=3, mb=-1, c=4, shift=1),
            op("VECTOR_POST", add_lo=-90, add_hi=90),
            op("VECTOR", source=Source.ACT, a=0, b=1, dst=2, add=1),
        ]
    )
    assert b.pads.act[2].tolist() == [2, -1, 90, -90]  # 5 >> 1, -1 >> 1, 204 >> 1, -196 >> 1
    b.run(
        [
            op("VECTOR_ADD", ma=2**23 - 1, mb=2**23 - 1, c=2**31 - 1, shift=24),
            op("VECTOR_POST", add_lo=-128, add_hi=127),
            op("VECTOR", source=Source.ACT, a=0, b=1, dst=2, add=1),
        ]
    )
    wrapped = [(((x + y) * (2**23 - 1) + 2**31 - 1 + 2**31) % 2**32 - 2**31) >> 24 for x, y in ((1, 2), (-1, 2))]
    assert b.pads.act[2, :2].tolist() == wrapped


def test_vector_requantise_add_lut(path: str) -> None:
    b = bench(path)
    one_prm(b)
    b.pads.acc[:4] = [1, 2, -3, 300]
    b.pads.act[7] = [10, 20, 30, 0]
    b.pads.lut[3] = (np.arange(256) + 1) % 256
    b.run(
        [
            op("VECTOR_POST", lo=-128, hi=127, add_lo=-128, add_hi=127, table=3),
            op("VECTOR_ADD", ma=1, mb=1),
            op("VECTOR", b=7, dst=8, add=1, lut=1),
        ]
    )
    assert b.pads.act[8].tolist() == [12, 23, 28, -128]
