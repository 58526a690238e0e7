"""Nexys A7-100T, once Nexys 4 DDR, with XC7A100T (Digilent): 100 MHz, FTDI serial line."""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.fpga.board import Point
from tilewright.fpga.cells import Capacity
from tilewright.fpga.plls import Xilinx7Pll
from tilewright.fpga.uart_board import UartBoard, open_fpga_loader

CLOCK_HZ = 100_000_000


def platform() -> Any:
    from amaranth_boards.nexys4ddr import Nexys4DDRPlatform

    return Nexys4DDRPlatform(toolchain="Xray")


BOARD = UartBoard(
    name="nexys_a7_100t",
    title="Nexys A7-100T",
    identity="NA7T",
    family="xc7",
    capacity=Capacity(lut=63400, ff=126800, dsp=240, bram=270),
    platform=platform,
    clock_hz=CLOCK_HZ,
    pll=partial(Xilinx7Pll.find, CLOCK_HZ),
    loader=open_fpga_loader("nexys_a7_100"),
    points={"tiny": Point(clock_mhz=80, memory_kib=128), "wide": Point(clock_mhz=61, memory_kib=128)},
    other=Point(clock_mhz=50, memory_kib=128),
)
