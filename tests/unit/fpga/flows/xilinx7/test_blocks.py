"""Features added to nextpnr's FASM of DSP blocks and block RAMs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.common import needs
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.xilinx7 import blocks, tools
from tilewright.fpga.report import timing

#: As nextpnr writes a product with a sum: INMODE and ALUMODE are 0, OPMODE is 0110101; inputs of 0 are inverted.
PRODUCT = """
DSP_R_X9Y5.DSP48.DSP_1.ZINMODEREG[0]
DSP_R_X9Y5.DSP48.DSP_1.ZIS_OPMODE_INVERTED[0]
DSP_R_X9Y5.DSP48.DSP_1.ZIS_OPMODE_INVERTED[2]
DSP_R_X9Y5.DSP48.DSP_1.ZIS_OPMODE_INVERTED[4]
DSP_R_X9Y5.DSP48.DSP_1.ZIS_OPMODE_INVERTED[5]
DSP_R_X9Y5.DSP_1_D0.DSP_GND_R
DSP_R_X9Y5.DSP_1_RSTD.DSP_GND_R
"""
BUSES = [("INMODE", n) for n in range(5)] + [("ALUMODE", 2), ("ALUMODE", 3), ("OPMODE", 6)]


def added(text: str, widths: dict[str, dict[str, int]] | None = None) -> list[str]:
    completed = blocks.complete(text, widths or {})
    assert completed.startswith(text)
    return completed[len(text) :].split()


def test_constants_of_a_dsp_block() -> None:
    """Constant inputs get a tie to ground for a 0 and to the supply for a 1, without an inverter. The vendor's tool was
    measured to write this for each of the eight inputs."""
    expected = []
    for bus, n in BUSES:
        expected += [f"DSP_R_X9Y5.DSP_1_{bus}{n}.DSP_GND_R", f"DSP_R_X9Y5.DSP48.DSP_1.ZIS_{bus}_INVERTED[{n}]"]
    assert added(PRODUCT) == expected
    for bus, n in BUSES:
        one = f"DSP_R_X9Y5.DSP48.DSP_1.ZIS_{bus}_INVERTED[{n}]"
        changed = [f"DSP_R_X9Y5.DSP_1_{bus}{n}.DSP_VCC_R"]
        index = expected.index(one)
        assert added(PRODUCT + one) == expected[: index - 1] + changed + expected[index + 1 :]


def test_each_block_of_a_tile_has_its_own() -> None:
    assert added("DSP_L_X34Y0.DSP48.DSP_0.ZMREG[0]")[0] == "DSP_L_X34Y0.DSP_0_INMODE0.DSP_GND_L"
    both = added("DSP_L_X34Y0.DSP48.DSP_0.ZMREG[0]\nDSP_L_X34Y0.DSP48.DSP_1.ZMREG[0]")
    assert len(both) == 32 and sum("DSP_1" in line for line in both) == 16


def test_a_signal_where_only_constants_are_known() -> None:
    message = r"FASM: DSP_R_X9Y5: DSP_1_INMODE3.DSP_BYP4_4: INMODE\[3\] must be a constant"
    with pytest.raises(FpgaError, match=message):
        added(PRODUCT + "DSP_R_X9Y5.DSP_1_INMODE3.DSP_BYP4_4")


def test_ports_of_one_and_nine_bits() -> None:
    widths = {"READ_WIDTH_A": 9, "READ_WIDTH_B": 0, "WRITE_WIDTH_A": 18, "WRITE_WIDTH_B": 1}
    assert added("", {"BRAM_L_X6Y0": widths, "BRAM_L_X6Y5": dict.fromkeys(widths, 36)}) == [
        "BRAM_L_X6Y0.RAMB36.BRAM36_READ_WIDTH_A_1",
        "BRAM_L_X6Y0.RAMB36.BRAM36_WRITE_WIDTH_B_1",
    ]


def test_clocks_of_output_registers() -> None:
    """An output register has the clock of its port; without a register, or with an inverted clock, nothing is added."""
    half = "BRAM_R_X8Y5.RAMB18_Y1."
    clocks = f"{half}ZINV_CLKARDCLK\n{half}ZINV_CLKBWRCLK\n"
    assert added(clocks) == []
    assert added(f"{clocks}{half}DOA_REG\n") == [f"{half}ZINV_REGCLKARDRCLK"]
    assert added(f"{clocks}{half}DOB_REG\n") == [f"{half}ZINV_REGCLKB"]
    assert added(f"{half}ZINV_CLKARDCLK\n{half}DOB_REG\n") == []


def test_a_path_at_a_dsp_block_can_be_the_slowest() -> None:
    def report() -> dict[str, Any]:
        step = {"type": "routing", "delay": 6.0, "from": {"cell": "x"}, "to": {"cell": "y"}}
        path = {"from": "posedge clk", "to": "posedge clk", "path": [step]}
        return {"fmax": {"clk": {"achieved": 160.0, "constraint": 100}}, "critical_paths": [path]}

    ends = [{"cell": "a", "wire": 0.0, "logic": 2.5}, {"cell": "b/PCIN3", "wire": 4.0, "logic": 1.5}]
    at_block = {"ns": 8.0, "cells": ends}
    slower = timing(blocks.slowest(report(), at_block))
    assert (slower.fmax_mhz, slower.path.start, slower.path.end, slower.path.delay_ns) == (125, "a", "b/PCIN3", 8.0)
    assert slower.path.logic_ns == 4.0
    for path in ({}, at_block | {"ns": 5.0}):
        same = timing(blocks.slowest(report(), path))
        assert (same.fmax_mhz, same.path.start) == (160, "x")


def test_names_are_those_of_the_database() -> None:
    """All inputs that have a tie and an inverter are tied here, and no other; every feature exists."""
    try:
        root = tools.find().database / "zynq7"
    except FpgaError as error:
        needs.skip(needs.XILINX_TOOLS, str(error))
    for side in "LR":
        names = {line.split()[0] for line in (root / f"segbits_dsp_{side.lower()}.db").read_text().splitlines()}
        tied = {m[1] for name in names if (m := re.fullmatch(rf"DSP_{side}\.DSP_0_([A-Z]+\d*)\.DSP_GND_{side}", name))}
        inverted = {m[1] + m[2] for name in names if (m := re.search(r"DSP_0\.ZIS_([A-Z]+)_INVERTED\[(\d+)\]$", name))}
        assert tied & inverted == {f"{bus}{n}" for bus, n in BUSES}
        for half in ("DSP_0", "DSP_1"):
            place = f"DSP_{side}_X1Y1.DSP48.{half}"
            ones = "\n".join(f"{place}.ZIS_{bus}_INVERTED[{n}]" for bus, n in BUSES)
            for text in (f"{place}.ZMREG[0]", f"{place}.ZMREG[0]\n{ones}"):
                made = {line.replace("_X1Y1", "") for line in added(text)}
                assert made <= names
        memory = {line.split()[0] for line in (root / f"segbits_bram_{side.lower()}.db").read_text().splitlines()}
        ports = [f"{kind}_WIDTH_{port}" for kind in ("READ", "WRITE") for port in "AB"]
        assert {f"BRAM_{side}.RAMB36.BRAM36_{port}_1" for port in ports} <= memory
        for half in ("RAMB18_Y0", "RAMB18_Y1"):
            assert {f"BRAM_{side}.{half}.ZINV_REGCLKARDRCLK", f"BRAM_{side}.{half}.ZINV_REGCLKB"} <= memory
