"""LOAD and STORE with values worked out by hand."""

import numpy as np

from tests.unit.simulator.by_hand import TINY, bench
from tilewright.isa.encoding import op
from tilewright.isa.instructions import Memory


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
