"""Boards with a serial line, as data; their top modules are in `tilewright.fpga.board_top`.

The description of such a board is a file of `fpga/boards/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.fpga.board import SDRAM, Board, Design, Point
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.plls import FindPll, Pll
from tilewright.fpga.sdram.chip import SdramChip
from tilewright.fpga.sdram.timing import sdram_timing
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import MemoryTiming

if TYPE_CHECKING:
    from tilewright.fpga.flows.flow import Flow

#: `tilewright.fpga.memory.OnChipMemory` as the simulators see it.
BLOCK_RAM_TIMING = MemoryTiming(read_latency=7, write_latency=2)


@dataclass(frozen=True, kw_only=True)
class Loader:
    """The program that puts a bitstream on a board.

    Attributes:
        tool: its name on the PATH.
        source: text about where to get the program, for a message.
        volatile: arguments before the file that load it until the power goes; None = the board does not support this.
        permanent: arguments that write it to the board's flash memory.
        hint: advice for a failure, for a message.
        data: arguments before the offset and the file of data written to the flash memory; None = not supported.
    """

    tool: str
    source: str
    volatile: tuple[str, ...] | None
    permanent: tuple[str, ...]
    hint: str
    data: tuple[str, ...] | None = None


def open_fpga_loader(name: str) -> Loader:
    """openFPGALoader with its name of the board."""
    return Loader(
        tool="openFPGALoader",
        source="it is in many distributions (openfpgaloader) and at https://github.com/trabucayre/openFPGALoader",
        volatile=("-b", name),
        permanent=("-b", name, "-f"),
        data=("-b", name, "-f", "-o"),
        hint="is the board plugged in, may you use the USB device?",
    )


@dataclass(frozen=True, kw_only=True)
class UartBoard(Board):
    """A board on which the SoC of `tilewright.fpga.soc` is alone, and a host talks to it over a serial line.

    Attributes:
        identity: four letters the host reads from the bridge.
        family: family in `FLOWS`.
        platform: makes the Amaranth platform: pins and device.
        clock_hz: frequency of the platform's clock.
        pll: finds the setting of the PLL.
        loader: the program that loads a bitstream.
        leds: resources used as LEDs, at most as many as the SoC has.
        sdram: the chip at the platform's resource `sdram`, or None.
        sdram_shares_clock: the SDRAM has the clock of the NPU, not one of its own.
    """

    identity: str
    family: str
    platform: Callable[[], Any]
    clock_hz: int
    pll: FindPll
    loader: Loader
    leds: tuple[tuple[str, int], ...] = tuple(("led", n) for n in range(4))
    sdram: SdramChip | None = None
    sdram_shares_clock: bool = False

    def flow(self) -> Flow:
        """The flow of the board's FPGA family."""
        from tilewright.fpga.flows import FLOWS

        return FLOWS[self.family](self.platform(), self.capacity)

    def design(self, config: NpuConfig, point: Point) -> Design:
        """The SoC on the pins of this board. Raises `FpgaError` where PLL, serial line or SDRAM cannot do it."""
        from tilewright.fpga.bridge.uart import bit_time

        pll = self.clocks(point)
        try:
            bit_time(pll.output_hz, point.baud)
        except ValueError as error:
            raise FpgaError(f"{self.name}: {error}") from None
        own_hz = 0 if self.sdram_shares_clock else pll.memory_hz
        return Design(self.top(config, point, pll), pll.output_hz / 1e6, own_hz / 1e6)

    def top(self, config: NpuConfig, point: Point, pll: Pll) -> Any:
        """The top module of a point."""
        from tilewright.fpga.board_top import BoardTop

        return BoardTop(self, config, point, pll)

    def clocks(self, point: Point) -> Pll:
        """The PLL setting for a point, with a clock for the SDRAM if it has one. Raises `FpgaError`."""
        hz = round(point.clock_mhz * 1e6)
        if point.memory != SDRAM:
            return self.pll(hz)
        if self.sdram is None:
            raise FpgaError(f"{self.name} has no SDRAM that is supported")
        return self.pll(hz, (0, self.sdram.clocks_hz[1]) if self.sdram_shares_clock else self.sdram.clocks_hz)

    def memory_timing(self, config: NpuConfig, point: Point) -> MemoryTiming:
        """The memory timing of a point for the cycle-level simulator. Raises `FpgaError` as `clocks` does."""
        pll = self.clocks(point)
        if not pll.memory_hz:
            return BLOCK_RAM_TIMING
        return sdram_timing(config, pll.output_hz, pll.memory_hz, shared=self.sdram_shares_clock)
