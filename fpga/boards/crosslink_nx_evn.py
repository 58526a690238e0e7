"""CrossLink-NX Evaluation Board with LIFCL-40 (Lattice): 12 MHz, no serial line without soldering: an adapter at PMOD0.

A PLL of the family takes 18 MHz and more, and its own oscillator is 7 % off, too much for a serial line: the clock is
that of the board.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.fpga.board import Point
from tilewright.fpga.cells import Capacity
from tilewright.fpga.plls import NoPll
from tilewright.fpga.uart_board import UartBoard, open_fpga_loader

CLOCK_HZ = 12_000_000


def platform() -> Any:
    from amaranth.build import Attrs, Clock, Pins, Resource
    from amaranth.vendor import LatticePlatform
    from amaranth_boards.resources import LEDResources, UARTResource

    attributes = Attrs(IO_TYPE="LVCMOS33")

    class CrossLinkNxEvn(LatticePlatform):
        device, speed, package, grade = "LIFCL-40", "9", "BG400", "C"
        default_clk = "clk12"
        resources = [
            Resource("clk12", 0, Pins("L13", dir="i"), Clock(CLOCK_HZ), attributes),
            *LEDResources(pins="E17 F13 G13 F14", invert=True, attrs=attributes),
            UARTResource(0, rx="D10", tx="D9", attrs=attributes),
        ]
        connectors: list[object] = []

    return CrossLinkNxEvn(toolchain="Oxide")


POINT = Point(clock_mhz=12, memory_kib=128, baud=1_000_000)

BOARD = UartBoard(
    name="crosslink_nx_evn",
    title="CrossLink-NX EVN",
    identity="CLNX",
    family="nexus",
    capacity=Capacity(lut=32256, ff=32256, dsp=56, bram=84),
    platform=platform,
    clock_hz=CLOCK_HZ,
    pll=partial(NoPll.find, CLOCK_HZ),
    loader=open_fpga_loader("crosslinknx_evn"),
    points={"tiny": POINT},
    other=POINT,
)
