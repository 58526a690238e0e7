"""Registers in multipliers and block RAMs of Gowin, and LUTs in front of flip-flops: which; that the netlist does the
same as before, proved by yosys."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tests.unit.fpga.flows.test_block_registers import BOUNDED, INDUCTION, Reads, prove_equal, synthesised, yosys
from tilewright.fpga.flows.gowin_registers import BLOCKS, add_wires, move_registers
from tilewright.fpga.flows.gowin_sites import lut_sites
from tilewright.fpga.flows.synthesis import NO_RW_CHECK

#: The blocks as their user guides have them, as far as they are used here: signed operands; a memory in which each row
#: holds its address, turned by what is written.
MODEL = """
module MULT9X9(input [8:0] A, B, SIA, SIB, input ASIGN, BSIGN, ASEL, BSEL, CLK, CE, RESET, output [17:0] DOUT);
  parameter OUT_REG = 1'b0, AREG = 1'b0, BREG = 1'b0;
  reg signed [8:0] a0 = 0, b0 = 0;
  wire signed [8:0] a = AREG ? a0 : A, b = BREG ? b0 : B;
  wire signed [17:0] now = a * b;
  reg signed [17:0] later = 0;
  always @(posedge CLK) if (RESET) begin a0 <= 0; b0 <= 0; later <= 0; end
                        else if (CE) begin a0 <= A; b0 <= B; later <= now; end
  assign DOUT = OUT_REG ? later : now;
endmodule
module DPX9B(input CLKA, CEA, OCEA, RESETA, WREA, CLKB, CEB, OCEB, RESETB, WREB, input [13:0] ADA, ADB,
             input [17:0] DIA, DIB, input [2:0] BLKSELA, BLKSELB, output [17:0] DOA, DOB);
  parameter READ_MODE0 = 1'b0, READ_MODE1 = 1'b0, BIT_WIDTH_0 = 18, BIT_WIDTH_1 = 18, RESET_MODE = "SYNC";
  parameter BLK_SEL_0 = 0, BLK_SEL_1 = 0, WRITE_MODE0 = 0, WRITE_MODE1 = 0;
  {others}
  reg [17:0] read = 0, later = 0;
  always @(posedge CLKB) begin
    if (RESETB) begin read <= 0; later <= 0; end
    else begin
      if (CEB) read <= ADB ^ DIA;
      if (OCEB) later <= read;
    end
  end
  assign DOB = READ_MODE1 ? later : read;
endmodule
module SDPX9B(input CLKA, CEA, CLKB, CEB, OCE, RESETA, RESETB, input [13:0] ADA, ADB, input [35:0] DI,
              input [2:0] BLKSELA, BLKSELB, output [35:0] DO);
  parameter READ_MODE = 1'b0, BIT_WIDTH_0 = 36, BIT_WIDTH_1 = 36, RESET_MODE = "SYNC", BLK_SEL_0 = 0, BLK_SEL_1 = 0;
  {others}
  reg [35:0] read = 0, later = 0;
  always @(posedge CLKB) begin
    if (RESETB) begin read <= 0; later <= 0; end
    else begin
      if (CEB) read <= {{ADB, ADB}} ^ DI;
      if (OCE) later <= read;
    end
  end
  assign DO = READ_MODE ? later : read;
