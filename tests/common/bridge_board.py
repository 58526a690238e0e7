"""A board for the serial bridge alone: memory that dawdles, registers that count their writes, faults on demand."""

from pathlib import Path

from amaranth.back import verilog
from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fpga.bridge.bridge import SerialBridge
from fpga.sim.line import SimulatedLine
from tests.common.paths import ROOT

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

        m.submodules.memory = memory = Memory(shape=Shape(32), depth=MEMORY // 4, init=[])
        write, read = memory.write_port(granularity=8), memory.read_port()
        pending = Signal()
        taken = b.mem_valid & b.mem_ready
        m.d.comb += [
            b.mem_ready.eq(~pending & random[0] & ~self.faults[1]),
            write.addr.eq(b.mem_address[2:]),
            write.data.eq(b.mem_wdata),
            write.en.eq(Mux(taken & b.mem_write, b.mem_strobe, 0)),
            read.addr.eq(b.mem_address[2:]),
            read.en.eq(taken & ~b.mem_write),
            b.mem_rdata.eq(read.data),
            b.mem_rvalid.eq(pending & random[4]),
        ]
        with m.If(taken & ~b.mem_write):
            m.d.sync += pending.eq(1)
        with m.Elif(b.mem_rvalid):
            m.d.sync += pending.eq(0)

        m.submodules.registers = registers = Memory(shape=Shape(32), depth=REGISTERS, init=[])
        write, read = registers.write_port(), registers.read_port()
        address, data = Signal(32), Signal(32)
        have_address, have_data, writes, counted = Signal(), Signal(), Signal(16), Signal()
        reading = Signal()
        error = Mux(self.faults[2], 2, 0)
        m.d.comb += [
            b.axil_awready.eq(~have_address & random[1] & alive),
            b.axil_wready.eq(~have_data & random[3] & alive),
            b.axil_arready.eq(~reading & random[5] & alive),
            write.addr.eq(address[2:]),
            write.data.eq(data),
            write.en.eq(b.axil_bvalid & b.axil_bready),
            b.axil_bvalid.eq(have_address & have_data & random[6]),
            b.axil_bresp.eq(error),
            read.addr.eq(b.axil_araddr[2:]),
            read.en.eq(b.axil_arvalid & b.axil_arready),
            b.axil_rvalid.eq(reading & random[7]),
            b.axil_rdata.eq(Mux(counted, Cat(writes, resets), read.data)),
            b.axil_rresp.eq(error),
        ]
        with m.If(b.axil_awvalid & b.axil_awready):
            m.d.sync += [address.eq(b.axil_awaddr), have_address.eq(1)]
        with m.If(b.axil_wvalid & b.axil_wready):
            m.d.sync += [data.eq(b.axil_wdata), have_data.eq(1)]
        with m.If(b.axil_bvalid & b.axil_bready):
            m.d.sync += [have_address.eq(0), have_data.eq(0), writes.eq(writes + 1)]
        with m.If(read.en):
            m.d.sync += [reading.eq(1), counted.eq(b.axil_araddr >= 4 * REGISTERS)]
        with m.Elif(b.axil_rvalid & b.axil_rready):
            m.d.sync += reading.eq(0)
        return m


def bridge_line() -> SimulatedLine:
    """The board, Verilated."""

    def text() -> str:
        return verilog.convert(BridgeBoard(), name="bridge_board", emit_src=False, strip_internal_attrs=True)

    sources = [Path(__file__), *sorted((ROOT / "fpga" / "bridge").glob("*.py")), ROOT / "isa" / "link" / "serial.py"]
    sources += [ROOT / "isa" / "registers.py", ROOT / "hw" / "ports.py"]
    title = "the simulation of the serial bridge"
    return SimulatedLine("bridge", title, "bridge_board", text, sources, clock_hz=CLOCK, baud=BAUD)
