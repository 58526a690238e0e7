"""The SoC with a core: NPU, memory, core, boot program, flash memory, serial line, status LEDs."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fpga.soc import LEDS
from fpga.standalone.core import Core
from fpga.standalone.flash import FlashReader
from fpga.standalone.interconnect import Interconnect, ToMemory, ToRegisters
from fpga.standalone.memory_map import BOOT, BOOT_BYTES, FLASH, IO, MEMORY, NPU
from fpga.standalone.peripherals import Io, Ram
from fpga.standalone.second_cache import SecondCache
from hw.connections import unread
from hw.interfaces import flat_ports
from hw.npu import Npu
from hw.reset import reset_by
from isa.config import NpuConfig

#: 32 KiB of instructions: kernels, soft float and what is around them.
SECOND_CACHE_WORDS = 8192


class StandaloneSoc(wiring.Component):
    """NPU with its memory, and a core that uses both (`memory_map` says where). Everything runs on clock domain `sync`.

    Parameters:
        config: of the NPU.
        memory: component with the ports of `OnChipMemory` and `size` in bytes.
        boot: the program the core starts with, for address BOOT, at most BOOT_BYTES.
        clock_hz: of domain `sync`.
        baud: of the serial line.
        flash_bytes: size of the flash memory.

    Ports:
        rx, tx: serial line.
        flash_clk, flash_cs, flash_copi, flash_cipo: SPI flash memory, see `FlashReader`.
        the `pins` of the memory.
        leds: 0 blinks once a second while the clock runs, the others show what the program says.
    """

    def __init__(
        self, config: NpuConfig, memory: Any, boot: bytes, *, clock_hz: int, baud: int, flash_bytes: int
    ) -> None:
        self.config, self.memory, self.boot = config, memory, boot
        self.clock_hz, self.baud, self.flash_bytes = clock_hz, baud, flash_bytes
        super().__init__(
            {
                "rx": In(1, init=1),
                "tx": Out(1, init=1),
                "flash_clk": Out(1),
                "flash_cs": Out(1),
                "flash_copi": Out(1),
                "flash_cipo": In(1, init=1),
                "leds": Out(LEDS),
                **memory.pins,
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        memory = self.memory
        npu = Npu(self.config)
        # After power-on only: the program resets the NPU by its register.
        reset = Signal(init=1)
        m.d.sync += reset.eq(0)
        m.submodules.npu = reset_by(m, npu, reset, "npu")
        m.submodules.memory = memory
        m.d.comb += memory.bus_reset.eq(reset)
        wiring.connect(m, npu.axi, memory.axi)
        unread(m, *(port for _, _, port in flat_ports(npu.dbg)), npu.irq)  # no timelines on boards; the program asks

        m.submodules.core = core = Core(BOOT)
        m.submodules.boot_ram = ram = Ram(BOOT_BYTES, self.boot)
        m.submodules.flash = flash = FlashReader(self.clock_hz)
        m.submodules.to_memory = to_memory = ToMemory()
        m.submodules.to_npu = to_npu = ToRegisters()
        m.submodules.io = io = Io(self.clock_hz, self.baud, memory.size, self.flash_bytes)
        slaves: dict[int, Any] = {BOOT: ram, FLASH: flash, MEMORY: to_memory, NPU: to_npu, IO: io}
        m.submodules.interconnect = interconnect = Interconnect(list(slaves))
        m.submodules.second_cache = second_cache = SecondCache(SECOND_CACHE_WORDS)
        wiring.connect(m, core.instructions, second_cache.cpu)
        wiring.connect(m, second_cache.memory, interconnect.instructions)
        wiring.connect(m, core.data, interconnect.data)
        for n, slave in enumerate(slaves.values()):
            wiring.connect(m, getattr(interconnect, f"slave{n}"), slave.cpu)
        wiring.connect(m, to_memory.mem, memory.mem)
        wiring.connect(m, to_npu.axil, npu.axil)
        m.d.comb += [
            io.rx.eq(self.rx),
            self.tx.eq(io.tx),
            self.flash_clk.eq(flash.clk),
            self.flash_cs.eq(flash.cs),
            self.flash_copi.eq(flash.copi),
            flash.cipo.eq(self.flash_cipo),
        ]
        for name, member in memory.pins.items():
            source, target = (memory, self) if member.flow == Out else (self, memory)
            m.d.comb += getattr(target, name).eq(getattr(source, name))

        half_second, alive = Signal(range(self.clock_hz // 2)), Signal()
        m.d.sync += half_second.eq(half_second + 1)
        with m.If(half_second == self.clock_hz // 2 - 1):
            m.d.sync += [half_second.eq(0), alive.eq(~alive)]
        m.d.sync += self.leds.eq(Cat(alive, io.leds[1:]))
        return m
