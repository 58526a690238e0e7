"""The top modules of boards with a serial line: PLL, SoC and pins."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from amaranth.hdl import Elaboratable, Module, Value
from amaranth.lib import io

from tilewright.fpga.board import SDRAM, Point
from tilewright.fpga.clocking import drive_sync, drive_with_memory, drive_with_pin
from tilewright.fpga.memory import OnChipMemory
from tilewright.fpga.plls import Pll
from tilewright.fpga.sdram.chip import SdramChip
from tilewright.fpga.sdram.memory import MEMORY, SdramMemory
from tilewright.fpga.soc import Soc
from tilewright.isa.config import NpuConfig

#: Clock domain of the clock pin of the SDRAM chip, and the pins of `amaranth_boards.resources.SDRAMResource`.
SDRAM_CLOCK = "sdram"
SDRAM_PINS = ("clk", "clk_en", "cs", "ras", "cas", "we", "ba", "a", "dqm", "dq")


class PinnedBoard(Protocol):
    """The facts that a top module asks of its board; `tilewright.fpga.uart_board.UartBoard` describes them."""

    @property
    def identity(self) -> str: ...

    @property
    def leds(self) -> tuple[tuple[str, int], ...]: ...

    @property
    def sdram(self) -> SdramChip | None: ...

    @property
    def sdram_shares_clock(self) -> bool: ...


class BoardTop(Elaboratable):
    """The SoC of one configuration on the pins of one board."""

    def __init__(self, board: PinnedBoard, config: NpuConfig, point: Point, pll: Pll) -> None:
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


def board_memory(board: PinnedBoard, config: NpuConfig, point: Point, pll: Pll) -> OnChipMemory | SdramMemory:
    """The memory of a point, with the clocks of its PLL."""
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
