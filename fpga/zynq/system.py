"""The NPU with the ports of Zynq-7000's processing system, and that system's block around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Cat, ClockDomain, Const, Elaboratable, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import Out

from tilewright.fpga.zynq.axi3 import (
    GP_ID_BITS,
    HP_DATA_BITS,
    HP_ID_BITS,
    BurstSplitter,
    RegisterBridge,
    axi3_master,
    flipped,
)
from tilewright.hw.connections import unread
from tilewright.hw.interfaces import flat_ports
from tilewright.hw.npu import Npu
from tilewright.isa.config import NpuConfig


class ZynqSystem(wiring.Component):
    """NPU, register bridge and burst splitter. Clock domain `sync`.

    Parameters:
        config: configuration of the NPU; see `BurstSplitter` for its bus.
        base, size: window of the registers.

    Ports:
        gp_*: AXI3 slave for M_AXI_GP0.
        hp_*: AXI3 master for S_AXI_HP0.
        irq: level interrupt.
    """

    def __init__(self, config: NpuConfig, base: int, size: int) -> None:
        self.config = config
        self.bridge, self.splitter = RegisterBridge(base, size), BurstSplitter(config)
        super().__init__(
            {
                **flipped(axi3_master("gp_", 32, GP_ID_BITS)),
                **axi3_master("hp_", HP_DATA_BITS, HP_ID_BITS),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.npu = npu = Npu(self.config)
        m.submodules.bridge, m.submodules.splitter = self.bridge, self.splitter

        wiring.connect(m, npu.axi, self.splitter.axi)
        wiring.connect(m, self.bridge.axil, npu.axil)
        unread(m, *(port for _, _, port in flat_ports(npu.dbg)))  # no timelines on boards
        for name, member in self.signature.members.items():
            part = {"gp": self.bridge, "hp": self.splitter}.get(name.partition("_")[0], npu)
            inner, outer = getattr(part, name), getattr(self, name)
            m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
        return m


class Ps7Top(Elaboratable):
    """The PS7 block with a `ZynqSystem` on M_AXI_GP0, S_AXI_HP0, IRQF2P[0]; clock and reset are FCLK0's. No pins.

    Args:
        system: the NPU with its adaptors.
        inputs: width of every input of PS7 that fabric can drive; those without use are tied to 0, as an input that is
            left open reads 1.
    """

    def __init__(self, system: ZynqSystem, inputs: Mapping[str, int]) -> None:
        self.system, self.inputs = system, inputs

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.system = system = self.system
        m.domains.sync = sync = ClockDomain()
        clocks, resets = Signal(4), Signal(4)
        m.submodules.clock = Instance("BUFG", i_I=clocks[0], o_O=sync.clk)
        m.submodules.reset = ResetSynchronizer(~resets[0])

        ports: dict[str, Any] = {"o_FCLKCLK": clocks, "o_FCLKRESETN": resets}
        driven: dict[str, Any] = {"MAXIGP0ACLK": sync.clk, "SAXIHP0ACLK": sync.clk, "IRQF2P": system.irq}
        for prefix, block in (("gp_", "MAXIGP0"), ("hp_", "SAXIHP0")):
            for name, member in system.signature.members.items():
                if name.startswith(prefix):
                    port, value = block + name.removeprefix(prefix).upper(), getattr(system, name)
                    if member.flow == Out:
                        driven[port] = value
                    else:
                        ports[f"o_{port}"] = value
        for name, width in self.inputs.items():
            value = driven.pop(name, Const(0, 1))
            ports[f"i_{name}"] = Cat(value, Const(0, width - len(value))) if len(value) < width else value
        assert not driven, f"PS7 has no inputs {', '.join(driven)}"
        m.submodules.ps7 = Instance("PS7", **ports)
        return m