endmodule
"""


class Products(wiring.Component):
    """Three bits by three, with registers before and behind: `plain`; `held`, all with an enable; `mixed`, where those
    behind have one; `seen`, where the product is seen besides."""

    NAMES = ("plain", "held", "mixed", "seen")

    def __init__(self) -> None:
        factors = {f"{name}_{k}": In(signed(3)) for name in self.NAMES for k in "ab"}
        super().__init__(factors | {"enable": In(1)} | {name: Out(signed(6)) for name in self.NAMES})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name in self.NAMES:
            x, y = (Signal(signed(3), name=f"{name}_{k}", reset_less=True) for k in "xy")
            product, later = (
                Signal(signed(6), name=f"{name}_now"),
                Signal(signed(6), name=f"{name}_later", reset_less=True),
            )
            with m.If(self.enable if name == "held" else 1):
                m.d.sync += [x.eq(getattr(self, f"{name}_a")), y.eq(getattr(self, f"{name}_b"))]
            with m.If(self.enable if name in ("held", "mixed") else 1):
                m.d.sync += later.eq(product)
            m.d.comb += [product.eq(x * y), getattr(self, name).eq(later ^ product if name == "seen" else later)]
        return m


@pytest.mark.slow
def test_products_take_registers_of_one_enable(tmp_path: Path) -> None:
    """`mixed` keeps those in front, `seen` that behind."""
    (tmp_path / "top.il").write_text(rtlil.convert(Products(), name="top", emit_src=False))
    dsp = "techmap -map +/mul2dsp.v -map +/gowin/dsp_map.v -D DSP_A_MAXWIDTH=9 -D DSP_B_MAXWIDTH=9"
    dsp += " -D DSP_A_MINWIDTH=2 -D DSP_B_MINWIDTH=2 -D DSP_NAME=$__MUL9X9"
    script = f"proc\nflatten\nwreduce t:$mul\n{dsp}\nchtype -set $mul t:$__soft_mul\n"
    yosys(f"read_rtlil top.il\n{script}synth_gowin -top top -noiopads -json top.json\n", tmp_path)
    module, moved = changed(tmp_path)
    assert moved == 12 + 12 + 6 + 6
    turned_on = [[block["parameters"].get(name) for name in ("AREG", "BREG", "OUT_REG")] for block in blocks(module)]
    assert sorted(turned_on, key=str) == [["1", "1", "1"], ["1", "1", "1"], ["1", "1", None], [None, None, "1"]]
    prove_blocks_equal(tmp_path, BOUNDED)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "moved"), [("plain", 18), pytest.param("wide", 36, marks=pytest.mark.long), ("held", 18), ("seen", 0)]
)
def test_a_read_takes_the_register_of_its_block_if_it_can(name: str, moved: int, tmp_path: Path) -> None:
    (tmp_path / "top.il").write_text(rtlil.convert(Reads(name), name="top", emit_src=False))
    yosys(f"read_rtlil top.il\n{NO_RW_CHECK}\nsynth_gowin -top top -noiopads -json top.json\n", tmp_path)
    module, found = changed(tmp_path)
    assert found == moved
    (block,) = blocks(module)
    modes = (mode for name, mode in block["parameters"].items() if name.startswith("READ_MODE"))
    assert [int(mode, 2) for mode in modes].count(1) == bool(moved)
    prove_blocks_equal(tmp_path, BOUNDED if name == "held" else INDUCTION)


def changed(directory: Path) -> tuple[dict, int]:
    """The module of a folder's netlist, in `moved.json` too, and how many registers moved. Every flip-flop has its LUT
    or carry cell, which takes no more sites than before."""
    netlist = synthesised(directory)
    module = netlist["modules"]["top"]
    moved = move_registers(module)
    before = lut_sites(module["cells"])
    add_wires(module)
    assert lut_sites(module["cells"]) == before
    inputs = Counter(c["connections"]["D"][0] for c in module["cells"].values() if c["type"].startswith("DFF"))
    driven = {c["connections"]["F"][0] for c in module["cells"].values() if c["type"].startswith("LUT")}
    assert set(inputs) <= driven
    assert all(count == 1 for count in inputs.values())
    (directory / "moved.json").write_text(json.dumps(netlist))
    return module, moved


def blocks(module: dict) -> list[dict]:
    return [cell for cell in module["cells"].values() if cell["type"] in BLOCKS]


def prove_blocks_equal(directory: Path, steps: str = INDUCTION) -> None:
    """top.json and moved.json, with the blocks of MODEL, do the same whatever their inputs."""
    cells = json.loads((directory / "top.json").read_text())["modules"]["top"]["cells"].values()
    names = sorted({p for c in cells for p in c["parameters"] if p.startswith("INIT_RAM")})
    (directory / "model.v").write_text(MODEL.format(others="".join(f"parameter {n} = 0;" for n in names)))
    prove_equal(directory, "+/gowin/cells_sim.v", steps)
