"""The AXI4-Lite slave with the registers of `tilewright.isa.registers`."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.hw.connections import unread
from tilewright.hw.host.counters import COUNTER_BITS, COUNTERS, ROUND
from tilewright.hw.interfaces import Axi4Lite, Program, RegisterWrite
from tilewright.isa.config import NpuConfig
from tilewright.isa.registers import IDENTITY, REGISTER, REGISTERS, VERSION

#: Read-only registers whose value is built in.
CONSTANTS = ("IDENTITY", "VERSION", "FINGERPRINT_LO", "FINGERPRINT_HI")
#: Words before the counters, which come last.
FIRST_COUNTER = REGISTER[f"{COUNTERS[0]}_LO"].offset >> 2
#: Registers of the port `program`, and those `tilewright.hw.host.regions` keeps.
PROGRAM, REGION = "PROGRAM_", "REGION"


class Registers(wiring.Component):
    """Register file on AXI4-Lite. One write and one read at a time; addresses without a register read 0.

    Latency: address and data of a write are taken together, in the cycle after both are there, and the write takes
    effect at the end of that cycle; the response follows in the next. Read data follows three cycles after the address
    is taken; that of a counter when the counter is shown, up to ROUND cycles later.

    Registers that can be written are read from a copy in a RAM. After a reset the RAM is first filled with 0, and the
    bus waits.

    Ports:
        axil: AXI4-Lite slave.
        program: place of the program.  written: writes to the copy.
        {NAME}: value of any other RW register (out), or of a read-only or W1C register (in).
        {NAME}_write: write strobe of W and W1C registers.  data: value of the write.
        counter_index, counter_value: see `tilewright.hw.host.counters`.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        members: dict[str, object] = {}
        for r in REGISTERS:
            if r.name in CONSTANTS or r.counts or r.name.startswith((PROGRAM, REGION)):
                continue
            if r.access == "RW":
                members[r.name] = Out(32)
            if r.access in ("R", "W1C"):
                members[r.name] = In(32)
            if r.access in ("W", "W1C"):
                members[f"{r.name}_write"] = Out(1)
        super().__init__(
            {
                "axil": In(Axi4Lite()),
                "program": Out(Program(config)),
                "written": Out(RegisterWrite()),
                "data": Out(32),
                "counter_index": In(range(ROUND)),
                "counter_value": In(COUNTER_BITS),
                **members,
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.copy = copy = Memory(shape=Shape(32), depth=FIRST_COUNTER, init=[])
        kept, copied = copy.write_port(), copy.read_port()

        # Writes are decoded in the cycle before they are taken; address and data do not change in between.
        write, data = Signal(), Signal(32, reset_less=True)
        clearing, cleared = Signal(init=1), Signal(range(FIRST_COUNTER))  # after a reset, word by word
        with m.If(clearing):
            m.d.sync += [cleared.eq(cleared + 1), clearing.eq(cleared != FIRST_COUNTER - 1)]
        word = self.axil.aw.addr[2:]
        place = Signal(range(FIRST_COUNTER), reset_less=True)
        m.d.sync += [
            write.eq(
                self.axil.aw.valid & self.axil.w.valid & ~write & ~clearing & (~self.axil.b.valid | self.axil.b.ready)
            ),
            data.eq(self.axil.w.data),
            place.eq(word),
        ]
        m.d.comb += [self.axil.aw.ready.eq(write), self.axil.w.ready.eq(write)]
        with m.If(write):
            m.d.sync += self.axil.b.valid.eq(1)
        with m.Elif(self.axil.b.ready):
            m.d.sync += self.axil.b.valid.eq(0)
        m.d.comb += [
            self.written.word.eq(Mux(clearing, cleared, place)),
            self.written.data.eq(Mux(clearing, 0, data)),
            kept.addr.eq(self.written.word),
            kept.data.eq(self.written.data),
            kept.en.eq(self.written.valid),
        ]
        # The word taken in this cycle is a register that can be read back.
        writable = Signal(reset_less=True)
        values: dict[str, Signal] = {}
        m.d.sync += writable.eq(0)
        for r in REGISTERS:
            if r.access == "R":
                continue
            named, hit = Signal(name=f"{r.name}_named", reset_less=True), Signal(name=f"{r.name}_hit")
            here = word == r.offset >> 2
            m.d.sync += named.eq(here)
            m.d.comb += hit.eq(write & named)
            if r.access == "RW":
                with m.If(here):
                    m.d.sync += writable.eq(1)
                if r.name.startswith(REGION):
                    continue
                value = Signal(32, name=r.name) if r.name.startswith(PROGRAM) else getattr(self, r.name)
                values[r.name] = value
                with m.If(hit):
                    m.d.sync += value.eq(data)
            else:
                m.d.comb += getattr(self, f"{r.name}_write").eq(hit)
        m.d.comb += [self.written.valid.eq(clearing | (write & writable)), self.data.eq(data)]
        m.d.comb += [
            self.program.region.eq(values["PROGRAM_REGION"]),
            self.program.offset.eq(values["PROGRAM_OFFSET"]),
            self.program.length.eq(values["PROGRAM_LENGTH"]),
            self.axil.b.resp.eq(0),
            self.axil.r.resp.eq(0),
        ]
        unread(m, self.axil.ar.prot, self.axil.aw.prot, self.axil.w.strb)

        # Reads. The address is decoded in the cycle after it is taken, values of either kind go to registers in the
        # next, and one of them is chosen then.
        fingerprint = int(self.config.fingerprint, 16)
        constants = dict(zip(CONSTANTS, (IDENTITY, VERSION, fingerprint & 0xFFFFFFFF, fingerprint >> 32)))
        taken, decoded, found = Signal(), Signal(), Signal()
        address, wanted = Signal(len(word), reset_less=True), Signal(len(word), reset_less=True)
        counter = Signal(len(word), reset_less=True)  # twice its place, 1 more for the upper half
        is_counter, is_copy = Signal(reset_less=True), Signal(reset_less=True)
        copies = Cat(address == r.offset >> 2 for r in REGISTERS if r.access == "RW").any()
        m.d.comb += [
            self.axil.ar.ready.eq(~taken & ~decoded & ~self.axil.r.valid),
            copied.addr.eq(address),
            copied.en.eq(taken),
        ]
        with m.If(self.axil.ar.valid & self.axil.ar.ready):
            m.d.sync += [taken.eq(1), address.eq(self.axil.ar.addr[2:])]
        with m.If(taken & ~self.written.valid):  # never the word being written
            m.d.sync += [
                taken.eq(0),
                decoded.eq(1),
                wanted.eq(address),
                counter.eq(address - FIRST_COUNTER),
                is_counter.eq((address >= FIRST_COUNTER) & (address < FIRST_COUNTER + 2 * len(COUNTERS))),
                is_copy.eq(copies),
            ]
        answer = Signal(32)
        with m.Switch(wanted):
            for r in REGISTERS:
                if r.access in ("R", "W1C") and not r.counts:
                    held: Value = C(constants[r.name], 32) if r.name in CONSTANTS else getattr(self, r.name)
                    with m.Case(r.offset >> 2):
                        m.d.comb += answer.eq(held)
        shown = counter[1:] == self.counter_index
        copied_now, answer_now = Signal(32, reset_less=True), Signal(32, reset_less=True)
        m.d.sync += [found.eq(decoded), copied_now.eq(copied.data), answer_now.eq(answer)]
        with m.If(decoded & found & (~is_counter | shown)):
            m.d.sync += [decoded.eq(0), found.eq(0), self.axil.r.valid.eq(1)]
            half = Mux(counter[0], self.counter_value[32:], self.counter_value[:32])
            m.d.sync += self.axil.r.data.eq(Mux(is_counter, half, Mux(is_copy, copied_now, answer_now)))
        with m.Elif(self.axil.r.ready):
            m.d.sync += self.axil.r.valid.eq(0)
        return m
