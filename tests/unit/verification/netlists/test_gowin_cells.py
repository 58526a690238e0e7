"""A Gowin netlist is the design it was made from: cell by cell beside Amaranth's simulator, in every cycle."""

from __future__ import annotations

import copy
import re
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from amaranth.hdl import Elaboratable, Module, Mux, Signal, signed
from amaranth.lib import io, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from tilewright.fpga.boards import BOARDS
from tilewright.fpga.clocking import drive_sync
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.gowin import Gowin
from tilewright.fpga.flows.netlist import Module as Netlist
from verification.netlists.netlist import RX, TX, NetlistLine, numbers_of, read_netlist

pytestmark = pytest.mark.slow
BOARD = BOARDS["tang_nano_20k"]
CYCLES = 3000
#: Cycles from the lock of the PLL to the end of the reset, at most.
RESET = 8


class Busy(wiring.Component):
    """Something of each kind of cell; `value` depends on all of it."""

    def __init__(self) -> None:
        super().__init__({"rx": In(1), "value": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(24)
        m.d.sync += count.eq(count + 0x35791)
        held = Signal(8, reset_less=True)
        with m.If(count[5]):
            m.d.sync += held.eq(count)
        found = [count, held]
        for width in (9, 18):  # products with registers before and behind, one of them with an enable
            x, y = (Signal(signed(width), name=f"{name}{width}", reset_less=True) for name in "xy")
            product = Signal(signed(2 * width), name=f"product{width}", reset_less=True)
            with m.If(count[7] if width == 9 else 1):
                m.d.sync += [x.eq(count ^ count[7:]), y.eq(count[5:] + count), product.eq(x * y)]
            found.append(product)
        for width, depth, part in ((36, 64, 9), (18, 1024, 18), (2, 2048, 2)):
            contents = [(3 * n + 1) % (1 << width) for n in range(depth)]
            m.submodules[f"memory{width}"] = memory = Memory(shape=width, depth=depth, init=contents)
            write, read = memory.write_port(granularity=part), memory.read_port()
            late = Signal(width, name=f"late{width}", reset_less=True)
            enables = count[9 : 9 + len(write.en)]
            m.d.comb += [write.addr.eq(count[6:]), write.data.eq(count * 0x12345), write.en.eq(enables & -count[3])]
            # Not the row that is written: what a block RAM gives of that is not said.
            m.d.comb += [read.addr.eq(count[6:] ^ 1), read.en.eq(count[2])]
            m.d.sync += late.eq(read.data)
            found.append(late)
        m.submodules.small = small = Memory(shape=4, depth=16, init=[3, 1, 4, 1, 5, 9, 2, 6])
        put, get = small.write_port(), small.read_port(domain="comb")
        m.d.comb += [put.addr.eq(count[4:]), put.data.eq(count[20:]), put.en.eq(count[9]), get.addr.eq(count[2:])]
        delayed = count
        for stage in range(6):
            after = Signal(24, name=f"stage{stage}", reset_less=True)
            m.d.sync += after.eq(delayed)
            delayed = after
        found += [get.data, delayed, Mux(count[:4] > count[4:8], count[8:], count[16:])]
        m.d.comb += self.value.eq(sum((value.xor() for value in found), self.rx)[0])
        return m


class Top(Elaboratable):
    """`Busy` on a board, with the pins of a serial line."""

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.clock = clock = io.Buffer("i", platform.request(platform.default_clk, dir="-"))
        drive_sync(m, BOARD.pll(BOARD.clock_hz), clock.i)
        m.submodules.busy = busy = Busy()
        uart = platform.request("uart", 0, dir={"rx": "-", "tx": "-"})
        m.submodules.rx = rx = io.Buffer("i", uart.rx)
        m.submodules.tx = tx = io.Buffer("o", uart.tx)
        m.d.comb += [busy.rx.eq(rx.i), tx.o.eq(busy.value)]
        return m


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Netlist:
    """The netlist that is placed."""
    folder, flow = tmp_path_factory.mktemp("busy"), BOARD.flow()
    assert isinstance(flow, Gowin)
    flow.generate(Top(), folder)
    flow.synthesise(folder)
    return read_netlist(folder, flow.netlist)


@pytest.fixture(scope="module")
def expected() -> str:
    """Returns the values of each cycle, by Amaranth's simulator."""
    busy, seen = Busy(), []

    async def watch(ctx: Any) -> None:
        ctx.set(busy.rx, 1)
        for _ in range(CYCLES):
            seen.append(str(ctx.get(busy.value)))
            await ctx.tick()

    simulator = Simulator(busy)
    simulator.add_clock(1e-6)
    simulator.add_testbench(watch)
    simulator.run()
    return "".join(seen)


def values(module: Netlist, cycles: int = CYCLES + RESET) -> str:
    """Returns the values of each cycle in the netlist."""
    with closing(NetlistLine(module, clock_hz=BOARD.clock_hz, baud=1_000_000)) as line:
        seen = []
        for _ in range(cycles):
            seen.append(str(line.level(TX)))
            line.run(1)
        return "".join(seen)


def with_setting(module: Netlist, kind: str, parameter: str, value: str) -> Netlist:
    """Another value of a parameter in all cells of a kind."""
    other = copy.deepcopy(module)
    for cell in other["cells"].values():
        if cell["type"] == kind:
            cell["parameters"][parameter] = value
    return other


def test_the_same(module: Netlist, expected: str) -> None:
    assert values(module).find(expected) in range(RESET)


def test_cells(module: Netlist) -> None:
    """The netlist has one cell of each kind, with what the flow does to them."""
    kinds = Counter(cell["type"] for cell in module["cells"].values())
    assert {"LUT4", "DFFE", "RAM16SDP4", "SDPX9B", "DPX9B", "DPB", "MULT9X9", "MULT18X18", "rPLL"} <= kinds.keys(), (
        kinds
    )
    settings = {(name, str(value)) for cell in module["cells"].values() for name, value in cell["parameters"].items()}
    assert {("AREG", "1"), ("OUT_REG", "1"), ("READ_MODE", "1")} <= settings
    assert any("delay_ring" in name for name in module["cells"])
    numbers = numbers_of(module)
    assert len(numbers.clocks) == 1 and numbers.locked and {RX, TX} <= numbers.pins.keys()
    assert all(len(block) == len(numbers.blocks[0]) for block in numbers.blocks)


@pytest.mark.parametrize(
    "kind, parameter, value",
    [
        ("MULT18X18", "OUT_REG", "0"),
        ("MULT9X9", "AREG", "0"),
        ("SDPX9B", "READ_MODE", "0"),
        ("SDPX9B", "INIT_RAM_00", f"{7:0288b}"),
        ("DPX9B", "READ_MODE1", "0"),
        ("DPB", "INIT_RAM_00", f"{3:0256b}"),
        ("RAM16SDP4", "INIT_0", f"{0xFFFF:016b}"),
    ],
)
def test_another_setting_is_another_machine(
    module: Netlist, expected: str, kind: str, parameter: str, value: str
) -> None:
    assert values(with_setting(module, kind, parameter, value)).find(expected) < 0


@pytest.mark.parametrize(
    "kind, port, bit, message",
    [
        ("MULT9X9", "RESET", "1", "no model of MULT9X9 whose RESET is not 0"),
        ("SDPX9B", "BLKSELB", "1", "no model of SDPX9B whose BLKSELB is not 0"),
        ("SDPX9B", "RESETA", "1", "no model of a reset of SDPX9B"),
        ("SDPX9B", "CLKA", "1", "a netlist is simulated with clocks of one PLL, this one has others"),
        ("rPLL", "RESET", "1", "no model of rPLL whose RESET is not 0"),
    ],
)
def test_cells_that_are_not_simulated(module: Netlist, kind: str, port: str, bit: str, message: str) -> None:
    other = copy.deepcopy(module)
    for cell in other["cells"].values():
        if cell["type"] == kind:
            cell["connections"][port] = [bit] * len(cell["connections"][port])
    with pytest.raises(FpgaError, match=re.escape(message)):
        numbers_of(other)


@pytest.mark.parametrize(
    "kind, parameter, value, message",
    [
        ("SDPX9B", "BIT_WIDTH_1", f"{12:032b}", "no model of a port of 12 bits"),
        ("SDPX9B", "BLK_SEL_0", "001", "no model of a block RAM that is selected"),
        ("DFFR", "INIT", "1", "no model of DFFR that begins with another value than its reset's"),
    ],
)
def test_settings_that_are_not_simulated(module: Netlist, kind: str, parameter: str, value: str, message: str) -> None:
    with pytest.raises(FpgaError, match=message):
        numbers_of(with_setting(module, kind, parameter, value))
