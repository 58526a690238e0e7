"""Chains of flip-flops in block RAMs: which; that the netlist does the same as before, proved by yosys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tests.unit.fpga.flows.test_block_registers import synthesised, yosys
from tilewright.fpga.flows.gowin_delays import move_delays

#: The memory as its user guide has it, as far as it is used here; of bits of a row only so many are used.
MODEL = """
module SDPX9B(input CLKA, CEA, CLKB, CEB, OCE, RESETA, RESETB, input [13:0] ADA, ADB, input [35:0] DI,
              input [2:0] BLKSELA, BLKSELB, output [35:0] DO);
  parameter READ_MODE = 1'b0, BIT_WIDTH_0 = 36, BIT_WIDTH_1 = 36, RESET_MODE = "SYNC", BLK_SEL_0 = 0, BLK_SEL_1 = 0;
  reg [{most}:0] rows [0:15], read = 0;
  integer n;
  initial for (n = 0; n < 16; n = n + 1) rows[n] = 0;
  always @(posedge CLKA) if (CEA && ADA[3:0] == 15) rows[ADA[8:5]] <= DI;
  always @(posedge CLKB) if (CEB) read <= rows[ADB[8:5]];
  assign DO = read;
endmodule
"""


class Chains(wiring.Component):
    """Chains of so many flip-flops; the last chain is seen in the middle, too."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths
        bits = len(lengths)
        super().__init__({"data": In(bits), "late": Out(bits), "middle": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for n, length in enumerate(self.lengths):
            value = self.data[n]
            for stage in range(length):
                later = Signal(name=f"chain{n}_{stage}", reset_less=True)
                m.d.sync += later.eq(value)
                value = later
                if stage == length // 2 and n == len(self.lengths) - 1:
                    m.d.comb += self.middle.eq(value)
            m.d.comb += self.late[n].eq(value)
        return m


def flip_flops(module: dict) -> int:
    return sum(cell["type"].startswith("DFF") for cell in module["cells"].values())


@pytest.mark.slow
def test_chains_become_a_ring_that_does_the_same(tmp_path: Path) -> None:
    """A ring of 5 bits has most to do with six rows: the chain of 13 goes through it twice, that of 11 is one of 6 and
    one of 5."""
    lengths = (6, 13, 8, 11)
    (tmp_path / "top.il").write_text(rtlil.convert(Chains(*lengths), name="top", emit_src=False))
    yosys("read_rtlil top.il\nsynth_gowin -top top -noiopads -json top.json\n", tmp_path)
    netlist = synthesised(tmp_path)
    module = netlist["modules"]["top"]
    assert flip_flops(module) == sum(lengths)
    assert move_delays(module, free=1, row_bits=5) == 1
    assert sum(cell["type"] == "SDPX9B" for cell in module["cells"].values()) == 1
    counter = 3
    assert flip_flops(module) == counter + 0 + 1 + 2 + 5
    (tmp_path / "moved.json").write_text(json.dumps(netlist))
    (tmp_path / "model.v").write_text(MODEL.format(most=4))
    read = "read_verilog model.v\nread_verilog -nooverwrite +/gowin/cells_sim.v\n"
    read += "hierarchy -top top\nproc\nflatten\nmemory -nordff\nopt_clean\n"
    yosys(
        f"read_json top.json\n{read}rename top gold\ndesign -stash gold\n"
        f"read_json moved.json\n{read}rename top gate\ndesign -stash gate\n"
        "design -copy-from gold -as gold gold\ndesign -copy-from gate -as gate gate\n"
        "miter -equiv -flatten -make_assert -make_outputs gold gate miter\nhierarchy -top miter\nasync2sync\n"
        "sat -verify -set-init-undef -prove-asserts -tempinduct -seq 1 -maxsteps 24 miter\n",
        tmp_path,
    )


@pytest.mark.slow
def test_a_few_flip_flops_are_not_worth_a_block(tmp_path: Path) -> None:
    (tmp_path / "top.il").write_text(rtlil.convert(Chains(10, 12), name="top", emit_src=False))
    yosys("read_rtlil top.il\nsynth_gowin -top top -noiopads -json top.json\n", tmp_path)
    module = synthesised(tmp_path)["modules"]["top"]
    assert move_delays(module, free=3) == 0
    assert flip_flops(module) == 22
