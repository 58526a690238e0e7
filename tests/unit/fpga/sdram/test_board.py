"""Points with an SDRAM, its clock from the PLL, and the controller placed and routed on the pins of the ULX3S."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import io
from amaranth.lib.wiring import Out

from tilewright.fpga.board import SDRAM, Point
from tilewright.fpga.board_top import SDRAM_PINS, board_memory, connect_sdram, drive_clocks
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.build import build
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.ecp5 import CONSTRAINTS, LOG
from tilewright.fpga.flows.synthesis import ROUTING
from tilewright.fpga.plls import Ecp5Pll, MemoryClock
from tilewright.fpga.points import point_of
from tilewright.fpga.report import timing
from tilewright.fpga.sdram.chip import SDRAM_8M, SDRAM_32M, SdramCycles
from tilewright.fpga.uart_board import UartBoard
from tilewright.hw.interfaces import flat_ports
from tilewright.isa.config import NpuConfig, preset


def test_points() -> None:
    board, config = BOARDS["ulx3s_85f"], preset("tiny")
    point = point_of(board, config, memory=SDRAM)
    assert (point.memory, point.memory_kib, point.clock_mhz) == (SDRAM, 32 << 10, board.points["tiny"].clock_mhz)
    assert point_of(board, config).memory != SDRAM
    with pytest.raises(FpgaError, match=r"the SDRAM of ulx3s_85f has 32768 KiB: no other size of memory"):
        point_of(board, config, memory=SDRAM, memory_kib=64)
    with pytest.raises(
        FpgaError, match=r"orangecrab_85f has no SDRAM that is supported; boards with one: ulx3s_85f, tang_"
    ):
        point_of(BOARDS["orangecrab_85f"], config, memory=SDRAM)


def test_clocks_that_no_pll_makes(tmp_path: Path) -> None:
    with pytest.raises(FpgaError, match="no PLL setting gives a clock for the memory beside 50 MHz"):
        Ecp5Pll.find(25_000_000, 50_000_000, (900_000_000, 900_000_001))
    with pytest.raises(FpgaError, match="orangecrab_85f has no SDRAM that is supported"):
        build(BOARDS["orangecrab_85f"], preset("tiny"), Point(clock_mhz=48, memory_kib=8, memory=SDRAM), tmp_path)


@pytest.mark.parametrize("mhz", [17, 20, 60, 83, 90, 100, 110, 130])
def test_the_clocks_of_the_sdram(mhz: int) -> None:
    """120 MHz and more, whatever the NPU's is; that of the pin is later by what the chip needs: phases count eighths of
    a cycle of the VCO (ECP5 sysCLOCK guide)."""
    pll = Ecp5Pll.find(25_000_000, mhz * 1_000_000, SDRAM_32M.clocks_hz)
    delay_ns = SdramCycles.of(SDRAM_32M, pll.memory_hz).clock_delay
    values = pll.instance(Signal(), Signal(), Signal(), MemoryClock(Signal(), Signal(), delay_ns)).parameters
    vco_ns = 1e9 / (pll.output_hz * values["CLKOP_DIV"])
    assert 1000 / 800 <= vco_ns <= 1000 / 400 and abs(pll.output_hz - mhz * 1e6) <= 0.02 * mhz * 1e6
    assert values["CLKOS_DIV"] == values["CLKOS2_DIV"] == pytest.approx(1e9 / pll.memory_hz / vco_ns)
    assert 120e6 <= pll.memory_hz <= 133e6
    phases = [values[f"{name}_CPHASE"] + values[f"{name}_FPHASE"] / 8 for name in ("CLKOS", "CLKOS2")]
    assert (phases[1] - phases[0]) * vco_ns == pytest.approx(delay_ns, abs=vco_ns / 16 + 1e-9)
    assert phases[1] < 128


@pytest.mark.parametrize("mhz", [27, 41, 54, 81, 108])
def test_an_sdram_on_the_clock_of_the_npu(mhz: int) -> None:
    """The clock of the pin is that of the NPU, later by what the chip needs, to a 16th of a cycle (Gowin UG286)."""
    board = BOARDS["tang_nano_20k"]
    pll = board.clocks(Point(clock_mhz=mhz, memory_kib=8 << 10, memory=SDRAM))
    assert pll.memory_hz == pll.output_hz and abs(pll.output_hz / 1e6 - mhz) <= 0.02 * mhz
    cycles = SdramCycles.of(SDRAM_8M, pll.memory_hz)
    parameters = pll.instance(Signal(), Signal(), Signal(), MemoryClock(None, Signal(), cycles.clock_delay)).parameters
    assert int(parameters["PSDA_SEL"], 2) / 16 * 1e9 / pll.memory_hz == pytest.approx(
        cycles.clock_delay, abs=1e9 / pll.memory_hz / 32
    )
    with pytest.raises(FpgaError, match=r"no PLL setting gives 160 MHz; the closest is 132\.00 MHz"):
        board.clocks(Point(clock_mhz=160, memory_kib=8 << 10, memory=SDRAM))


class Alone(Elaboratable):
    """The SDRAM of a board without an NPU: its other ports between shift registers on the serial line."""

    def __init__(self, board: UartBoard, config: NpuConfig, point: Point) -> None:
        self.board, self.config, self.point = board, config, point

    def elaborate(self, platform) -> Module:
        m = Module()
        pll = self.board.clocks(self.point)
        m.submodules.clock = clock = io.Buffer("i", platform.request(platform.default_clk, dir="-"))
        m.submodules.memory = memory = board_memory(self.board, self.config, self.point, pll)
        drive_clocks(m, pll, clock.i, memory)
        connect_sdram(m, platform, memory)
        uart = platform.request("uart", 0, dir="-")
        m.submodules.rx, m.submodules.tx = rx, tx = io.Buffer("i", uart.rx), io.Buffer("o", uart.tx)
        ports = [(signal, flow) for name, flow, signal in flat_ports(memory) if name not in memory.pins]
        inputs = Cat(signal for signal, flow in ports if flow != Out)
        outputs = Cat(signal for signal, flow in ports if flow == Out)
        shifted, caught, count = Signal(len(inputs)), Signal(len(outputs)), Signal(9)
        m.d.sync += [shifted.eq(Cat(rx.i, shifted)), count.eq(count + 1)]
        m.d.sync += caught.eq(Mux(count == 0, outputs, caught >> 1))
        m.d.comb += [inputs.eq(shifted), tx.o.eq(caught[0])]
        return m


@pytest.mark.long
@pytest.mark.slow
def test_placed_and_routed(tmp_path: Path) -> None:
    """All pins have their registers, the clock reaches its pin, and both sides are as fast as asked for with room to
    spare."""
    board = BOARDS["ulx3s_85f"]
    point = point_of(board, preset("tiny"), memory=SDRAM, clock_mhz=90)
    flow = board.flow()
    flow.generate(Alone(board, preset("tiny"), point), tmp_path)
    cells = flow.synthesise(tmp_path)
    flow.place_and_route(tmp_path, cells, 90, [1], lambda text: None)
    # The shift registers take one flip-flop a port and a LUT an output.
    assert cells.lut < 1800 and cells.ff < 1500 and cells.bram == cells.dsp == 0
    found = timing(json.loads((tmp_path / ROUTING).read_text()))
    print(cells, found)  # -s: what docs/decisions say
    assert found.fmax_mhz > 115 and found.memory_fmax_mhz > 125
    places, log = (tmp_path / CONSTRAINTS).read_text(), (tmp_path / LOG).read_text()
    sites = dict(re.findall(r'COMP "sdram_0__(\w+)__io(?:\[0\])?" SITE "(\w+)"', places))
    assert sites.keys() == set(SDRAM_PINS) and (sites["clk"], sites["dq"], sites["a"]) == ("F19", "J16", "M20")
    registers = set(re.findall(r"IOLOGIC component sdram_(\w+?)(?:\$\d+)?\.", log))
    assert registers == set(SDRAM_PINS)
    assert SDRAM_32M.size == point.memory_kib << 10
