"""OrangeCrab r0.2 with LFE5U-85F: 48 MHz. The serial line is on the Feather header (RX pin 0, TX pin 1)."""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.fpga.board import Point
from tilewright.fpga.cells import Capacity
from tilewright.fpga.plls import Ecp5Pll
from tilewright.fpga.uart_board import Loader, UartBoard

CLOCK_HZ = 48_000_000


def platform() -> Any:
    from amaranth.build import Attrs
    from amaranth_boards.orangecrab_r0_2 import OrangeCrabR0_2_85FPlatform
    from amaranth_boards.resources import LEDResources, UARTResource

    result = OrangeCrabR0_2_85FPlatform(toolchain="Trellis")
    attributes = Attrs(IO_TYPE="LVCMOS33")
    result.add_resources([UARTResource(0, rx="0", tx="1", conn=("io", 0), attrs=attributes)])
    result.add_resources(LEDResources(pins="K4 M3 J3", invert=True, attrs=attributes))
    return result


#: The board's USB bootloader. Interface 0 is the bitstream; 1, which stock 85F bootloaders have too, is firmware.
LOADER = Loader(
    tool="dfu-util",
    source="it is in most distributions (dfu-util)",
    volatile=None,
    permanent=("-d", "1209:5af0", "-a", "0", "-D"),
    hint="was the button held while it was plugged in, so that the bootloader waits?",
)

BOARD = UartBoard(
    name="orangecrab_85f",
    title="OrangeCrab r0.2 85F",
    identity="OC85",
    family="ecp5",
    capacity=Capacity(lut=83640, ff=83640, dsp=156, bram=208),
    platform=platform,
    clock_hz=CLOCK_HZ,
    pll=partial(Ecp5Pll.find, CLOCK_HZ),
    loader=LOADER,
    leds=tuple(("led", n) for n in range(3)),
    other=Point(clock_mhz=24, memory_kib=64, baud=2_000_000),
)
