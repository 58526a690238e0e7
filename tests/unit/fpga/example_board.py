"""iCESugar-Pro with LFE5U-25F (Muselab): 25 MHz, serial line over USB. A board as a file of `fpga/boards/` has it."""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.fpga.board import Point
from tilewright.fpga.cells import Capacity
from tilewright.fpga.plls import Ecp5Pll
from tilewright.fpga.uart_board import UartBoard, open_fpga_loader

CLOCK_HZ = 25_000_000


def platform() -> Any:
    from amaranth.build import Attrs
    from amaranth_boards.icesugar_pro import ICESugarProPlatform
    from amaranth_boards.resources import LEDResources

    result = ICESugarProPlatform(toolchain="Trellis")
    result.add_resources(LEDResources(pins="B11 A11 A12", invert=True, attrs=Attrs(IO_TYPE="LVCMOS33")))
    return result


BOARD = UartBoard(
    name="icesugar_pro",
    title="iCESugar-Pro",
    identity="ISPR",
    family="ecp5",
    capacity=Capacity(lut=24288, ff=24288, dsp=28, bram=56),
    platform=platform,
    clock_hz=CLOCK_HZ,
    pll=partial(Ecp5Pll.find, CLOCK_HZ),
    loader=open_fpga_loader("icesugar-pro"),
    leds=tuple(("led", n) for n in range(3)),
    other=Point(clock_mhz=20, memory_kib=16, baud=2_000_000),
)
