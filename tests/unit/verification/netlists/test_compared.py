"""The configuration of a small design beside the netlist it was written from, and with something else in it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from amaranth.hdl import Module, Signal, Value
from amaranth.lib.memory import Memory

from tests.common.lit_design import LitDesign
from tests.unit.fpga.example_board import BOARD
from tilewright.fpga.board_top import MEMORY, SDRAM_CLOCK, connect_sdram
from tilewright.fpga.clocking import drive_with_memory
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.ecp5 import CONFIGURATION, CONSTRAINTS, ROUTED, Ecp5
from tilewright.fpga.plls import Ecp5Pll
from verification.netlists.cells import Numbers
from verification.netlists.compared import changed, differences, lost
from verification.netlists.ecp5_cells import numbers_of as cells_before
from verification.netlists.ecp5_routed import numbers_of, pins_of
from verification.netlists.netlist import read_netlist
from verification.netlists.routed_runs import UNPACKED, unpack
from verification.netlists.sdram_pins import memory_edges
from verification.netlists.trellis import Configuration

pytestmark = pytest.mark.slow


class Mixed(LitDesign):
    """A cell of every kind, and the pins of an SDRAM on a clock of their own."""

    def drive(self, m: Module, clock: Value) -> None:
        pll = Ecp5Pll.find(25_000_000, 50_000_000, (60_000_000, 70_000_000))
        drive_with_memory(m, pll, clock, memory=MEMORY, later=SDRAM_CLOCK, delay_ns=4)

    def elaborate(self, platform: Any) -> Module:
        self.count, self.read = Signal(24), Signal(16)
        m = super().elaborate(platform)
        m.d[MEMORY] += self.count.eq(self.count + 1)
        controls = {f"sdram_{name}": self.count[n] for n, name in enumerate(("clk_en", "cs", "ras", "cas", "we"))}
        wide = {f"sdram_{name}": self.count for name in ("ba", "a", "dqm", "dq_o")}
        pins = SimpleNamespace(**controls, **wide, sdram_dq_oe=self.count[-1], sdram_dq_i=self.read)
        connect_sdram(m, platform, pins)
        return m

    def body(self, m: Module) -> Value:
        count, product = Signal(24), Signal(36, reset_less=True)
        m.d.sync += [count.eq(count + 1), product.eq(count[:18] * count[6:])]
        words = [random.Random(1).randrange(1 << 18) for _ in range(1024)]
        m.submodules.large = large = Memory(shape=18, depth=1024, init=words)
        m.submodules.small = small = Memory(shape=4, depth=16, init=[])
        write, read = large.write_port(), large.read_port()
        m.d.comb += [write.addr.eq(count[3:]), write.data.eq(count), write.en.eq(count[20]), read.addr.eq(count)]
        put, get = small.write_port(), small.read_port(domain="comb")
        m.d.comb += [put.addr.eq(count[4:]), put.data.eq(count[20:]), put.en.eq(count[9]), get.addr.eq(count[2:])]
        return (read.data ^ product ^ get.data ^ self.read).xor()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("mixed")
    flow = BOARD.flow()  # a small FPGA, whose tables the tools read in a third of the time
    assert isinstance(flow, Ecp5)
    flow.written += ("--write", ROUTED)
    flow.generate(Mixed(), folder)
    flow.place_and_route(folder, flow.synthesise(folder), 50, [1], lambda text: None)
    flow.pack(folder)
    unpack(folder, flow.images[0])
    return folder


def test_the_same(folder: Path) -> None:
    written, module = Configuration(folder / CONFIGURATION), read_netlist(folder, ROUTED)
    assert {cell["type"] for cell in module["cells"].values()} == {
        "TRELLIS_COMB", "TRELLIS_FF", "TRELLIS_RAMW", "DP16KD", "MULT18X18D", "EHXPLLL", "TRELLIS_IO", "IOLOGIC",
        "SIOLOGIC", "DCCA",
    }  # fmt: skip
    assert list(differences(module, written)) == []
    assert list(lost(written, Configuration(folder / UNPACKED))) == []
    assert list(changed(read_netlist(folder), module)) == []


@pytest.mark.parametrize(
    "kind, setting",
    [
        ("TRELLIS_FF", "REGSET"),
        ("DP16KD", "REGMODE_B"),
        ("DP16KD", "INITVAL_00"),
        ("MULT18X18D", "REG_OUTPUT_CLK"),
        ("TRELLIS_COMB", "INIT"),
    ],
)
def test_settings_that_nextpnr_would_change(folder: Path, kind: str, setting: str) -> None:
    before, after = read_netlist(folder), read_netlist(folder, ROUTED)
    changes = "INITVAL" if setting == "INIT" else setting
    names = before["cells"].keys() & after["cells"].keys()
    for name in sorted(names):
        cell = after["cells"][name]
        value = cell["parameters"].get(changes, "")
        if cell["type"] == kind and value:
            cell["parameters"][changes] = value.translate(str.maketrans("01", "10")) if value[0] in "01" else "ANOTHER"
    lines = list(changed(before, after))
    assert lines and all(f": {setting} is" in line for line in lines)


def test_cells(folder: Path) -> None:
    """The cells that the LED depends on are found."""
    numbers = numbers_of(Configuration(folder / CONFIGURATION), pins_of((folder / CONSTRAINTS).read_text()))
    assert len(numbers.blocks) == len(numbers.multipliers) == 1 and len(numbers.small_rams) == 4
    assert len(numbers.registers) >= 24 and numbers.locked
    assert numbers.blocks[0][-1024] == random.Random(1).randrange(1 << 18)


def test_pins(folder: Path) -> None:
    """Registers and clocks of those of the SDRAM are those of the netlist before."""
    before = cells_before(read_netlist(folder))
    after = numbers_of(Configuration(folder / CONFIGURATION), pins_of((folder / CONSTRAINTS).read_text()))
    assert memory_edges(after) == memory_edges(before) and after.edges == before.edges
    assert after.edges[-1][1] != after.edges[-2][1]  # of the pin's clock
    for name in [name for name in before.outputs if name.startswith("sdram")]:
        for side in range(2):
            assert _register(after, after.outputs[name][side]) == _register(before, before.outputs[name][side]), name
        read = [register[3] for register in after.registers if register[0] == after.pins[name]]
        assert len(read) == ("dq" in name.split("__")[1] and "dqm" not in name), name


def _register(numbers: Numbers, net: int) -> list[int] | None:
    """Returns the constant inputs of a register, how it behaves and its clock."""
    found = [register for register in numbers.registers if register[3] == net]
    return [min(value, 2) for value in found[0][:3]] + found[0][4:] if found else None


def _other(pattern: str, new: str | Callable[[re.Match[str]], str], text: str) -> str:
    changed = re.sub(pattern, new, text, count=0 if isinstance(new, str) else 1, flags=re.MULTILINE)
    assert changed != text
    return changed


def _bit(match: re.Match[str]) -> str:
    return match[1] + "10"[int(match[2])] + match[3]


@pytest.mark.parametrize(
    "pattern, new, found",
    [
        pytest.param(r"^(word: SLICE.\.K\d\.INIT )([01])(\d*)$", _bit, "INIT", id="a bit of a LUT"),
        pytest.param(r"(REG\d\.REGSET) RESET", r"\1 SET", "REGSET is SET, not RESET", id="a register begins with 1"),
        pytest.param(r"(REG\d\.SD) 1", r"\1 0", "SD is 0, not 1", id="a register takes another input"),
        pytest.param(r"(\.CEMUX) 1", r"\1 CE", "CEMUX is CE, not 1", id="a register has an enable"),
        pytest.param(r"(CCU2\.INJECT1_\d) NO", r"\1 YES", "INJECT1", id="a carry is injected"),
        pytest.param(r"(DATA_WIDTH_A) 18", r"\1 9", "DATA_WIDTH_A is 9", id="a block RAM is narrower"),
        pytest.param(r"(REGMODE_\w) NOREG", r"\1 OUTREG", "REGMODE", id="a block RAM has a register"),
        pytest.param(r"(WRITEMODE_A) READBEFOREWRITE", r"\1 NORMAL", "WRITEMODE_A", id="a write mode"),
        pytest.param(r"(REG_OUTPUT_CLK) CLK0", r"\1 NONE", "REG_OUTPUT_CLK is NONE", id="a multiplier has no register"),
        pytest.param(r"(REG_PIPELINE_CLK) NONE", r"\1 CLK0", "REG_PIPELINE_CLK", id="a multiplier has one more"),
        pytest.param(r"(CLKFB_DIV \d+)([01])($)", _bit, "CLKFB_DIV", id="another clock"),
        pytest.param(r"(CLKOS2_FPHASE \d+)([01])($)", _bit, "CLKOS2_FPHASE", id="a clock of another phase"),
        pytest.param(r"(CLKOS_ENABLE) ENABLED", r"\1 DISABLED", "CLKOS_ENABLE", id="a clock that stands still"),
        pytest.param(r"(OUTREG\.REGSET) RESET", r"\1 SET", "OUTREG.REGSET is SET", id="a pin begins with 1"),
        pytest.param(r"(LSRIMUX) LSRMUX", r"\1 0", "LSRIMUX is 0, not LSRMUX", id="a register of a pin has no reset"),
        pytest.param(r"(DATAMUX_OREG) IOLDO", r"\1 PADDO", "DATAMUX_OREG is PADDO", id="a pin has no register"),
        pytest.param(r"(BASE_TYPE) BIDIR", r"\1 OUTPUT", "DIR is OUTPUT, not BIDIR", id="a pin is only an output"),
        pytest.param(r"^(enum: CIB\.J[A-D]\dMUX) 0", r"\1 1", "is 1, not 0", id="an input of a block is tied to 1"),
        pytest.param(r"^(\.bram_init \d+\n..)(.)", r"\g<1>f", "contents", id="a word of a memory"),
    ],
)
def test_what_is_another_setting_is_found(
    folder: Path, tmp_path: Path, pattern: str, new: str | Callable[[re.Match[str]], str], found: str
) -> None:
    text = (folder / CONFIGURATION).read_text(encoding="utf-8")
    (tmp_path / CONFIGURATION).write_text(_other(pattern, new, text), encoding="utf-8")
    lines = list(differences(read_netlist(folder, ROUTED), Configuration(tmp_path / CONFIGURATION)))
    assert lines and all(found in line for line in lines), lines


def test_connections_that_are_others_are_found(folder: Path, tmp_path: Path) -> None:
    """Each switch that is open is missed, as are two that are exchanged."""
    text, module = (folder / CONFIGURATION).read_text(encoding="utf-8"), read_netlist(folder, ROUTED)
    switches = re.findall(r"^arc: (?!L_|R_|G_|F\d F\d_SLICE|.*PLLREFS).*$", text, flags=re.MULTILINE)
    for line in random.Random(2).sample(switches, 20):
        start = text.index(f"\n{line}\n", text.rindex("\n.tile ", 0, text.index(f"\n{line}\n")))
        changed = text[:start] + text[start + len(line) + 1 :]
        (tmp_path / CONFIGURATION).write_text(changed, encoding="utf-8")
        assert list(differences(module, Configuration(tmp_path / CONFIGURATION))), line


def test_what_is_not_in_the_bitstream_is_found(folder: Path, tmp_path: Path) -> None:
    """A bitstream without a bit of a LUT, one without a switch, and one with a switch more."""
    text = (folder / UNPACKED).read_text(encoding="utf-8")
    unused = r"^(\.tile R\d+C\d+:PLC2\n)(?!(arc: .*\n)*arc: V00T0000)"
    for pattern, new, found in (
        (r"^(word: SLICE.\.K\d\.INIT \d*)([01])($)", _bit, "INIT"),
        (r"^arc: A\d .*\n", lambda match: "", "connected to None"),
        (r"^enum: IOLOGIC.\.CLKOMUX CLK\n", lambda match: "", "CLKOMUX is 0, not CLK"),
        (unused, lambda match: f"{match[1]}arc: V00T0000 V02N0401\n", "which is not written"),
    ):
        (tmp_path / UNPACKED).write_text(_other(pattern, new, text), encoding="utf-8")
        (line,) = lost(Configuration(folder / CONFIGURATION), Configuration(tmp_path / UNPACKED))
        assert found in line


@pytest.mark.parametrize(
    "pattern, new, message",
    [
        (r"(CLK\d\.CLKMUX) CLK", r"\1 INV", r"no model of CLK\d\.CLKMUX INV"),
        (r"(REG\d\.LSRMODE) LSR", r"\1 PRLD", "no model of SLICE.*LSRMODE PRLD"),
        (r"(IOLOGIC.\.CLKOMUX) CLK", r"\1 INV", "no model of IOLOGIC.*CLKOMUX INV"),
        (r"(IOLOGIC.\.DELAY\.OUTDEL) DISABLED", r"\1 ENABLED", "no model of IOLOGIC.*OUTDEL ENABLED"),
        (r"(IOLOGIC.\.FF\.INREGMODE) FF", r"\1 LATCH", "no model of IOLOGIC.*INREGMODE LATCH"),
        (r"enum: IOLOGIC.\.OUTREG\.REGSET \w+\n", "", "no model of IOLOGIC.*OUTREG.REGSET not set"),
        (r"(CLKOS2_ENABLE) ENABLED", r"\1 DISABLED", "no model of CLKOS2_ENABLE DISABLED"),
        (r"(REG_PIPELINE_CLK) NONE", r"\1 CLK0", "no model of MULT18_.*REG_PIPELINE_CLK CLK0"),
        (r"(EBR\d\.CSDECODE_A) \d+", r"\1 000", "no model of a port that is selected"),
        (r"(MULT18_\d\.MODE) \w+", r"\1 MULT18X18D\nenum: ALU54_3.MODE ALU54B", "no model of ALU54_3.MODE ALU54B"),
        (r"enum: SLICE.\.REG\d\.REGSET \w+\n", "", "REGSET is needed and not set"),
    ],
)
def test_cells_that_are_not_simulated(folder: Path, tmp_path: Path, pattern: str, new: str, message: str) -> None:
    text = (folder / CONFIGURATION).read_text(encoding="utf-8")
    (tmp_path / CONFIGURATION).write_text(_other(pattern, new, text), encoding="utf-8")
    with pytest.raises(FpgaError, match=message):
        numbers_of(Configuration(tmp_path / CONFIGURATION), pins_of((folder / CONSTRAINTS).read_text()))


@pytest.mark.parametrize("part", ["SLICE", "IOLOGIC"])
def test_a_global_reset(folder: Path, tmp_path: Path, part: str) -> None:
    """Registers that it resets are not simulated where it can be set."""
    pins, text = pins_of((folder / CONSTRAINTS).read_text()), (folder / CONFIGURATION).read_text(encoding="utf-8")
    text = re.sub(r"((SLICE|IOLOGIC).\.GSR) \w+", lambda m: f"{m[1]} {('DISABLED', 'ENABLED')[m[2] == part]}", text)
    path = tmp_path / CONFIGURATION
    path.write_text(text, encoding="utf-8")
    assert numbers_of(Configuration(path), pins).registers
    path.write_text(_other(r"^(\.tile .*:PLC2)$", r"\1\nenum: GSR.GSRMODE ACTIVE_LOW", text), encoding="utf-8")
    with pytest.raises(FpgaError, match=f"no model of {part}.*GSR ENABLED"):
        numbers_of(Configuration(path), pins)


def test_configurations_that_cannot_be_read(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / CONFIGURATION
    with pytest.raises(FpgaError, match="cannot read"):
        Configuration(path)
    path.write_text(".device LFE5U-25F\n\n.tile nowhere\n")
    with pytest.raises(FpgaError, match="'nowhere' is no tile"):
        Configuration(path)
    path.write_text(".device LFE5U-25F\n\n.tile R2C2:PLC2\narc: A0 H02E0701\narc: A0 H02W0701\n")
    with pytest.raises(FpgaError, match="is driven by"):
        Configuration(path)
    path.write_text(".device LFE5U-25F\n\n.tile R2C2:PLC2\nenum: SLICEA.MODE LOGIC\nenum: SLICEA.MODE CCU2\n")
    with pytest.raises(FpgaError, match=r"SLICEA\.MODE is CCU2 and LOGIC"):
        Configuration(path)
    text = (folder / CONFIGURATION).read_text(encoding="utf-8")
    path.write_text(_other(r"^arc: [A-D]\d .*\n", "", text), encoding="utf-8")
    with pytest.raises(FpgaError, match="is needed, and nothing drives it"):
        numbers_of(Configuration(path), pins_of((folder / CONSTRAINTS).read_text()))
