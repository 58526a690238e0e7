"""The AXI4-Lite slave with the registers of `isa.registers`."""

from __future__ import annotations

from amaranth.hdl import C, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.ports import axil_slave
from isa.config import NpuConfig
from isa.registers import IDENTITY, REGISTERS, VERSION

#: Read-only registers whose value is built in.
CONSTANTS = ("IDENTITY", "VERSION", "FINGERPRINT_LO", "FINGERPRINT_HI")


class Registers(wiring.Component):
    """Register file on AXI4-Lite. One write and one read at a time; addresses without a register read 0.

    Latency: a write takes effect at the end of the cycle its address and data are taken (both at once); read data and
    responses follow in the next cycle.

    Ports:
        axil_*: AXI4-Lite slave.
        {NAME}: value of a RW register (out), or of a read-only or W1C register (in).
        {NAME}_write, {NAME}_data: write strobe and data of W and W1C registers.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        members: dict[str, object] = {}
        for r in REGISTERS:
            if r.name in CONSTANTS:
                continue
            if r.access == "RW":
                members[r.name] = Out(32)
            else:
                if r.access in ("R", "W1C"):
                    members[r.name] = In(32)
                if r.access in ("W", "W1C"):
                    members |= {f"{r.name}_write": Out(1), f"{r.name}_data": Out(32)}
        super().__init__({**axil_slave(), **members})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fingerprint = int(self.config.fingerprint, 16)
        constants = dict(zip(CONSTANTS, (IDENTITY, VERSION, fingerprint & 0xFFFFFFFF, fingerprint >> 32)))

        write = Signal()
        m.d.comb += [
            write.eq(self.axil_awvalid & self.axil_wvalid & (~self.axil_bvalid | self.axil_bready)),
            self.axil_awready.eq(write),
            self.axil_wready.eq(write),
        ]
        with m.If(write):
            m.d.sync += self.axil_bvalid.eq(1)
        with m.Elif(self.axil_bready):
            m.d.sync += self.axil_bvalid.eq(0)
        for r in REGISTERS:
            hit = write & (self.axil_awaddr[2:] == r.offset >> 2)
            if r.access == "RW":
                with m.If(hit):
                    m.d.sync += getattr(self, r.name).eq(self.axil_wdata)
            elif r.access != "R":
                m.d.comb += [
                    getattr(self, f"{r.name}_write").eq(hit),
                    getattr(self, f"{r.name}_data").eq(self.axil_wdata),
                ]

        read = Signal()
        m.d.comb += [
            self.axil_arready.eq(~self.axil_rvalid | self.axil_rready),
            read.eq(self.axil_arvalid & self.axil_arready),
        ]
        with m.If(read):
            m.d.sync += [self.axil_rvalid.eq(1), self.axil_rdata.eq(0)]
            with m.Switch(self.axil_araddr[2:]):
                for r in REGISTERS:
                    if r.access == "W":
                        continue
                    value: Value = C(constants[r.name], 32) if r.name in CONSTANTS else getattr(self, r.name)
                    with m.Case(r.offset >> 2):
                        m.d.sync += self.axil_rdata.eq(value)
        with m.Elif(self.axil_rready):
            m.d.sync += self.axil_rvalid.eq(0)
        return m
