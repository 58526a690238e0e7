"""The flash memory on the pins of a board without a host, placed and routed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.hdl import Cat, Elaboratable, Module, Signal
from amaranth.lib import io

from tilewright.fpga.clocking import drive_sync
from tilewright.fpga.flows.ecp5 import CONSTRAINTS, LOG
from tilewright.fpga.flows.synthesis import ROUTING
from tilewright.fpga.report import timing
from tilewright.fpga.standalone.boards import StandaloneBoard, StandaloneTop, standalone_board
from tilewright.fpga.standalone.flash import FlashReader
from tilewright.isa.config import preset

CLOCK_HZ = 50_000_000


class FlashAlone(Elaboratable):
    """The reader between shift registers on the serial line."""

    def __init__(self, board: StandaloneBoard) -> None:
        self.board = board

    def elaborate(self, platform) -> Module:
        m = Module()
        pll = self.board.pll(CLOCK_HZ)
        m.submodules.clock = clock = io.Buffer("i", platform.request(platform.default_clk, dir="-"))
        drive_sync(m, pll, clock.i)
        m.submodules.reader = reader = FlashReader(CLOCK_HZ)
        uart = platform.request("uart", 0, dir="-")
        m.submodules.rx, m.submodules.tx = rx, tx = io.Buffer("i", uart.rx), io.Buffer("o", uart.tx)
        shifted = Signal(32)
        m.d.sync += shifted.eq(Cat(rx.i, shifted))
        m.d.comb += [reader.cpu.valid.eq(shifted[0]), reader.cpu.address.eq(shifted)]
        m.d.comb += tx.o.eq(reader.cpu.rdata.xor() ^ reader.cpu.done)
        pins = {f"flash_{name}": getattr(reader, name) for name in ("cs", "copi", "clk")}
        soc = SimpleNamespace(**pins, flash_cipo=Signal())
        m.d.comb += reader.cipo.eq(soc.flash_cipo)
        top = StandaloneTop(self.board, preset("tiny"), self.board.other, pll)
        top._MustUse__silence = True  # its pins are wanted only
        top.connect(m, platform, soc)
        return m


@pytest.mark.long
def test_the_pins_of_the_flash_memory(tmp_path: Path) -> None:
    """The flash memory's clock goes through the FPGA's own; its other pins are where the board has them."""
    board = standalone_board("ulx3s_85f", b"")
    flow = board.flow()
    flow.generate(FlashAlone(board), tmp_path)
    cells = flow.synthesise(tmp_path)
    flow.place_and_route(tmp_path, cells, CLOCK_HZ / 1e6, [1], lambda text: None)
    flow.pack(tmp_path)
    assert (tmp_path / "top.bit").stat().st_size > 100_000
    assert timing(json.loads((tmp_path / ROUTING).read_text())).fmax_mhz > 100
    sites = dict(re.findall(r'COMP "spi_flash_0__(\w+)__io" SITE "(\w+)"', (tmp_path / CONSTRAINTS).read_text()))
    assert sites == {"cs": "R2", "copi": "W2", "cipo": "V2", "hold": "W1", "wp": "Y2"}
    assert re.search(r"placed potpourri cell 'flash_clk' at bel '\S*USRMCLK'", (tmp_path / LOG).read_text())
