"""DEPTHWISE with values worked out by hand."""

import numpy as np

from tests.unit.simulator.by_hand import TALL, TINY, WIDE, bench
from tilewright.isa.encoding import op


def test_depthwise_window(path: str) -> None:
    """Level 0 pushes 2 rows of a column, level 1 walks 3 columns: a 2 x 2 window."""
    b = bench(path)
    b.pads.act[:6] = np.arange(1, 7)[:, None] * [1, 10, 0, -1]
    b.pads.wgt[3] = np.array([1, 2, 3, 4])  # slot 0 is the newest push
    nest = [
        op("GEMM_LOOP", level=0, count=2, act_stride=1),
        op("GEMM_LOOP", level=1, count=3, act_stride=2, acc_stride=2),
    ]
    run = {"act": 0, "wgt": 3, "acc": 5, "start0": 1, "step0": 1, "start1": 1, "step1": 1}
    b.run([*nest, op("DEPTHWISE", **run)])
    rows = b.pads.acc.reshape(-1, 4)
    first, second = 4 * 1 + 3 * 2 + 2 * 3 + 1 * 4, 6 * 1 + 5 * 2 + 4 * 3 + 3 * 4
    assert rows[5].tolist() == [first, 10 * first, 0, -first]
    assert rows[7].tolist() == [second, 10 * second, 0, -second]
    assert not rows[6].any() and not rows[8:].any()
    b.run([*nest, op("DEPTHWISE", accumulate=1, **run)])
    assert rows[5, 0] == 2 * first


def test_depthwise_starts_with_zero_slots_and_steps(path: str) -> None:
    b = bench(path)
    b.pads.act[:7, 0] = [1, 2, 3, 4, 5, 6, 7]
    b.pads.wgt[0, 0] = [1, 1, 1, 1]
    b.run(
        [
            op("GEMM_LOOP", level=0, count=7, act_stride=1, acc_stride=1),
            op("DEPTHWISE", acc=0, start0=0, step0=3, step1=1),
        ]
    )
    assert b.pads.acc.reshape(-1, 4)[:4, 0].tolist() == [1, 1 + 2 + 3 + 4, 4 + 5 + 6 + 7, 0]


def test_depthwise_window_lives_through_outer_levels(path: str) -> None:
    b = bench(path)
    b.pads.act[:2, 0] = [1, 10]
    b.pads.wgt[0, 0, :2] = 1
    b.run(
        [
            op("GEMM_LOOP", level=2, count=2, act_stride=1, acc_stride=1),
            op("DEPTHWISE", step0=1, step1=1),
        ]
    )
    assert b.pads.acc.reshape(-1, 4)[:2, 0].tolist() == [1, 11]


def test_depthwise_slice(path: str) -> None:
    b = bench(path, WIDE)
    b.pads.act[0] = [1, 2, 3, 4, 5, 6, 7, 8]
    b.pads.wgt[0, :, 0] = [1, 10, 100, -1]
    b.run([op("DEPTHWISE", step0=1, step1=1, slice=1, acc=3)])
    assert b.pads.acc.reshape(-1, 4)[3].tolist() == [5, 60, 700, -8]


def test_depthwise_rows_where_block_out_is_larger(path: str) -> None:
    """ACC rows have min(block_in, block_out) lanes: two of them lie in one GEMM row."""
    b = bench(path, TALL)
    b.pads.act[0] = [1, 2, 3, 4]
    b.pads.wgt[0, :, 0] = 1
    b.run([op("DEPTHWISE", step0=1, step1=1, acc=3)])
    assert b.pads.acc[12:16].tolist() == [1, 2, 3, 4] and np.count_nonzero(b.pads.acc) == 4


def test_pushes_in_pairs_are_fewer_steps_of_the_same_sums(path: str) -> None:
    """Lines of 7 pushes take 4 steps, with outputs behind every second push as well as without."""
    found, steps = [], []
    for pairs, stride in ((0, 1), (1, 1), (1, 4)):  # rows in one bank go one by one
        b = bench(path, TINY.with_(window_pairs=pairs))
        b.fill()
        levels = [
            op("GEMM_LOOP", level=0, count=7, act_stride=stride, acc_stride=1),
            op("GEMM_LOOP", level=1, count=4, act_stride=7, acc_stride=9),
            op("GEMM_LOOP", level=2, count=2, act_stride=3, acc_stride=30),
        ]
        counters = b.run([*levels, op("DEPTHWISE", act=5, start0=2, step0=2, start1=1, step1=2)])
        found.append(b.pads.acc.copy())
        steps.append(counters.macs // TINY.macs_per_cycle)
    assert steps == [56, 2 * (4 + 4 + 4 + 4), 56]
    assert np.array_equal(found[0], found[1])
