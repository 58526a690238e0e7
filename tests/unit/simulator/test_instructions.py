"""Every instruction with values worked out by hand, on both paths."""

import numpy as np
import pytest

from isa import numerics
from isa.config import NpuConfig, preset
from isa.encoding import op
from isa.instructions import Memory, Rounding, RowFunction, Source, WideByte
from tests.common.machine_harness import Bench

TINY = preset("tiny")  # 4 x 4
WIDE = TINY.with_(name="8x4", block_in=8)  # block_out < block_in
TALL = TINY.with_(name="4x8", block_out=8)  # block_in < block_out


@pytest.fixture(params=["reference", "fast"])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def bench(path: str, config: NpuConfig = TINY) -> Bench:
    return Bench(config, path)


def one_prm(b: Bench, row: int = 0, bias: int = 0, scale: float = 1.0) -> None:
    b.pads.prm[row, :, 0] = np.int32(bias).view(np.uint32)
    b.pads.prm[row, :, 1] = np.float32(scale).view(np.uint32)


# LOAD


def test_load_plain(path: str) -> None:
    b = bench(path)
    b.data[:] = np.arange(b.data.size) % 251
    b.run([op("LOAD", region=1, offset=3, target=Memory.ACT, row=7, count=2)])
    assert b.pads.act[7].tolist() == [3, 4, 5, 6]
    assert b.pads.act[8].tolist() == [7, 8, 9, 10]
    assert not b.pads.act[:7].any() and not b.pads.act[9:].any()


def test_load_box_with_padding(path: str) -> None:
    b = bench(path)
    b.data[:64] = np.arange(64)
    b.run(
        [
            op("LOAD_DIM", level=0, count=2, row_stride=4, mem_stride=8),
            op("LOAD_DIM", level=1, count=2, row_stride=16, mem_stride=32),
            op("LOAD_PAD", left=1, right=2, top=1, fill=0x85),
            op("LOAD", region=1, offset=0, target=Memory.ACT, row=1, count=1),
        ]
    )
    f = [0x85 - 256] * 4
    for z, first in ((0, 0), (1, 32)):
        plane = b.pads.act[1 + 16 * z :][:12].tolist()
        assert plane[:4] == [f] * 4  # top
        assert plane[4:8] == [f, [first + i for i in range(4)], f, f]
        assert plane[8:12] == [f, [first + 8 + i for i in range(4)], f, f]
    assert not b.pads.act[13:17].any()


def test_load_padding_only(path: str) -> None:
    b = bench(path)
    b.run(
        [
            op("LOAD_DIM", level=0, count=0, row_stride=2),
            op("LOAD_PAD", left=1, bottom=3, fill=9),
            op("LOAD", region=7, target=Memory.ACT, row=10, count=1),  # region 7 is closed, but nothing is read
        ]
    )
    assert (b.pads.act[10:16] == 9).all() and not b.pads.act[16:].any()


def test_load_other_targets(path: str) -> None:
    b = bench(path)
    b.data[:] = np.arange(b.data.size) % 256
    b.run([op("LOAD", region=1, offset=16, target=Memory.WGT, row=2, count=1)])
    assert b.pads.wgt[2].tolist() == [[16, 17, 18, 19], [20, 21, 22, 23], [24, 25, 26, 27], [28, 29, 30, 31]]
    b.data[100:108] = list(np.int32(-5).tobytes() + np.float32(0.75).tobytes())
    b.run([op("LOAD", region=1, offset=100, target=Memory.PRM, row=3, count=1)])
    assert b.pads.prm[3, 0].tolist() == [2**32 - 5, 0x3F400000]
    b.run([op("LOAD", region=1, offset=512, target=Memory.LUT, row=1, count=1)])
    assert b.pads.lut[1].tolist() == list(range(256))
    b.run([op("LOAD_PAD", left=1, fill=0xAB), op("LOAD", target=Memory.PRM, row=5)])
    assert (b.pads.prm[5] == 0xABABABAB).all()


