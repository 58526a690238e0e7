"""Boards with a serial line: PLL, SoC and pins.

The description of such a board is a file of `fpga/boards/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from amaranth.hdl import Elaboratable, Module, Value
from amaranth.lib import io

from tilewright.fpga.board import SDRAM, Board, Design, Point
from tilewright.fpga.bridge.uart import bit_time
from tilewright.fpga.clocking import FindPll, Pll, drive_sync, drive_with_memory, drive_with_pin
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows import FLOWS
from tilewright.fpga.flows.flow import Flow
from tilewright.fpga.memory import BLOCK_RAM_TIMING, OnChipMemory
from tilewright.fpga.sdram.chip import SdramChip
from tilewright.fpga.sdram.memory import MEMORY, SdramMemory
from tilewright.fpga.sdram.timing import sdram_timing
from tilewright.fpga.soc import Soc
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import MemoryTiming

#: Clock domain of the clock pin of the SDRAM chip, and the pins of `amaranth_boards.resources.SDRAMResource`.
SDRAM_CLOCK = "sdram"
SDRAM_PINS = ("clk", "clk_en", "cs", "ras", "cas", "we", "ba", "a", "dqm", "dq")


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
        return FLOWS[self.family](self.platform(), self.capacity)

    def design(self, config: NpuConfig, point: Point) -> Design:
        """The SoC on the pins of this board. Raises `FpgaError` where PLL, serial line or SDRAM cannot do it."""
        pll = self.clocks(point)
        try:
            bit_time(pll.output_hz, point.baud)
        except ValueError as error:
            raise FpgaError(f"{self.name}: {error}") from None
        own_hz = 0 if self.sdram_shares_clock else pll.memory_hz
        return Design(self.top(config, point, pll), pll.output_hz / 1e6, own_hz / 1e6)

    def top(self, config: NpuConfig, point: Point, pll: Pll) -> Any:
        """The top module of a point."""
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


class BoardTop(Elaboratable):
    """The SoC of one configuration on the pins of one board."""

    def __init__(self, board: UartBoard, config: NpuConfig, point: Point, pll: Pll) -> None:
        self.board, self.config, self.point, self.pll = board, config, point, pll

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        clock_port = platform.request(platform.default_clk, dir="-")
        m.submodules.clock = clock = io.Buffer("i", clock_port)
        hz = self.pll.output_hz
        memory = board_memory(self.board, self.config, self.point, self.pll)
        drive_clocks(m, self.pll, clock.i, memory)
        m.submodules.soc = soc = self.soc(memory, hz)
        uart = platform.request("uart", 0, dir={"rx": "-", "tx": "-"})
        m.submodules.rx = rx = io.Buffer("i", uart.rx)
        m.submodules.tx = tx = io.Buffer("o", uart.tx)
        m.d.comb += [soc.rx.eq(rx.i), tx.o.eq(soc.tx)]
        for n, (resource, number) in enumerate(self.board.leds):
            m.submodules[f"led{n}"] = led = io.Buffer("o", platform.request(resource, number, dir="-"))
            m.d.comb += led.o.eq(soc.leds[n])
        if isinstance(memory, SdramMemory):
            connect_sdram(m, platform, soc, memory.domain)
        self.connect(m, platform, soc)
        return m

    def soc(self, memory: Any, clock_hz: int) -> Any:
        """The SoC of the board: a component with the ports `rx`, `tx`, `leds` and the pins of the memory."""
        return Soc(self.config, memory, clock_hz=clock_hz, baud=self.point.baud, board_id=self.board.identity)

    def connect(self, m: Module, platform: Any, soc: Any) -> None:
        """Connects the further pins of this SoC."""


def board_memory(board: UartBoard, config: NpuConfig, point: Point, pll: Pll) -> OnChipMemory | SdramMemory:
    """The memory of a point, with the clocks of `UartBoard.clocks`."""
    if point.memory != SDRAM or board.sdram is None:
        return OnChipMemory(config, point.memory_kib << 10)
    return SdramMemory(config, board.sdram, pll.memory_hz, shared=board.sdram_shares_clock)


def drive_clocks(m: Module, pll: Pll, clock: Value, memory: OnChipMemory | SdramMemory) -> None:
    """Drives the clock domains of a SoC with this memory, from the clock of the board."""
    if isinstance(memory, SdramMemory):
        delay_ns = memory.controller.cycles.clock_delay
        if memory.shared:
            drive_with_pin(m, pll, clock, later=SDRAM_CLOCK, delay_ns=delay_ns)
        else:
            drive_with_memory(m, pll, clock, memory=MEMORY, later=SDRAM_CLOCK, delay_ns=delay_ns)
    else:
        drive_sync(m, pll, clock)


def connect_sdram(m: Module, platform: Any, soc: Any, domain: str = MEMORY) -> None:
    """Connects the SDRAM, all pins with registers of its `domain` in them; its clock is that of domain SDRAM_CLOCK."""
    port = platform.request("sdram", 0, dir="-")
    m.submodules.sdram_clk = clock = io.DDRBuffer("o", port.clk, o_domain=SDRAM_CLOCK)
    m.d.comb += [clock.o[0].eq(1), clock.o[1].eq(0)]
    for name in SDRAM_PINS:
        if name == "clk":
            continue
        direction: Literal["io", "o"] = "io" if name == "dq" else "o"
        inner = {"i_domain": domain} if name == "dq" else {}
        buffer = io.FFBuffer(direction, getattr(port, name), o_domain=domain, **inner)  # type: ignore[arg-type]
        m.submodules[f"sdram_{name}"] = buffer
        if name == "dq":
            m.d.comb += [soc.sdram_dq_i.eq(buffer.i), buffer.o.eq(soc.sdram_dq_o), buffer.oe.eq(soc.sdram_dq_oe)]
        else:
            m.d.comb += buffer.o.eq(getattr(soc, f"sdram_{name}"))
