"""A board for the serial bridge alone: memory that dawdles, registers that count their writes, faults on demand."""

from pathlib import Path

from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tests.common.paths import ROOT
from tilewright.fpga.bridge.bridge import SerialBridge
from tilewright.fpga.sim.line import SimulatedLine
from tilewright.hw.connections import unread
from tilewright.hw.verilog import component_text

CLOCK, BAUD = 25_000_000, 3_000_000
MEMORY = 4096
BOARD_ID = int.from_bytes(b"test", "little")
REGISTERS = 16  # plain ones; what lies above reads as the number of writes
DEAD_REGISTERS, DEAD_MEMORY, BUS_ERROR = 1, 2, 4  # bits of `faults`


class BridgeBoard(wiring.Component):
    """The bridge with its two slaves; a random bit decides in each cycle whether a slave is ready."""

    def __init__(self) -> None:
        super().__init__({"rx": In(1), "tx": Out(1), "faults": In(3)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bridge = b = SerialBridge(CLOCK, BAUD)
        random = Signal(16, init=0xACE1)
        m.d.sync += random.eq(Cat(random[1:], random[0] ^ random[2] ^ random[3] ^ random[5]))
        m.d.comb += [b.rx.eq(self.rx), self.tx.eq(b.tx), b.board_id.eq(BOARD_ID), b.memory_bytes.eq(MEMORY)]
        alive = Signal()  # of the registers; a reset by the host revives nothing here, it is counted
        m.d.comb += alive.eq(~self.faults[0])
        resets = Signal(8)
        was_reset = Signal()
        m.d.sync += [was_reset.eq(b.npu_reset), resets.eq(resets + (b.npu_reset & ~was_reset))]

        unread(m, b.axil.ar.prot, b.axil.aw.prot, b.axil.w.strb)  # the host writes whole words

        m.submodules.memory = memory = Memory(shape=Shape(32), depth=MEMORY // 4, init=[])
        write, read = memory.write_port(granularity=8), memory.read_port()
        pending = Signal()
        taken = b.mem.valid & b.mem.ready
        m.d.comb += [
            b.mem.ready.eq(~pending & random[0] & ~self.faults[1]),
            write.addr.eq(b.mem.address[2:]),
            write.data.eq(b.mem.wdata),
            write.en.eq(Mux(taken & b.mem.write, b.mem.strobe, 0)),
            read.addr.eq(b.mem.address[2:]),
            read.en.eq(taken & ~b.mem.write),
            b.mem.rdata.eq(read.data),
            b.mem.rvalid.eq(pending & random[4]),
        ]
        with m.If(taken & ~b.mem.write):
            m.d.sync += pending.eq(1)
        with m.Elif(b.mem.rvalid):
            m.d.sync += pending.eq(0)

        m.submodules.registers = registers = Memory(shape=Shape(32), depth=REGISTERS, init=[])
        write, read = registers.write_port(), registers.read_port()
        address, data = Signal(32), Signal(32)
        have_address, have_data, writes, counted = Signal(), Signal(), Signal(16), Signal()
        reading = Signal()
        error = Mux(self.faults[2], 2, 0)
        m.d.comb += [
            b.axil.aw.ready.eq(~have_address & random[1] & alive),
            b.axil.w.ready.eq(~have_data & random[3] & alive),
            b.axil.ar.ready.eq(~reading & random[5] & alive),
            write.addr.eq(address[2:]),
            write.data.eq(data),
            write.en.eq(b.axil.b.valid & b.axil.b.ready),
            b.axil.b.valid.eq(have_address & have_data & random[6]),
            b.axil.b.resp.eq(error),
            read.addr.eq(b.axil.ar.addr[2:]),
            read.en.eq(b.axil.ar.valid & b.axil.ar.ready),
            b.axil.r.valid.eq(reading & random[7]),
            b.axil.r.data.eq(Mux(counted, Cat(writes, resets), read.data)),
            b.axil.r.resp.eq(error),
        ]
        with m.If(b.axil.aw.valid & b.axil.aw.ready):
            m.d.sync += [address.eq(b.axil.aw.addr), have_address.eq(1)]
        with m.If(b.axil.w.valid & b.axil.w.ready):
            m.d.sync += [data.eq(b.axil.w.data), have_data.eq(1)]
        with m.If(b.axil.b.valid & b.axil.b.ready):
            m.d.sync += [have_address.eq(0), have_data.eq(0), writes.eq(writes + 1)]
        with m.If(read.en):
            m.d.sync += [reading.eq(1), counted.eq(b.axil.ar.addr >= 4 * REGISTERS)]
        with m.Elif(b.axil.r.valid & b.axil.r.ready):
            m.d.sync += reading.eq(0)
        return m


def bridge_line() -> SimulatedLine:
    """The board, Verilated."""

    def text() -> str:
        return component_text(BridgeBoard(), "bridge_board")

    sources = [Path(__file__), *sorted((ROOT / "fpga" / "bridge").glob("*.py")), ROOT / "isa" / "link" / "serial.py"]
    sources += [ROOT / "isa" / "registers.py", ROOT / "hw" / "interfaces.py"]
    title = "the simulation of the serial bridge"
    return SimulatedLine("bridge", title, "bridge_board", text, sources, clock_hz=CLOCK, baud=BAUD)
