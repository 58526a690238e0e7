"""Zynq-7000: Yosys, nextpnr, FASM, frames, `.bit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from amaranth.back import rtlil

from fpga.cells import XILINX, Used
from fpga.flows.flow import Flow, Progress
from fpga.flows.netlist import changed
from fpga.flows.synthesis import COUNT, NAME, NETLIST, NO_RW_CHECK, ROUTING, SYNTHESIS, cell_counts
from fpga.flows.tools import execute, run
from fpga.flows.watch import Watch
from fpga.flows.xilinx7 import buffers, fasm, tools

BITSTREAM = f"{NAME}.bit"
#: What Linux's FPGA manager loads.
IMAGE = f"{NAME}.bit.bin"
_FASM, _FRAMES, _LOG, _PINS = f"{NAME}.fasm", f"{NAME}.frames", f"{NAME}.tim", f"{NAME}.xdc"
#: nextpnr's second router searches far around wires that are used twice when they cost much more than others: most of
#: the wires of this family are free, so the costs grow slowly, and each pass takes minutes less.
ROUTER = {
    "router2/estimateWeight": "2.0",
    "router2/initCurrCongWeight": "0.3",
    "router2/currCongWeightMult": "0.3",
    "router2/histCongWeight": "0.3",
}


class Xilinx7(Flow):
    """A design without pins, around the processing system.

    Multipliers are built from LUTs: nextpnr leaves configuration bits of DSP48E1 out, so that inferred ones multiply
    wrongly (https://github.com/openXC7/nextpnr-xilinx/pull/159 describes it).

    Args:
        part: full name of the FPGA.
    """

    images = (BITSTREAM, IMAGE)
    note = "not yet seen on a board; nextpnr's timing of this family is incomplete; multipliers are of LUTs"

    def __init__(self, part: str) -> None:
        self.part = part

    @cached_property
    def tools(self) -> tools.Tools:
        """Those that pip does not have. Raises `FpgaError`."""
        return tools.find()

    def require(self) -> None:
        """As `Flow` says."""
        super().require()
        assert self.tools

    def generate(self, top: Any, directory: Path) -> None:
        """As `Flow` says."""
        design = rtlil.convert(top, name=NAME, ports=[], emit_src=False)
        script = (
            f"read_rtlil {NAME}.il",
            NO_RW_CHECK,
            f"synth_xilinx -flatten -family xc7 -nodsp -top {NAME}",
            COUNT,
            f"write_json {NETLIST}\n",
        )
        for name, text in ((f"{NAME}.il", design), (f"{NAME}.ys", "\n".join(script)), (_PINS, "")):
            (directory / name).write_text(text, encoding="utf-8")

    def synthesise(self, directory: Path) -> Used:
        """As `Flow` says."""
        run(SYNTHESIS, directory)
        cells = cell_counts(directory)
        with changed(directory / NETLIST, NAME) as module:
            added = buffers.add_buffers(module)
            module["settings"] = ROUTER
        used = XILINX.count(cells)
        return replace(used, lut=used.lut + added)

    def place_and_route(self, directory: Path, used: Used, mhz: float, seeds: Sequence[int], progress: Progress) -> int:
        """As `Flow` says."""
        progress("place and route")
        (seed,) = seeds
        command = (
            *self.tools.nextpnr_for(self.part), "--json", NETLIST, "--vopt", f"xdc={_PINS}",
            "--vopt", f"fasm={_FASM}", "--report", ROUTING, "--log", _LOG, "--quiet",
            "--pre-place", str(buffers.PLACEMENT),
            "--freq", f"{mhz:.3f}", "--seed", str(seed), "--timing-allow-fail",
        )  # fmt: skip
        log = directory / _LOG
        execute(command, directory, "place and route", tools.NEXTPNR, log, Watch(log, mhz, progress))
        return seed

    def pack(self, directory: Path) -> None:
        """As `Flow` says."""
        data = self.tools.database
        database = fasm.Database(data, tools.device_of(self.part))
        required = (data / self.part / "required_features.fasm").read_text(encoding="ascii")
        frames = fasm.frames(required + (directory / _FASM).read_text(encoding="ascii"), database)
        (directory / _FRAMES).write_text(fasm.frames_text(frames), encoding="ascii")
        write = (
            *self.tools.frames2bit, f"--part_file={data / self.part / 'part.yaml'}", f"--part_name={self.part}",
            f"--frm_file={_FRAMES}", f"--output_file={BITSTREAM}",
        )  # fmt: skip
        execute(write, directory, "bitstream", tools.FRAMES2BIT, directory / _FRAMES)
        (directory / IMAGE).write_bytes(fasm.manager_image((directory / BITSTREAM).read_bytes()))
