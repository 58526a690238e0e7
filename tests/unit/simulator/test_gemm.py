"""GEMM with values worked out by hand."""

import numpy as np

from tests.unit.simulator.by_hand import TINY, bench
from tilewright.isa.encoding import op


def test_gemm_one_product(path: str) -> None:
    b = bench(path)
    b.pads.act[5] = [1, -2, 3, -128]
    b.pads.wgt[2] = [[1, 1, 1, 1], [-128, 0, 0, -128], [0, 10, 0, 0], [127, 127, 127, 127]]
    b.pads.acc[4:8] = [100, 200, 300, 400]
    counters = b.run([op("GEMM", act=5, wgt=2, acc=1), op("GEMM", act=5, wgt=2, acc=1, accumulate=1)])
    assert b.pads.acc[4:8].tolist() == [2 * -126, 2 * (-128 + 16384), 2 * -20, 2 * -126 * 127]
    assert counters.macs == 32


def test_gemm_wraps(path: str) -> None:
    b = bench(path)
    b.pads.act[0] = [1, 0, 0, 0]
    b.pads.wgt[0] = 1
    b.pads.acc[:4] = 2**31 - 1
    b.run([op("GEMM", accumulate=1)])
    assert b.pads.acc[:4].tolist() == [-(2**31)] * 4


def test_gemm_nest(path: str) -> None:
    """Two summed levels inside two outer ones, with rows written twice by the outermost."""
    b = bench(path)
    b.pads.act[:, 0] = np.arange(len(b.pads.act)) % 100
    b.pads.wgt[:, :, 0] = np.arange(len(b.pads.wgt))[:, None] % 100
    loops = [
        op("GEMM_LOOP", level=0, count=2, act_stride=1, wgt_stride=1, acc_stride=77),  # acc_stride unused: summed
        op("GEMM_LOOP", level=1, count=3, act_stride=4, wgt_stride=-2, acc_stride=-9),
        op("GEMM_LOOP", level=2, count=2, act_stride=10, wgt_stride=5, acc_stride=3),
        op("GEMM_LOOP", level=4, count=2, act_stride=1),
    ]
    b.run([*loops, op("GEMM", act=1, wgt=8, acc=2, reduce=2)])

    def total(k: int, l: int) -> int:
        return sum((1 + i + 4 * j + 10 * k + l) * (8 + i - 2 * j + 5 * k) for i in range(2) for j in range(3))

    rows = b.pads.acc.reshape(-1, 4)
    assert rows[2, 0] == total(0, 1) and rows[5, 3] == total(1, 1)  # the last write stays
    b.run([*loops, op("GEMM", act=1, wgt=8, acc=2, reduce=2, accumulate=1)])
    assert rows[2, 0] == 2 * total(0, 1) + total(0, 0)


def test_gemm_reduce_all_and_none(path: str) -> None:
    b = bench(path)
    b.pads.act[:3, 0] = [1, 2, 3]
    b.pads.wgt[0, :, 0] = [1, 2, 3, 4]
    loop = op("GEMM_LOOP", level=0, count=3, act_stride=1, acc_stride=1)
    b.run([loop, op("GEMM", acc=10, reduce=TINY.gemm_loops), op("GEMM", acc=20, reduce=0)])
    rows = b.pads.acc.reshape(-1, 4)
    assert rows[10].tolist() == [6, 12, 18, 24]
    assert rows[20:23].tolist() == [[1, 2, 3, 4], [2, 4, 6, 8], [3, 6, 9, 12]]


def test_gemm_sums_of_more_steps_than_a_list_holds() -> None:
    """Three summed levels of 1,050,600 steps: the reference would take minutes, numpy knows the sum."""
    act, wgt, times = 102, 103, 100
    assert act * wgt * times > 1 << 20
    b = bench("fast")
    rng = np.random.default_rng(0)
    rows = b.pads.act[7 : 7 + act] = rng.integers(-128, 128, (act, 4), np.int8)
    tiles = b.pads.wgt[5 : 5 + wgt] = rng.integers(-128, 128, (wgt, 4, 4), np.int8)
    loops = [
        op("GEMM_LOOP", level=0, count=act, act_stride=1),
        op("GEMM_LOOP", level=1, count=wgt, wgt_stride=1),
        op("GEMM_LOOP", level=2, count=times),
    ]
    total = times * (tiles.sum(axis=0, dtype=np.int64) @ rows.sum(axis=0, dtype=np.int64))
    for accumulate, wanted in ((0, total), (1, 2 * total)):
        b.run([*loops, op("GEMM", act=7, wgt=5, acc=3, reduce=3, accumulate=accumulate)])
        assert b.pads.acc.reshape(-1, 4)[3].tolist() == wanted.astype(np.int32).tolist()
