"""The top module of a board: PLL, SoC and pins."""

from __future__ import annotations

from typing import Any, Literal

from amaranth.hdl import Elaboratable, Module
from amaranth.lib import io

from fpga.board import SDRAM, Board, Point
from fpga.clocking import Pll, drive_sync
from fpga.errors import FpgaError
from fpga.memory import OnChipMemory
from fpga.sdram.memory import SdramMemory
from fpga.soc import Soc
from isa.config import NpuConfig

#: Clock domain of the SDRAM chip, and the pins of `amaranth_boards.resources.SDRAMResource`.
SDRAM_CLOCK = "sdram"
SDRAM_PINS = ("clk", "clk_en", "cs", "ras", "cas", "we", "ba", "a", "dqm", "dq")


class BoardTop(Elaboratable):
    """The SoC of one configuration on the pins of one board."""

    def __init__(self, board: Board, config: NpuConfig, point: Point, pll: Pll) -> None:
        self.board, self.config, self.point, self.pll = board, config, point, pll

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        clock_port = platform.request(platform.default_clk, dir="-")
        m.submodules.clock = clock = io.Buffer("i", clock_port)
        hz = self.pll.output_hz
        memory = board_memory(self.board, self.config, self.point, hz)
        if isinstance(memory, SdramMemory):
            drive_sync(m, self.pll, clock.i, later=SDRAM_CLOCK, delay_ns=memory.controller.cycles.clock_delay)
        else:
            drive_sync(m, self.pll, clock.i)
        m.submodules.soc = soc = Soc(
            self.config, memory, clock_hz=hz, baud=self.point.baud, board_id=self.board.identity
        )
        uart = platform.request("uart", 0, dir={"rx": "-", "tx": "-"})
        m.submodules.rx = rx = io.Buffer("i", uart.rx)
        m.submodules.tx = tx = io.Buffer("o", uart.tx)
        m.d.comb += [soc.rx.eq(rx.i), tx.o.eq(soc.tx)]
        for n, (resource, number) in enumerate(self.board.leds):
            m.submodules[f"led{n}"] = led = io.Buffer("o", platform.request(resource, number, dir="-"))
            m.d.comb += led.o.eq(soc.leds[n])
        if isinstance(memory, SdramMemory):
            connect_sdram(m, platform, soc)
        return m


def board_memory(board: Board, config: NpuConfig, point: Point, clock_hz: int) -> OnChipMemory | SdramMemory:
    """The memory a point names.

    Raises:
        FpgaError: the board has no SDRAM, or it does not work at this clock.
    """
    if point.memory != SDRAM:
        return OnChipMemory(config, point.memory_kib << 10)
    if board.sdram is None:
        raise FpgaError(f"{board.name} has no SDRAM that is supported")
    try:
        return SdramMemory(config, board.sdram, clock_hz)
    except ValueError as error:
        raise FpgaError(f"{board.name}: {error}") from None


def connect_sdram(m: Module, platform: Any, soc: Soc) -> None:
    """The pins of the SDRAM, all with registers in them; its clock is that of domain SDRAM_CLOCK."""
    port = platform.request("sdram", 0, dir="-")
    m.submodules.sdram_clk = clock = io.DDRBuffer("o", port.clk, o_domain=SDRAM_CLOCK)
    m.d.comb += [clock.o[0].eq(1), clock.o[1].eq(0)]
    for name in SDRAM_PINS:
        if name == "clk":
            continue
        direction: Literal["io", "o"] = "io" if name == "dq" else "o"
        m.submodules[f"sdram_{name}"] = buffer = io.FFBuffer(direction, getattr(port, name))
        if name == "dq":
            m.d.comb += [soc.sdram_dq_i.eq(buffer.i), buffer.o.eq(soc.sdram_dq_o), buffer.oe.eq(soc.sdram_dq_oe)]
        else:
            m.d.comb += buffer.o.eq(getattr(soc, f"sdram_{name}"))
