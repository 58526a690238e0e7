"""Tang Nano 20K with GW2AR-18 (Sipeed): 27 MHz, serial line through the on-board BL616, 8 MB SDRAM in the package of
the FPGA."""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.fpga.board import SDRAM, Point
from tilewright.fpga.cells import Capacity
from tilewright.fpga.plls import GowinPll
from tilewright.fpga.sdram.chip import SDRAM_8M
from tilewright.fpga.uart_board import UartBoard, open_fpga_loader

CLOCK_HZ = 27_000_000
FAMILY = "GW2A-18C"
#: Pads of the FPGA that lead to the memory in its package (`sip_cst` of apycula's database of the device).
_SDRAM_PADS = {
    "clk": "IOR11B", "cke": "IOL13A", "cs_n": "IOL14B", "ras_n": "IOL13B", "cas_n": "IOL14A", "we_n": "IOL12B",
    "ba": "IOR13A IOR12A", "dqm": "IOL12A IOR11A IOL18A IOR15B",
    "a": "IOR14A IOR13B IOR14B IOR15A IOL16B IOL17B IOL16A IOL17A IOL15B IOL15A IOR12B",
    "dq": "IOL3A IOL3B IOL8A IOL8B IOL9A IOL9B IOL11A IOL11B IOR9B IOR9A IOR5B IOR6A IOR5A IOR4B IOR3B IOR3A "
    "IOL39B IOL39A IOL35B IOL35A IOL30B IOL30A IOL20A IOL18B IOR17A IOR16A IOR16B IOR17B IOR18A IOR18B IOR44A IOR44B",
}  # fmt: skip


def platform() -> Any:
    from amaranth.build import Attrs, Clock, Pins, Resource
    from amaranth.vendor import GowinPlatform
    from amaranth_boards.resources import LEDResources, SDRAMResource, UARTResource

    class TangNano20k(GowinPlatform):
        part = "GW2AR-LV18QN88C8/I7"
        family = FAMILY.replace("GW2A-", "GW2AR-")
        _chipdb_device = FAMILY
        default_clk = "clk27"
        resources = [
            Resource("clk27", 0, Pins("4", dir="i"), Clock(CLOCK_HZ), Attrs(IO_TYPE="LVCMOS33")),
            *LEDResources(pins="15 16 17 18 19 20", invert=True, attrs=Attrs(IO_TYPE="LVCMOS33")),
            UARTResource(0, rx="70", tx="69", attrs=Attrs(PULL_MODE="UP", IO_TYPE="LVCMOS33")),
            SDRAMResource(0, **_SDRAM_PADS, attrs=Attrs(IO_TYPE="LVCMOS33")),
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
    sdram=SDRAM_8M,
    sdram_shares_clock=True,
    points={"nano": Point(clock_mhz=54, memory=SDRAM, memory_kib=SDRAM_8M.size >> 10)},
)