def test_load_negative_strides(path: str) -> None:
    b = bench(path)
    b.data[:12] = np.arange(12)
    b.run(
        [
            op("LOAD_DIM", level=1, count=3, row_stride=-1, mem_stride=-4),
            op("LOAD", region=1, offset=8, target=Memory.ACT, row=22, count=1),
        ]
    )
    assert b.pads.act[20:23].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_row_addresses_wrap(path: str) -> None:
    b = bench(path, TINY.with_(act_rows=1 << 18, act_banks=4))
    b.data[:12] = np.arange(12)
    b.run(
        [
            op("LOAD_DIM", level=0, count=2, row_stride=-(2**17), mem_stride=4),
            op("LOAD", region=1, offset=0, target=Memory.ACT, row=2**17, count=1),
        ]
    )
    assert b.pads.act[2**17].tolist() == [0, 1, 2, 3] and b.pads.act[0].tolist() == [4, 5, 6, 7]
    # Beyond the memory but not wrapped, and wrapped but below 0.
    z = op("LOAD_DIM", level=1, count=2, row_stride=131071)
    assert b.fails([z, op("LOAD", region=1, row=2**18 - 1, count=1)]).address == 2**18 - 1 + 131071
    error = b.fails([op("GEMM_LOOP", level=0, count=2, act_stride=-3), op("GEMM", act=2)])
    assert error.address == 2**19 - 1  # `NpuConfig.address_bits` of this machine is 19


# ROW

ROWS = TINY.with_(name="rows", vector_passes=1, row_unit=1)


def _halves(b: Bench) -> None:
    """Tables 0 to 3: 2**23 over 2 to the power of the steps below the maximum, with a byte that does not count."""
    words = np.zeros(256, "<u4")
    words[-np.arange(24)] = (1 << 23) >> np.arange(24)
    b.pads.lut[:4] = (words | 0xAC000000).view(np.uint8).reshape(4, 256)


def truncated(x: float) -> float:
    """A float of 24 bits."""
    mantissa, exponent = np.frexp(x)
    return float(np.ldexp(np.floor(mantissa * 2.0**24), exponent - 24))


def test_row_softmax(path: str) -> None:
    """Two rows of six elements, each in two vectors of four lanes."""
    b = bench(path, ROWS)
    _halves(b)
    b.pads.act[10:14] = [[5, 4, 3, 127], [5, -128, 9, 9], [-128, -125, -126, -127], [-125, -125, 99, 99]]
    b.pads.prm[:, :, 0] = 1000  # no bias counts
    nest = [op("VECTOR_LOOP", level=0, count=2, a_stride=1, dst_stride=1),
            op("VECTOR_LOOP", level=1, count=2, a_stride=2, dst_stride=2, prm_stride=1)]  # fmt: skip
    row = {"a": 10, "prm": 6, "reduce": 1, "tail": 2}
    # 240 over the sum: 240 = 245760 / 2**10, and the exponent of a float32 less 18 bits.
    b.run([
        *nest, op("VECTOR_POST", lo=-128, hi=127, zp=-128),
        op("ROW", function=RowFunction.MAXIMUM, **row),
        op("ROW", function=RowFunction.EXP_SUM, number=240 << 10, exponent=109 - 10, **row),
    ])  # fmt: skip
    assert b.pads.maxima[6:8].tolist() == [127, -125]
    # The first row has nothing within 23 steps of 127; the second has 3 times 1, then 1/2, 1/4 and 1/8.
    scales = b.pads.prm[6:8, :, 1].copy().view(np.float32)
    assert (scales[0] == np.float32(240 / 2**23)).all()
    assert scales[1].tolist() == [truncated(240 / (3.875 * 2**23))] * 4
    assert (b.pads.prm[6:8, :, 0] == 1000).all()
    exp = [*nest[:1], op("VECTOR_LOOP", level=1, count=2, a_stride=2, dst_stride=2, prm_stride=1)]
    b.run([*exp, op("VECTOR_POST", lo=-128, hi=127, zp=-128), op("ROW", function=RowFunction.EXP, a=10, dst=50, prm=6)])
    assert b.pads.act[50].tolist() == [-128, -128, -128, 112]
    # 240 * (1/8, 1, 1/2, 1/4) / 3.875 = 7.74, 61.9, 30.97, 15.48
    assert b.pads.act[52].tolist() == [8 - 128, 62 - 128, 31 - 128, 15 - 128]
    assert b.pads.act[53, :2].tolist() == [62 - 128] * 2


