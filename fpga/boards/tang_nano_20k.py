"""Tang Nano 20K with GW2AR-18 (Sipeed): 27 MHz, serial line through the on-board BL616."""

from __future__ import annotations

from functools import partial
from typing import Any

from fpga.cells import Capacity
from fpga.clocking import GowinPll
from fpga.uart_board import UartBoard, open_fpga_loader

CLOCK_HZ = 27_000_000
FAMILY = "GW2A-18C"


def platform() -> Any:
    from amaranth.build import Attrs, Clock, Pins, Resource
    from amaranth.vendor import GowinPlatform
    from amaranth_boards.resources import LEDResources, UARTResource

    class TangNano20k(GowinPlatform):
        part = "GW2AR-LV18QN88C8/I7"
        family = FAMILY.replace("GW2A-", "GW2AR-")
        _chipdb_device = FAMILY
        default_clk = "clk27"
        resources = [
            Resource("clk27", 0, Pins("4", dir="i"), Clock(CLOCK_HZ), Attrs(IO_TYPE="LVCMOS33")),
            *LEDResources(pins="15 16 17 18 19 20", invert=True, attrs=Attrs(IO_TYPE="LVCMOS33")),
            UARTResource(0, rx="70", tx="69", attrs=Attrs(PULL_MODE="UP", IO_TYPE="LVCMOS33")),
        ]
        connectors: list[object] = []

    return TangNano20k(toolchain="Apicula")


BOARD = UartBoard(
    name="tang_nano_20k",
    title="Tang Nano 20K",
    identity="TN20",
    family="gowin",
    capacity=Capacity(lut=20736, ff=15552, dsp=48, bram=46),
    platform=platform,
    clock_hz=CLOCK_HZ,
    pll=partial(GowinPll.find, CLOCK_HZ, device=FAMILY),
    loader=open_fpga_loader("tangnano20k"),
)
