"""Sites of LUTs a Gowin netlist takes: netlists by hand, and a small design through Yosys."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Cat, Elaboratable, Module, Signal
from amaranth.lib import io
from amaranth.lib.memory import Memory

from tilewright.fpga.boards import BOARDS
from tilewright.fpga.cells import GOWIN
from tilewright.fpga.clocking import drive_sync
from tilewright.fpga.flows.gowin_sites import lut_sites
from tilewright.fpga.flows.synthesis import cell_counts

OUTPUTS = ("F", "SUM", "COUT", "Q", "DO")


def cell(kind: str, **connections: int | str | list[int]) -> dict:
    """A cell as Yosys writes it; 2 and up are nets, letters are constants."""
    return {
        "type": kind,
        "connections": {p: bits if isinstance(bits, list) else [bits] for p, bits in connections.items()},
        "port_directions": {p: "output" if p in OUTPUTS else "input" for p in connections},
    }


def sites(*cells: dict) -> int:
    return lut_sites({f"cell{n}": c for n, c in enumerate(cells)})


def test_flip_flops_and_their_luts() -> None:
    lut = cell("LUT2", I0=2, I1=3, F=4)
    assert sites(lut, cell("DFF", D=4, Q=5)) == 1  # in one site
    assert sites(lut, cell("DFFE", D=4, CE=3, Q=5), cell("DFFE", D=4, CE=2, Q=6)) == 2  # one of them elsewhere
    assert sites(cell("DFF", D=2, Q=3), cell("DFF", D=3, Q=4), cell("DFFR", D="0", RESET=2, Q=5)) == 3
    assert sites(cell("RAM16SDP4", DI=[2, 3], DO=[4, 5]), cell("DFF", D=4, Q=6)) == 9
    assert sites(cell("MULT9X9", A=[2]), cell("SDPX9B", DI=[3]), cell("IBUF", I=4)) == 0


def test_registers_of_pins() -> None:
    """A flip-flop is in a pin if it alone sees the pin, or only that pin sees it; a pin that only drives has none."""

    def pin(output: int, data: int, off: int) -> dict:
        connections = {"O": [output], "I": [data], "OEN": [off], "IO": [99]}
        directions = {"O": "output", "I": "input", "OEN": "input", "IO": "inout"}
        return {"type": "IOBUF", "connections": connections, "port_directions": directions}

    first, second = pin(2, 3, 4), pin(5, 6, 4)
    caught = cell("DFF", D=2, Q=7)
    driven = cell("DFF", D=8, Q=3)
    off = cell("DFF", D=8, Q=4)
    assert sites(first, caught, driven) == 0
    assert sites(first, caught, driven, cell("LUT1", I0=3, F=9)) == 2  # a LUT sees it too
    assert sites(first, caught, cell("DFF", D=2, Q=9)) == 2  # two see the pin
    assert sites(first, off) == 0 and sites(first, second, off) == 1  # both pins see it
    assert sites(cell("TBUF", I=3, OEN=4), driven) == 1


def test_carry_chains() -> None:
    def alu(n: int, carry: int | str, out: int | None) -> dict:
        return cell("ALU", I0=50 + n, CIN=carry, SUM=60 + n, COUT=out if out is not None else [])

    assert sites(alu(0, "0", None)) == 2  # the first carry, one bit
    assert sites(alu(0, "0", 2), alu(1, 2, None)) == 4  # filled up
    assert sites(alu(1, 2, None), alu(0, "0", 2), cell("DFF", D=60, Q=3)) == 4  # in any order, with a flip-flop
    assert sites(alu(0, 9, 2), alu(1, 2, 3), cell("LUT1", I0=3, F=4)) == 5  # a carry out
    # A carry that is used besides: the chain ends, another one begins.
    assert sites(alu(0, "0", 2), alu(1, 2, None), cell("LUT1", I0=2, F=4)) == 4 + 2 + 1
    assert sites(alu(0, "0", 2)) == 2  # a carry nobody takes


class Small(Elaboratable):
    """A counter of 24 bits, a shift register of 20 and a distributed RAM of 16 bytes."""

    def elaborate(self, platform) -> Module:
        board = BOARDS["tang_nano_20k"]
        m = Module()
        m.submodules.clock = clock = io.Buffer("i", platform.request(platform.default_clk, dir="-"))
        drive_sync(m, board.pll(board.clock_hz), clock.i)
        m.submodules.rx = rx = io.Buffer("i", platform.request("uart", 0, dir={"rx": "-", "tx": "-"}).rx)
        m.submodules.led = led = io.Buffer("o", platform.request("led", 0, dir="-"))
        count, shifted = Signal(24), Signal(20)
        m.submodules.store = store = Memory(shape=8, depth=16, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        m.d.sync += [count.eq(count + 1), shifted.eq(Cat(rx.i, shifted[:-1]))]
        m.d.comb += [write.en.eq(shifted[-1]), write.addr.eq(count[8:]), write.data.eq(shifted), read.addr.eq(count)]
        m.d.comb += led.o.eq(count[-1] ^ read.data.xor())
        return m


@pytest.mark.slow
def test_small_design(tmp_path: Path) -> None:
    """Sums of LUTs, two tiles of RAM, the register of the reset, and a shift register that begins in the pin."""
    flow = BOARDS["tang_nano_20k"].flow()
    flow.generate(Small(), tmp_path)
    sites = flow.synthesise(tmp_path).lut
    cells = cell_counts(tmp_path)
    luts = sum(cells.get(f"LUT{n}", 0) for n in range(1, 5))
    reset = 2
    assert sites == luts + (20 - 1) + reset + 2 * 8
    assert GOWIN.count(cells).lut < sites