def test_row_layer_norm(path: str) -> None:
    """A row of six elements in two vectors of four lanes: normalised, times a scale of the channel, plus a bias."""
    b = bench(path, ROWS)
    q = np.arange(-128, 128)
    u = q + 128
    # Fields of a word: 16 bits and those of four lanes for the square, then u. Indexed by q - za.
    b.pads.lut[:4] = (u * u | u << 18).astype("<u4")[(np.arange(256) + 3 + 128) & 255].view(np.uint8).reshape(4, 256)
    row = np.array([-128, 100, 7, 8, 9, 127])
    b.pads.act[20:22] = np.append(row, [55, 55]).reshape(2, 4)
    channel = np.arange(8)
    scales = (6 * 2.0**-42 * (10 + channel)).astype(np.float32)
    b.pads.prm[10:12, :, 0] = (np.arange(8) * (1 << 22)).reshape(2, 4)  # halves
    b.pads.prm[10:12, :, 1] = scales.view(np.uint32).reshape(2, 4)
    loop = op("VECTOR_LOOP", level=0, count=2, a_stride=1, dst_stride=1, prm_stride=1)
    b.run([
        loop, op("VECTOR_POST", lo=-50, hi=30, zp=-3, za=3), op("VECTOR_ADD", c=5),
        op("ROW", function=RowFunction.MOMENTS, a=20, prm=9, reduce=1, tail=2, number=6),
        op("ROW", function=RowFunction.NORM, a=20, dst=40, prm=10, number=9),
    ])  # fmt: skip
    normal = (row - row.mean()) / np.sqrt(row.var() + 5 / 36)
    expected = np.clip(np.rint(normal * (10 + channel[:6]) + channel[:6] / 2) - 3, -50, 30)
    assert b.pads.act[40:42].reshape(-1)[:6].tolist() == expected.tolist()
    b.run([loop, op("VECTOR_POST", lo=-128, hi=127, za=3),
           op("ROW", function=RowFunction.POWER, a=20, prm=0, reduce=1, tail=2, number=6)])  # fmt: skip
    factor, _, exponent = b.pads.norms[0].tolist()
    assert abs(factor * 2.0**exponent / (2.0**42 / np.sqrt(6 * ((row + 128) ** 2).sum())) - 1) < 2.0**-21


def test_row_addresses_are_checked(path: str) -> None:
    b = bench(path, ROWS)
    loop = op("VECTOR_LOOP", level=0, count=2, a_stride=1, dst_stride=1, prm_stride=1)
    last = ROWS.prm_rows - 1
    assert b.fails([loop, op("ROW", function=RowFunction.MAXIMUM, prm=last)]).address == last + 1
    b.run([loop, op("ROW", function=RowFunction.MAXIMUM, prm=last, dst=ROWS.act_rows, reduce=1)])  # dst is not used
    assert b.fails([loop, op("ROW", function=RowFunction.EXP, dst=ROWS.act_rows - 1)]).address == ROWS.act_rows
    assert b.fails([loop, op("ROW", function=RowFunction.EXP_SUM, a=ROWS.act_rows - 1, reduce=1)]).address == 4096
    kept = op("VECTOR_LOOP", level=0, count=2, b_stride=1)
    error = b.fails([kept, op("ROW", function=RowFunction.NORM, number=last, prm=ROWS.prm_rows)])
    assert error.address == ROWS.prm_rows and "PRM" in str(error)
    error = b.fails([kept, op("ROW", function=RowFunction.NORM, number=last)])
    assert error.address == last + 1 and "STAT" in str(error)


def test_store_box(path: str) -> None:
    b = bench(path)
    b.pads.act[:] = np.arange(b.pads.act.size).reshape(b.pads.act.shape) % 127
    b.run(
        [
            op("STORE_DIM", level=0, count=2, row_stride=10, mem_stride=100),
            op("STORE_DIM", level=1, count=2, row_stride=-1, mem_stride=-50),
            op("STORE", region=2, offset=51, row=1, count=2),
        ]
    )
    assert b.out[51:59].tolist() == list(range(4, 12))
    assert b.out[151:159].tolist() == list(range(44, 52))
    assert b.out[1:9].tolist() == list(range(8))
    assert b.out[101:109].tolist() == list(range(40, 48))
    assert np.count_nonzero(b.out) == 31  # one of the bytes is 0


