"""The AXI4-Lite slave with the registers of `isa.registers`."""

from __future__ import annotations

from amaranth.hdl import Array, C, Module, Mux, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.counters import COUNTER_BITS, COUNTERS, ROUND
from hw.ports import axil_slave
from isa.config import NpuConfig
from isa.registers import IDENTITY, REGISTER, REGISTERS, VERSION

#: Read-only registers whose value is built in.
CONSTANTS = ("IDENTITY", "VERSION", "FINGERPRINT_LO", "FINGERPRINT_HI")
#: Words before the counters, which come last.
FIRST_COUNTER = REGISTER[f"{COUNTERS[0]}_LO"].offset >> 2
WRITABLE = [r for r in REGISTERS if r.access == "RW"]


class Registers(wiring.Component):
    """Register file on AXI4-Lite. One write and one read at a time; addresses without a register read 0.

    Latency: address and data of a write are taken together, in the cycle after both are there, and the write takes
    effect at the end of that cycle; the response follows in the next. Read data follows two cycles after the address
    is taken; that of a counter when the counter is shown, up to ROUND cycles later.

    What can be written is read from a copy in a RAM.

    Ports:
        axil_*: AXI4-Lite slave.
        {NAME}: value of a RW register (out), or of a read-only or W1C register (in).
        {NAME}_write, {NAME}_data: write strobe and data of W and W1C registers.
        counter_index, counter_value: see `hw.counters`.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        members: dict[str, object] = {"counter_index": In(range(ROUND)), "counter_value": In(COUNTER_BITS)}
        for r in REGISTERS:
            if r.name in CONSTANTS or r.counts:
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
        m.submodules.copy = copy = Memory(shape=Shape(32), depth=FIRST_COUNTER, init=[])
        kept, copied = copy.write_port(), copy.read_port()

        # Writes are decoded in the cycle before they are taken; address and data do not change in between.
        write, data = Signal(), Signal(32, reset_less=True)
        word = self.axil_awaddr[2:]
        place = Signal(range(FIRST_COUNTER), reset_less=True)
        m.d.sync += [
            write.eq(self.axil_awvalid & self.axil_wvalid & ~write & (~self.axil_bvalid | self.axil_bready)),
            data.eq(self.axil_wdata),
            place.eq(word),
        ]
        m.d.comb += [self.axil_awready.eq(write), self.axil_wready.eq(write)]
        with m.If(write):
            m.d.sync += self.axil_bvalid.eq(1)
        with m.Elif(self.axil_bready):
            m.d.sync += self.axil_bvalid.eq(0)
        m.d.comb += [kept.addr.eq(place), kept.data.eq(data)]
        writable, written = Signal(reset_less=True), {}
        m.d.sync += writable.eq(0)
        for r in REGISTERS:
            if r.access == "R":
                continue
            named, hit = Signal(name=f"{r.name}_named", reset_less=True), Signal(name=f"{r.name}_hit")
            here = word == r.offset >> 2
            m.d.sync += named.eq(here)
            m.d.comb += hit.eq(write & named)
            if r.access == "RW":
                written[r.name] = Signal(name=f"{r.name}_written")
                with m.If(here):
                    m.d.sync += writable.eq(1)
                with m.If(hit):
                    m.d.sync += [getattr(self, r.name).eq(data), written[r.name].eq(1)]
            else:
                m.d.comb += [getattr(self, f"{r.name}_write").eq(hit), getattr(self, f"{r.name}_data").eq(data)]
        m.d.comb += kept.en.eq(write & writable)

        # Reads. The address is decoded in the cycle after it is taken, the value chosen in the next.
        fingerprint = int(self.config.fingerprint, 16)
        constants = dict(zip(CONSTANTS, (IDENTITY, VERSION, fingerprint & 0xFFFFFFFF, fingerprint >> 32)))
        taken, decoded = Signal(), Signal()
        address, wanted = Signal(len(word), reset_less=True), Signal(len(word), reset_less=True)
        counter = Signal(len(word), reset_less=True)  # twice its place, 1 more for the upper half
        is_counter, is_copy = Signal(reset_less=True), Signal(reset_less=True)
        there: list[Value] = [C(0, 1)] * FIRST_COUNTER
        for r in WRITABLE:
            there[r.offset >> 2] = written[r.name]
        m.d.comb += [
            self.axil_arready.eq(~taken & ~decoded & (~self.axil_rvalid | self.axil_rready)),
            copied.addr.eq(address),
            copied.en.eq(taken),
        ]
        with m.If(self.axil_arvalid & self.axil_arready):
            m.d.sync += [taken.eq(1), address.eq(self.axil_araddr[2:])]
        with m.If(taken & ~write):  # never the word being written
            m.d.sync += [
                taken.eq(0),
                decoded.eq(1),
                wanted.eq(address),
                counter.eq(address - FIRST_COUNTER),
                is_counter.eq((address >= FIRST_COUNTER) & (address < FIRST_COUNTER + 2 * len(COUNTERS))),
                is_copy.eq((address < FIRST_COUNTER) & Array(there)[address[: len(place)]]),
            ]
        answer = Signal(32)
        with m.Switch(wanted):
            for r in REGISTERS:
                if r.access in ("R", "W1C") and not r.counts:
                    value: Value = C(constants[r.name], 32) if r.name in CONSTANTS else getattr(self, r.name)
                    with m.Case(r.offset >> 2):
                        m.d.comb += answer.eq(value)
        shown = counter[1:] == self.counter_index
        with m.If(decoded & (~is_counter | shown)):
            m.d.sync += [decoded.eq(0), self.axil_rvalid.eq(1)]
            half = Mux(counter[0], self.counter_value[32:], self.counter_value[:32])
            m.d.sync += self.axil_rdata.eq(Mux(is_counter, half, Mux(is_copy, copied.data, answer)))
        with m.Elif(self.axil_rready):
            m.d.sync += self.axil_rvalid.eq(0)
        return m
