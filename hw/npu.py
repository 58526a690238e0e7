"""The NPU: AXI4 master, AXI4-Lite slave, one interrupt line."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from hw.ports import axi_master, axil_slave, debug
from isa.config import NpuConfig


class Npu(wiring.Component):
    """The whole accelerator. Clock domain `sync`: ports `clk` and `rst` (synchronous, active high).

    Parameters:
        config: sizes and bus widths.

    Ports:
        axi_*: AXI4 master to external memory.
        axil_*: AXI4-Lite slave, the registers of `isa.registers`.
        irq: level interrupt, high while an enabled interrupt is pending.
        dbg_*: strobes for timelines; leave open where unused.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        super().__init__({**axi_master(config), **axil_slave(), "irq": Out(1), **debug()})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        return m
