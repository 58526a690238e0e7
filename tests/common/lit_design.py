"""A design for the ULX3S that is small enough for the tools in a test."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Value
from amaranth.lib import io

from tilewright.fpga.clocking import drive_sync
from tilewright.fpga.plls import Ecp5Pll


class LitDesign(Elaboratable):
    """Something behind a PLL at 50 MHz, with one bit of it on an LED."""

    def body(self, m: Module) -> Value:
        """Adds what it is. Returns what the LED shows."""
        raise NotImplementedError

    def drive(self, m: Module, clock: Value) -> None:
        """Makes the clock domains from the clock of the board."""
        drive_sync(m, Ecp5Pll.find(25_000_000, 50_000_000), clock)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.clock = clock = io.Buffer("i", platform.request(platform.default_clk, dir="-"))
        self.drive(m, clock.i)
        m.submodules.led = led = io.Buffer("o", platform.request("led", 0, dir="-"))
        m.d.comb += led.o.eq(self.body(m))
        return m
