"""Boards on which the SoC with a core runs: their flash memory, their points, and their pins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from amaranth.hdl import Const, Instance, Module
from amaranth.lib import io

from tilewright.fpga.board import SDRAM, Point
from tilewright.fpga.board_top import BoardTop
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.plls import Pll
from tilewright.fpga.standalone.image import Place
from tilewright.fpga.standalone.soc import StandaloneSoc
from tilewright.fpga.uart_board import UartBoard
from tilewright.isa.config import NpuConfig


@dataclass(frozen=True, kw_only=True)
class Alone:
    """Flash memory and points of a board that runs without a host.

    Attributes:
        place: of images in the flash memory behind the platform's resource `spi_flash`, whose clock pin is that of the
            FPGA's configuration.
        points: configurations known to fit, by preset name; others are built at `other`.
    """

    place: Place
    other: Point
    points: Mapping[str, Point] = field(default_factory=dict)


#: The ULX3S has 16 MiB since v3.0; bitstreams of the 85F have at most 1.9 MB.
ALONE = {
    "ulx3s_85f": Alone(
        place=Place(size=16 << 20, offset=2 << 20),
        other=Point(clock_mhz=50, memory=SDRAM, memory_kib=32 << 10, baud=115_200),
    )
}


@dataclass(frozen=True, kw_only=True)
class StandaloneBoard(UartBoard):
    """A board of `tilewright.fpga.boards` with the SoC that needs no host. `boot` is its boot program."""

    alone: Alone
    boot: bytes = b""

    def top(self, config: NpuConfig, point: Point, pll: Pll) -> Any:
        """The top module of a point, with the SoC that needs no host; see `UartBoard.top`."""
        return StandaloneTop(self, config, point, pll)


class StandaloneTop(BoardTop):
    """The SoC with a core on the pins of one board."""

    board: StandaloneBoard

    def soc(self, memory: Any, clock_hz: int) -> Any:
        """The SoC of the board; see `BoardTop.soc`."""
        return standalone_soc(self.board, self.config, self.point, memory, clock_hz)

    def connect(self, m: Module, platform: Any, soc: Any) -> None:
        """Connects the flash memory, whose clock has no pin of its own."""
        flash = platform.request("spi_flash", 0, dir=dict.fromkeys(("cs", "copi", "cipo", "hold", "wp"), "-"))
        values = {"cs": soc.flash_cs, "copi": soc.flash_copi, "hold": Const(0, 1), "wp": Const(0, 1)}
        for name, value in values.items():
            m.submodules[f"flash_{name}"] = buffer = io.Buffer("o", getattr(flash, name))
            m.d.comb += buffer.o.eq(value)
        m.submodules.flash_cipo = cipo = io.Buffer("i", flash.cipo)
        m.d.comb += soc.flash_cipo.eq(cipo.i)
        m.submodules.flash_clk = Instance("USRMCLK", i_USRMCLKI=soc.flash_clk, i_USRMCLKTS=Const(0, 1))


def standalone_soc(board: StandaloneBoard, config: NpuConfig, point: Point, memory: Any, clock_hz: int) -> Any:
    """The SoC of a board at a point, without PLL and pins."""
    size = board.alone.place.size
    return StandaloneSoc(config, memory, board.boot, clock_hz=clock_hz, baud=point.baud, flash_bytes=size)


def standalone_board(name: str, boot: bytes) -> StandaloneBoard:
    """A board of `ALONE` with its boot program.

    Raises:
        FpgaError: another board, with the list of those.
    """
    if name not in ALONE:
        raise FpgaError(f"no SoC without a host for board {name!r}; boards with one: {', '.join(ALONE)}")
    alone, board = ALONE[name], BOARDS[name]
    same = {f.name: getattr(board, f.name) for f in fields(board)}
    return StandaloneBoard(**same | {"points": alone.points, "other": alone.other, "alone": alone, "boot": boot})