# GEMM


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


# DEPTHWISE


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


# VECTOR


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


SIXTEEN = TINY.with_(name="sixteen", wide_results=1)


def test_vector_wide_bytes_of_rounded_sums(path: str) -> None:
    """Sums of high bytes in rows 2 and 3, of low bytes in rows 5 and 6: 256 times the one and the other, times 3/4."""
    b = bench(path, SIXTEEN)
    b.pads.acc[8:16] = [0, 1, -1, 100, 1 << 24, -(1 << 24), -3, 9]
    b.pads.acc[20:28] = [2, 2, 254, -3, 0, 5, 0, 1]
    b.pads.prm[1, :, 0] = 0
    b.pads.prm[1, :, 1] = numerics.wide_parameters(0, *numerics.wide_multiplier(0.75))[1]
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
    biases = np.array([(1 << 40) - 5, -numerics.WIDE_BIAS_MOST, 1 << 31, -1])
    low, scale = numerics.wide_parameters(biases, 1 << 14, [46, 46, 39, 15])
    b.pads.prm[0, :, 0], b.pads.prm[0, :, 1] = low.view(np.uint32), scale
    b.run([op("VECTOR_WIDE", low=-32768, high=32767), op("VECTOR_WIDE", dst=1, byte=1, low=-32768, high=32767)])
    values = 256 * b.pads.act[1].astype(int) + b.pads.act[0] + 128
    assert values.tolist() == [1 << 8, -(1 << 9), 3 << 5, 0]  # 2**40 / 2**32; -511.5 - 2**-30; 3 * 2**30 / 2**25; -1/2


def test_vector_wide_without_a_second_row(path: str) -> None:
    """With `reduce` 0 a row is a sum; where limits cross, the upper one holds."""
    b = bench(path, SIXTEEN)
    b.pads.acc[4:8] = [-(1 << 31), (1 << 31) - 1, 1000, -1000]
    b.pads.prm[0, :, 0] = 24
    b.pads.prm[0, :, 1] = numerics.wide_parameters(0, 1 << 14, 15)[1]  # a half
    b.run([op("VECTOR_WIDE", a=1, low=-32768, high=32767), op("VECTOR_WIDE", a=1, low=300, high=5, dst=1)])
    assert (b.pads.act[0].astype(int) + 128).tolist() == [0, 255, 0, -488 & 255]
    assert (b.pads.act[1].astype(int) + 128).tolist() == [5] * 4


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


def test_configuration_is_kept_between_instructions_not_between_runs(path: str) -> None:
    b = bench(path)
    one_prm(b)
    b.pads.acc[:4] = 50
    post = op("VECTOR_POST", lo=-128, hi=127)
    b.run([post, op("VECTOR", dst=1), op("VECTOR", dst=2)])
    assert (b.pads.act[1:3] == 50).all()
    b.run([op("VECTOR", dst=1)])  # clamps are 0 again
    assert not b.pads.act[1].any()


def test_reset_values(path: str) -> None:
    b = bench(path)
    b.fill()
    before = b.pads.act.copy()
    b.run(
        [op("LOAD", region=1, row=3, count=1), op("STORE", region=2, row=3, count=1), op("GEMM"), op("VECTOR", dst=5)]
    )
    assert (b.pads.act[3].view(np.uint8) == b.data[:4]).all() and (b.out[:4] == b.data[:4]).all()
    assert not b.pads.act[5].any()
    changed = (b.pads.act != before).any(axis=1)
    assert set(np.flatnonzero(changed)) <= {3, 5}


def test_sync_orders_and_has_no_effect(path: str) -> None:
    b = bench(path)
    b.fill()
    before = {k: v.copy() for k, v in b.pads.arrays().items()}
    b.run(
        [
            op("STORE_SYNC", wait0=1),
            op("VECTOR_SYNC", wait0=2, wait1=3, signal0=1),
            op("GEMM_SYNC", signal0=2),
            op("LOAD_SYNC", signal0=3),
        ]
    )
    assert all((before[k] == v).all() for k, v in b.pads.arrays().items())
