"""The SoC with a core: NPU, memory, core, boot program, flash memory, serial line, status LEDs."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.fpga.memory import reached_bytes
from tilewright.fpga.soc import LEDS
from tilewright.fpga.standalone.host import Host
from tilewright.hw.connections import unread
from tilewright.hw.host.reset import reset_by
from tilewright.hw.interfaces import flat_ports
from tilewright.hw.npu import Npu
from tilewright.isa.config import NpuConfig


class StandaloneSoc(wiring.Component):
    """NPU with its memory, and a core that uses both (addresses in `memory_map`). Everything runs on clock domain
    `sync`.

    Parameters:
        config: configuration of the NPU.
        memory: component with the ports of `OnChipMemory` and `size` in bytes.
        boot: the program the core starts with, for address BOOT, at most BOOT_BYTES.
        clock_hz: clock of domain `sync`.
        baud: baud rate of the serial line.
        flash_bytes: size of the flash memory.

    Ports:
        rx, tx: serial line.
        flash_clk, flash_cs, flash_copi, flash_cipo: SPI flash memory, see `FlashReader`.
        the `pins` of the memory.
        leds: 0 blinks once a second while the clock runs, the others are set by the program.
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

        m.submodules.host = host = Host(
            self.boot, clock_hz=self.clock_hz, baud=self.baud,
            memory_bytes=reached_bytes(memory, self.config), flash_bytes=self.flash_bytes,
        )  # fmt: skip
        wiring.connect(m, host.mem, memory.mem)
        wiring.connect(m, host.axil, npu.axil)
        for name in ("rx", "flash_cipo"):
            m.d.comb += getattr(host, name).eq(getattr(self, name))
        for name in ("tx", "flash_clk", "flash_cs", "flash_copi"):
            m.d.comb += getattr(self, name).eq(getattr(host, name))
        for name, member in memory.pins.items():
            source, target = (memory, self) if member.flow == Out else (self, memory)
            m.d.comb += getattr(target, name).eq(getattr(source, name))

        half_second, alive = Signal(range(self.clock_hz // 2)), Signal()
        m.d.sync += half_second.eq(half_second + 1)
        with m.If(half_second == self.clock_hz // 2 - 1):
            m.d.sync += [half_second.eq(0), alive.eq(~alive)]
        m.d.sync += self.leds.eq(Cat(alive, host.leds[1:]))
        return m
