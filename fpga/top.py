"""The top module of a board: PLL, SoC and pins."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module
from amaranth.lib import io

from fpga.board import Board, Point
from fpga.clocking import Pll, drive_sync
from fpga.memory import OnChipMemory
from fpga.soc import Soc
from isa.config import NpuConfig


class BoardTop(Elaboratable):
    """The SoC of one configuration on the pins of one board."""

    def __init__(self, board: Board, config: NpuConfig, point: Point, pll: Pll) -> None:
        self.board, self.config, self.point, self.pll = board, config, point, pll

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        clock_port = platform.request(platform.default_clk, dir="-")
        m.submodules.clock = clock = io.Buffer("i", clock_port)
        drive_sync(m, self.pll, clock.i)

        hz = self.pll.output_hz
        memory = OnChipMemory(self.config, self.point.memory_kib << 10)
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
        return m
