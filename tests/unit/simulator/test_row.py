"""ROW with values worked out by hand: sums and powers of a row, and what it writes."""

import numpy as np
import pytest

from tests.common.machine_harness import Bench
from tests.unit.simulator.by_hand import TINY, bench
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import op
from tilewright.isa.instructions import RowFunction
from tilewright.isa.row_norm import row_norm

#: With a lane for every element, with half of them, and with one.
MACHINES = [TINY.with_(name=f"rows{passes}", vector_passes=passes, row_unit=1) for passes in (1, 2, 4)]
machines = pytest.mark.parametrize("config", MACHINES, ids=lambda config: config.name)


def _halves(b: Bench) -> None:
    """Tables 0 to 3: 2**23 over 2 to the power of the steps below the maximum, with a byte that does not count."""
    words = np.zeros(256, "<u4")
    words[-np.arange(24)] = (1 << 23) >> np.arange(24)
    b.pads.lut[:4] = (words | 0xAC000000).view(np.uint8).reshape(4, 256)


def truncated(x: float) -> float:
    """A float of 24 bits."""
    mantissa, exponent = np.frexp(x)
    return float(np.ldexp(np.floor(mantissa * 2.0**24), exponent - 24))


@machines
def test_row_softmax(path: str, config: NpuConfig) -> None:
    """Two rows of six elements, each in two vectors of four."""
    b = bench(path, config)
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


@machines
def test_row_layer_norm(path: str, config: NpuConfig) -> None:
    """A row of six elements in two vectors of four: normalised, times a scale of the channel, plus a bias."""
    b = bench(path, config)
    q = np.arange(-128, 128)
    u = q + 128
    # Fields of a word: 16 bits and those of the lanes for the square, then u. Indexed by q - za.
    b.pads.lut[:4] = (
        (u * u | u << config.row_square_bits)
        .astype("<u4")[(np.arange(256) + 3 + 128) & 255]
        .view(np.uint8)
        .reshape(4, 256)
    )
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


@machines
def test_sums_beyond_their_field_carry_within_a_pass(path: str, config: NpuConfig) -> None:
    """A pass that adds up to more than `row_square_bits` adds to the other sum; two passes do not carry together."""
    b = bench(path, config)
    most = (1 << config.row_square_bits) - 1
    b.pads.lut[:4] = np.full(256, most, "<u4").view(np.uint8).reshape(4, 256)
    b.run([op("ROW", function=RowFunction.POWER, a=0, prm=3, number=1)])
    lanes, passes = config.vector_lanes, config.vector_passes
    squares, total = passes * (lanes * most & most), passes * (lanes * most >> config.row_square_bits)
    assert tuple(b.pads.norms[3].tolist()) == row_norm(squares, total, 1, 0, False)


@machines
def test_row_addresses_are_checked(path: str, config: NpuConfig) -> None:
    b = bench(path, config)
    loop = op("VECTOR_LOOP", level=0, count=2, a_stride=1, dst_stride=1, prm_stride=1)
    last = config.prm_rows - 1
    assert b.fails([loop, op("ROW", function=RowFunction.MAXIMUM, prm=last)]).address == last + 1
    b.run([loop, op("ROW", function=RowFunction.MAXIMUM, prm=last, dst=config.act_rows, reduce=1)])  # dst is not used
    assert b.fails([loop, op("ROW", function=RowFunction.EXP, dst=config.act_rows - 1)]).address == config.act_rows
    assert b.fails([loop, op("ROW", function=RowFunction.EXP_SUM, a=config.act_rows - 1, reduce=1)]).address == 4096
    kept = op("VECTOR_LOOP", level=0, count=2, b_stride=1)
    error = b.fails([kept, op("ROW", function=RowFunction.NORM, number=last, prm=config.prm_rows)])
    assert error.address == config.prm_rows and "PRM" in str(error)
    error = b.fails([kept, op("ROW", function=RowFunction.NORM, number=last)])
    assert error.address == last + 1 and "STAT" in str(error)
