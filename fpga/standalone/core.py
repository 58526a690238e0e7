"""VexRiscv, the core of the SoC: RV32IM with 4 KiB of caches for instructions and for data, from PyPI.

The survey of `tilewright.fpga.flows.into_luts` takes it for empty: its 10 block RAMs and 4 DSP blocks count after
synthesis only.

SpinalHDL's generator wrote its Verilog (MIT licence); the package `pythondata-cpu-vexriscv` carries it. Addresses from
0x8000_0000 on are not cached, stores go through the cache. `fence.i` empties the cache of instructions, the word 0x500f
that of data.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.common.installation import install_extra
from tilewright.fpga.errors import FpgaError

PACKAGE = "pythondata_cpu_vexriscv"
_FILE = "VexRiscv.v"


class Access(wiring.Signature):
    """A master of 32-bit words: `address` in bytes is a multiple of 4. The request is stable until the cycle of `done`,
    in which `rdata` is there.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "write": Out(1),
                "address": Out(32),
                "wdata": Out(32),
                "strobe": Out(4),
                "done": In(1),
                "rdata": In(32),
            }
        )


def verilog() -> str:
    """The Verilog text of the core. Raises `FpgaError` where the package is missing."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FpgaError(f"{PACKAGE.replace('_', '-')} is not installed: {install_extra('standalone')}")
    return (Path(next(iter(spec.submodule_search_locations))) / "verilog" / _FILE).read_text(encoding="utf-8")


class Core(wiring.Component):
    """The core, with two masters.

    Parameters:
        start: address of the first instruction.

    Ports:
        instructions, data: masters; a line of a cache is 8 accesses one after the other.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        super().__init__({"instructions": Out(Access()), "data": Out(Access())})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        if platform is not None:
            platform.add_file(_FILE, verilog())
        ports: dict[str, Any] = {
            "i_clk": ClockSignal(), "i_reset": ResetSignal(), "i_externalResetVector": self.start,
            "i_timerInterrupt": 0, "i_softwareInterrupt": 0, "i_externalInterruptArray": 0,
        }  # fmt: skip
        for name, port in (("iBusWishbone", self.instructions), ("dBusWishbone", self.data)):
            cycle, strobe, word = Signal(), Signal(), Signal(30)
            ports |= {
                f"o_{name}_CYC": cycle,
                f"o_{name}_STB": strobe,
                f"i_{name}_ACK": port.done,
                f"i_{name}_ERR": 0,
                f"o_{name}_WE": port.write,
                f"o_{name}_ADR": word,
                f"i_{name}_DAT_MISO": port.rdata,
                f"o_{name}_DAT_MOSI": port.wdata,
                f"o_{name}_SEL": port.strobe,
                f"o_{name}_CTI": Signal(3, name=f"{name}_cti"),
                f"o_{name}_BTE": Signal(2, name=f"{name}_bte"),
            }
            m.d.comb += [port.valid.eq(cycle & strobe), port.address.eq(word << 2)]
        m.submodules.vexriscv = Instance("VexRiscv", **ports)
        return m
