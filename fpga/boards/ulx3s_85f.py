"""ULX3S with LFE5U-85F (Radiona): 25 MHz, FTDI serial line up to 3 Mbaud, 32 MB SDRAM."""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.fpga.board import SDRAM, Point
from tilewright.fpga.cells import Capacity
from tilewright.fpga.plls import Ecp5Pll
from tilewright.fpga.sdram.chip import SDRAM_32M
from tilewright.fpga.uart_board import UartBoard, open_fpga_loader

CLOCK_HZ = 25_000_000


def platform() -> Any:
    from amaranth_boards.ulx3s import ULX3S_85F_Platform

    return ULX3S_85F_Platform(toolchain="Trellis")


BOARD = UartBoard(
    name="ulx3s_85f",
    title="ULX3S 85F",
    identity="UX85",
    family="ecp5",
    capacity=Capacity(lut=83640, ff=83640, dsp=156, bram=208),
    platform=platform,
    clock_hz=CLOCK_HZ,
    pll=partial(Ecp5Pll.find, CLOCK_HZ),
    loader=open_fpga_loader("ulx3s"),
    sdram=SDRAM_32M,
    points={
        "tiny": Point(clock_mhz=100, memory_kib=160, seed=5),
        "small": Point(clock_mhz=80, memory=SDRAM, memory_kib=SDRAM_32M.size >> 10, baud=2_000_000, seed=14),
        "wide": Point(clock_mhz=75, memory=SDRAM, memory_kib=SDRAM_32M.size >> 10, baud=2_000_000, seed=3),
    },
)
