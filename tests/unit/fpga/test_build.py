"""PLLs against their data sheets, points, reports, and the tools on a small design."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.fpga.board import Point
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.bridge.uart import bit_time
from tilewright.fpga.build import build
from tilewright.fpga.cells import ECP5, Capacity, Used
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows import FLOWS
from tilewright.fpga.flows.synthesis import ROUTING
from tilewright.fpga.plls import Ecp5Pll, GowinPll, NoPll, Xilinx7Pll
from tilewright.fpga.points import board_named, point_of
from tilewright.fpga.report import conclude, read_report
from tilewright.fpga.soc import board_word
from tilewright.isa.config import preset


@pytest.mark.parametrize("mhz", [20, 25, 33, 50, 60, 75, 90, 100, 120])
def test_ecp5_pll(mhz: int) -> None:
    pll = Ecp5Pll.find(25_000_000, mhz * 1_000_000)
    reference = pll.input_hz / pll.clki_div
    output = reference * pll.clkfb_div
    assert abs(output / 1e6 - mhz) <= 0.02 * mhz and abs(output - pll.output_hz) < 1
    assert 3.125e6 <= reference <= 400e6 and 400e6 <= output * pll.clkop_div <= 800e6
    assert pll.clki_div <= 128 and pll.clkfb_div <= 80 and 1 <= pll.clkop_div <= 128


@pytest.mark.parametrize("mhz", [18, 27, 40, 54, 81])
def test_gowin_pll(mhz: int) -> None:
    pll = GowinPll.find(27_000_000, mhz * 1_000_000, device="GW2A-18C")
    assert abs(pll.output_hz / 1e6 - mhz) <= 0.02 * mhz
    assert 500e6 <= pll.output_hz * pll.odiv <= 1250e6 and 27e6 / pll.idiv >= 3e6


@pytest.mark.parametrize("mhz", [25, 50, 57, 66, 80, 100])
def test_xilinx7_pll(mhz: int) -> None:
    pll = Xilinx7Pll.find(100_000_000, mhz * 1_000_000)
    assert abs(pll.output_hz / 1e6 - mhz) <= 0.02 * mhz
    assert pll.output_hz == pytest.approx(800e6 / pll.div, abs=1) and 1 <= pll.div <= 128
    for input_hz, memory in ((12_000_000, None), (100_000_000, (100, 200_000_000))):  # VCO too slow; no second output
        with pytest.raises(FpgaError, match="no PLL setting gives a clock"):
            Xilinx7Pll.find(input_hz, mhz * 1_000_000, memory)


def test_a_clock_out_of_reach() -> None:
    with pytest.raises(FpgaError, match=r"no PLL setting gives 24 MHz; the closest is 12\.00 MHz"):
        NoPll.find(12_000_000, 24_000_000)
    with pytest.raises(FpgaError, match="no PLL setting gives 1000 MHz"):
        Ecp5Pll.find(25_000_000, 1_000_000_000)


def test_boards() -> None:
    assert len({b.identity for b in BOARDS.values()}) == len(BOARDS)
    for name, board in BOARDS.items():
        assert name == board.name and board.family in FLOWS
        assert 0 < board_word(board.identity) < 1 << 32
        assert board.platform().default_clk_frequency == board.clock_hz
        assert all(preset(config) for config in board.points)
        for point in (*board.points.values(), board.other):
            pll = board.pll(round(point.clock_mhz * 1e6))
            assert bit_time(pll.output_hz, point.baud) and pll.output_hz / 1e6 == pytest.approx(
                point.clock_mhz, rel=0.02
            )
    with pytest.raises(FpgaError, match="unknown board 'nope'; boards: ulx3s_85f"):
        board_named("nope")
    with pytest.raises(ValueError, match="four ASCII"):
        board_word("abc")


def test_points_and_baud(tmp_path: Path) -> None:
    board, config = board_named("ulx3s_85f"), preset("tiny")
    assert point_of(board, config) == board.points["tiny"]
    assert point_of(board, config, clock_mhz=30).clock_mhz == 30
    assert point_of(board, config.with_(name="mine")) == board.other
    with pytest.raises(FpgaError, match=r"baud must be 1\.\.3125000 with a clock of 25000000 Hz, not 9000000"):
        build(board, config, Point(clock_mhz=25, memory_kib=8, baud=9_000_000), tmp_path)


def test_what_does_not_fit() -> None:
    cells = {"LUT4": 90, "CCU2C": 10, "TRELLIS_DPR16X4": 2, "TRELLIS_FF": 7, "MULT18X18D": 3, "DP16KD": 4, "EHXPLLL": 1}
    found = ECP5.count(cells)
    assert found == Used(lut=90 + 20 + 12, ff=7, dsp=3, bram=4)
    assert found.missing(Capacity(lut=122, ff=7, dsp=3, bram=4)) == []
    assert found.missing(Capacity(lut=121, ff=7, dsp=2, bram=4)) == [("LUTs", 122, 121), ("DSP multipliers", 3, 2)]


def test_the_end_of_a_build(tmp_path: Path) -> None:
    """The report is there whether the clock is reached or not, the images only if it is."""
    step = {"from": {"cell": "a"}, "to": {"cell": "b"}, "delay": 12.5, "type": "logic"}
    path = {"from": "posedge clk", "to": "posedge clk", "path": [step]}
    routing = {"fmax": {"clk": {"achieved": 80.0}}, "critical_paths": [path]}
    (tmp_path / ROUTING).write_text(json.dumps(routing))
    images = ("top.bit", "top.bit.bin")
    board, config = board_named("ulx3s_85f"), preset("tiny")
    needs = Used(lut=1, ff=1, dsp=0, bram=0)

    def end(clock_mhz: float) -> None:
        for name in images:
            (tmp_path / name).write_bytes(b"bits")
        what = {"memory_kib": 64, "baud": 3_000_000, "seed": 1, "used": needs}
        conclude(tmp_path, board, config, images=images, routing=ROUTING, spent=(1, 2), clock_mhz=clock_mhz, **what)

    end(80)
    report = read_report(tmp_path)
    assert (report.timing.fmax_mhz, report.bitstream, report.bitstream_bytes) == (80, "top.bit", 4)
    assert all((tmp_path / name).exists() for name in images)
    with pytest.raises(FpgaError, match=r"tiny on ulx3s_85f reaches 80\.0 MHz of 90\.0; give a lower --clock-mhz"):
        end(90)
    assert read_report(tmp_path).clock_mhz == 90
    assert not any((tmp_path / name).exists() for name in images)
