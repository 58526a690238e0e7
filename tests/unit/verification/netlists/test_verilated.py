"""A small design on boards whose netlists are Verilated: what its netlist says on the serial line is what Amaranth's
simulator says of the design, and it becomes a bitstream."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Cat, ClockDomain, Elaboratable, Module, Signal, signed
from amaranth.lib import io, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from tests.common import needs
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.cells import Used
from tilewright.fpga.clocking import drive_sync
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.flow import Flow
from tilewright.fpga.flows.netlist import Module as Netlist
from tilewright.fpga.plls import Pll
from tilewright.hw.gemm.array import PACKED_OFFSET, MacArray
from tilewright.isa.config import NpuConfig
from verification.netlists.netlist import read_netlist
from verification.netlists.verilated import MODELS, netlist_line, verilog

pytestmark = pytest.mark.slow
#: Cycles of a bit, and of a byte with a pause behind it.
BIT, BYTE = 8, 128
BYTES = 60
#: An array in which two outputs share products.
SHARED = NpuConfig(name="shared", block_in=4, block_out=8, packed_products=1)


class Talker(wiring.Component):
    """Says on `tx`, byte by byte, what becomes of a count in something of each kind of cell; `rx` changes it."""

    def __init__(self) -> None:
        super().__init__({"rx": In(1), "tx": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(24)
        at = Signal(range(BYTE))
        m.d.sync += [count.eq(count + 0x35791 + ~self.rx), at.eq(at + 1)]
        found = [count]
        products = [Signal(signed(16), name=f"product{n}") for n in range(4)]
        for n, product in enumerate(products):
            a, b = Signal(signed(8), name=f"a{n}"), Signal(signed(8), name=f"b{n}")
            m.d.sync += [a.eq(count[n:]), b.eq(count[7 + n :]), product.eq(a * b)]
        total, wide = Signal(signed(18)), Signal(signed(36))
        with m.If(count[4]):
            m.d.sync += total.eq(sum(products))
        m.d.sync += wide.eq(count[:17].as_signed() * count[5:23].as_signed())
        m.submodules.array = array = MacArray(SHARED)
        for n, operand in enumerate((*array.rows, *array.slots)):
            lower = SHARED.block_out // 2 <= n < SHARED.block_out
            start = int.from_bytes([PACKED_OFFSET if lower else 0] * SHARED.block_in)  # as in `Gemm`
            register = Signal.like(operand, name=f"operand{n}", init=start, reset_less=True)
            with m.If(count[4] if n < SHARED.block_out else 1):
                m.d.sync += register.eq(Cat(count, ~count).rotate_left(5 * n) ^ count.rotate_left(n))
            m.d.comb += operand.eq(register)
        m.d.comb += array.valid.eq(count[3])
        found += [total, wide, *array.sums]
        for width, depth, part in ((36, 512, 9), (32, 4096, 8), (32, 16384, 8), (4, 16, 4), (12, 64, 12)):
            m.submodules[f"memory{depth}x{width}"] = memory = Memory(shape=width, depth=depth, init=[])
            small = depth < 100
            write, read = memory.write_port(granularity=part), memory.read_port(domain="comb" if small else "sync")
            late = Signal(width, name=f"late{depth}")
            m.d.comb += [write.addr.eq(count[6:] & 0x5555), write.data.eq(count * 0x12345), write.en.eq(count[9:])]
            # Not the row that is written: what a block RAM gives of that is not said.
            m.d.comb += read.addr.eq((count[6:] & 0x5555) ^ 1)
            if not small:
                m.d.comb += [read.en.eq(count[2]), read.addr.eq((count[7:] & 0x5554) | ~count[6])]
            m.d.sync += late.eq(read.data)
            found.append(late)
        folded = Signal(8)
        bits = [bit for value in found for bit in value]
        for n in range(8):
            m.d.sync += folded[n].eq(sum(bits[n::8]) & 1)
        shifted = Signal(10, init=0x3FF)
        m.d.comb += self.tx.eq(shifted[0])
        with m.If(at == 0):
            m.d.sync += shifted.eq(folded << 1 | 0x200)
        with m.Elif(at[: BIT.bit_length() - 1] == 0):
            m.d.sync += shifted.eq(shifted[1:] | 0x200)
        return m


class TalkerTop(Elaboratable):
    """The design on the pins of a board."""

    def __init__(self, pll: Any) -> None:
        self.pll = pll

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.clock = clock = io.Buffer("i", platform.request(platform.default_clk, dir="-"))
        drive_sync(m, self.pll, clock.i)
        m.submodules.talker = talker = Talker()
        uart = platform.request("uart", 0, dir={"rx": "-", "tx": "-"})
        m.submodules.rx = rx = io.Buffer("i", uart.rx)
        m.submodules.tx = tx = io.Buffer("o", uart.tx)
        m.d.comb += [talker.rx.eq(rx.i), tx.o.eq(talker.tx)]
        for n in range(4):
            m.submodules[f"led{n}"] = led = io.Buffer("o", platform.request("led", n, dir="-"))
            m.d.comb += led.o.eq(talker.tx)
        return m


def said() -> bytes:
    """The bytes that the design says, by Amaranth's simulator."""
    talker, levels = Talker(), []
    top = Module()
    top.domains.sync = ClockDomain()
    top.submodules.talker = talker
    simulator = Simulator(top)
    simulator.add_clock(1e-6)

    async def testbench(context: Any) -> None:
        context.set(talker.rx, 1)
        for _ in range((BYTES + 1) * BYTE):
            levels.append(context.get(talker.tx))
            await context.tick()

    simulator.add_testbench(testbench)
    simulator.run()
    found, position = bytearray(), 0
    while (position := next((i for i in range(position, len(levels)) if not levels[i]), len(levels))) + 10 * BIT < len(
        levels
    ):
        bits = levels[position + BIT // 2 :: BIT][:10]
        found.append(sum(bit << n for n, bit in enumerate(bits[1:9])))
        position += 10 * BIT - BIT // 2
    return bytes(found)


@pytest.mark.parametrize("name", ["arty_a7_100t", pytest.param("crosslink_nx_evn", marks=pytest.mark.long)])
def test_a_small_design(name: str, tmp_path: Path) -> None:
    synthesised(name, tmp_path)
    module = read_netlist(tmp_path)
    if BOARDS[name].family == "xc7":
        enabled = [c["connections"].get("CEA2", ["1"]) != ["1"] for c in module["cells"].values()]
        assert enabled.count(True) == SHARED.block_in * SHARED.block_out // 2  # registers of weights are in the blocks
    with closing(netlist_line(module, BOARDS[name].family, clock_hz=BIT * 1e6, baud=1_000_000)) as line:
        heard = line.run((BYTES + 4) * BYTE)
    expected = said()
    assert len(expected) >= BYTES - 1 and len(set(expected)) > BYTES // 2
    assert heard[: BYTES - 2] == expected[: BYTES - 2]


@pytest.mark.long
@pytest.mark.parametrize("name", ["arty_a7_100t", "nexys_a7_100t", "crosslink_nx_evn"])
def test_becomes_a_bitstream(name: str, tmp_path: Path) -> None:
    flow, pll, used = synthesised(name, tmp_path)
    flow.place_and_route(tmp_path, used, pll.output_hz / 1e6, [1], lambda text: None)
    flow.pack(tmp_path)
    assert (tmp_path / flow.images[0]).stat().st_size > 500_000


def synthesised(name: str, folder: Path) -> tuple[Flow, Pll, Used]:
    """Makes the small design's netlist for a board in a folder; skips without the tools of its family."""
    board = BOARDS[name]
    flow = board.flow()
    try:
        flow.require()
    except FpgaError as error:
        needs.skip(needs.XILINX_TOOLS if board.family == "xc7" else needs.NEXUS_TOOLS, str(error))
    pll = board.pll(round(board.other.clock_mhz * 1e6))
    flow.generate(TalkerTop(pll), folder)
    return flow, pll, flow.synthesise(folder)


def test_a_memory_that_begins_with_something() -> None:
    clock = {"type": "BUFG", "parameters": {}, "connections": {"I": [2], "O": [3]}}
    memory = {"type": "RAMB18E1", "parameters": {"INIT_00": "0" * 255 + "1"}, "connections": {"CLKARDCLK": [3]}}
    module: Netlist = {"cells": {"clock": clock, "memory": memory}, "ports": {"clk100_0__io": {"bits": [2]}}}
    assert "assign n2 = clk;" in verilog(module | {"cells": {"clock": clock}}, MODELS["xc7"])
    with pytest.raises(FpgaError, match="cell memory: no model of a memory that does not begin as zeros"):
        verilog(module, MODELS["xc7"])
