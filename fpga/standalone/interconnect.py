"""Connects the core's two masters to the slaves of the memory map."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.fpga.bridge.bridge import MemoryPort
from tilewright.fpga.standalone.core import Access
from tilewright.fpga.standalone.memory_map import PLACE_BITS
from tilewright.hw.connections import unread
from tilewright.hw.interfaces import Axi4Lite


class Interconnect(wiring.Component):
    """Grants one access at a time; data goes before instructions. At addresses without a slave, reads give 0 and writes
    are lost.

    Latency: a slave gets a request in the cycle after the master's, the master its answer in the cycle after.

    Parameters:
        places: addresses of the slaves.

    Ports:
        instructions, data: the masters.
        slave0, slave1, ...: one for each place.
    """

    def __init__(self, places: Sequence[int]) -> None:
        self.numbers = [place >> PLACE_BITS for place in places]
        slaves = {f"slave{n}": Out(Access()) for n in range(len(places))}
        super().__init__({"instructions": In(Access()), "data": In(Access()), **slaves})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slaves = [getattr(self, f"slave{n}") for n in range(len(self.numbers))]
        busy, of_data, answered = Signal(), Signal(), Signal()
        write, address, wdata, strobe = Signal(), Signal(32), Signal(32), Signal(4)
        rdata = Signal(32)
        here = Signal(len(slaves))
        chosen = self.data
        first = self.data.valid
        with m.If(~busy & ~answered & (self.data.valid | self.instructions.valid)):
            m.d.sync += [
                busy.eq(1),
                of_data.eq(first),
                write.eq(first & chosen.write),
                address.eq(Mux(first, chosen.address, self.instructions.address)),
                wdata.eq(chosen.wdata),
                strobe.eq(chosen.strobe),
            ]
        m.d.comb += here.eq(Cat(address[PLACE_BITS:] == number for number in self.numbers))
        done = Signal()
        m.d.comb += done.eq(Cat(s.done for s in slaves).any() | (busy & ~here.any()))
        m.d.sync += answered.eq(done)
        with m.If(done):
            m.d.sync += [busy.eq(0), rdata.eq(0)]
            for n, slave in enumerate(slaves):
                with m.If(here[n]):
                    m.d.sync += rdata.eq(slave.rdata)
        for n, slave in enumerate(slaves):
            m.d.comb += [
                slave.valid.eq(busy & here[n]),
                slave.write.eq(write),
                slave.address.eq(address),
                slave.wdata.eq(wdata),
                slave.strobe.eq(strobe),
            ]
        for master, mine in ((self.data, of_data), (self.instructions, ~of_data)):
            m.d.comb += [master.done.eq(answered & mine), master.rdata.eq(rdata)]
        unread(m, self.instructions.write, self.instructions.wdata, self.instructions.strobe)  # it reads only
        return m


class ToMemory(wiring.Component):
    """A slave that accesses the port of a `tilewright.fpga.memory`; the address counts from the memory's first byte.

    Ports:
        cpu: the master.
        mem: the memory.
    """

    def __init__(self) -> None:
        super().__init__({"cpu": In(Access()), "mem": Out(MemoryPort())})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        asked = Signal()
        taken = self.mem.valid & self.mem.ready
        m.d.comb += [
            self.mem.valid.eq(self.cpu.valid & ~asked),
            self.mem.write.eq(self.cpu.write),
            self.mem.address.eq(self.cpu.address[:PLACE_BITS]),
            self.mem.wdata.eq(self.cpu.wdata),
            self.mem.strobe.eq(self.cpu.strobe),
            self.cpu.rdata.eq(self.mem.rdata),
            self.cpu.done.eq(Mux(self.cpu.write, taken, self.mem.rvalid)),
        ]
        with m.If(self.mem.rvalid):
            m.d.sync += asked.eq(0)
        with m.Elif(taken & ~self.cpu.write):
            m.d.sync += asked.eq(1)
        return m


class ToRegisters(wiring.Component):
    """A slave that accesses the registers of the NPU.

    Ports:
        cpu: the master; it writes whole words.
        axil: AXI4-Lite master.
    """

    def __init__(self) -> None:
        super().__init__({"cpu": In(Access()), "axil": Out(Axi4Lite())})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axil, cpu = self.axil, self.cpu
        sent = {name: Signal(name=f"{name}_sent") for name in ("aw", "w", "ar")}
        for name, flag in sent.items():
            channel = getattr(axil, name)
            m.d.comb += channel.valid.eq(cpu.valid & (~cpu.write if name == "ar" else cpu.write) & ~flag)
            with m.If(cpu.done):
                m.d.sync += flag.eq(0)
            with m.Elif(channel.valid & channel.ready):
                m.d.sync += flag.eq(1)
        m.d.comb += [
            axil.aw.addr.eq(cpu.address),
            axil.ar.addr.eq(cpu.address),
            axil.aw.prot.eq(0),
            axil.ar.prot.eq(0),
            axil.w.data.eq(cpu.wdata),
            axil.w.strb.eq(0xF),
            axil.b.ready.eq(1),
            axil.r.ready.eq(1),
            cpu.rdata.eq(axil.r.data),
            cpu.done.eq(cpu.valid & Mux(cpu.write, axil.b.valid, axil.r.valid)),
        ]
        unread(m, cpu.strobe, axil.b.resp, axil.r.resp)
        return m
