"""Builds the bitstream of a configuration for a board, with its report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tilewright.fpga.board import BLOCK_RAM, Board, Point
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.synthesis import ROUTING
from tilewright.fpga.flows.tools import Stopwatch
from tilewright.fpga.report import Report, conclude
from tilewright.isa.config import NpuConfig


def build(
    board: Board,
    config: NpuConfig,
    point: Point,
    directory: Path,
    *,
    seed: int | None = None,
    tries: int = 1,
    progress: Callable[[str], None] = lambda text: None,
) -> Report:
    """Builds in `directory` (made if missing), which then holds the bitstream, `report.json`, the tools' logs, and the
    board's further files. The same arguments give the same bytes.

    Parameters:
        seed: of the placement; None = that of the point.
        tries: placements, of this seed and those after it. The best by nextpnr's estimate is routed; where that fails,
            the next one is.

    Raises:
        FpgaError: tools missing, the design does not fit, a tool fails, or the clock is not reached.
    """
    flow = board.flow()
    flow.require()
    if tries > 1 and not flow.several:
        raise FpgaError(f"{board.name} is placed and routed in one step: no --tries")
    progress("generating")
    design = board.design(config, point)
    directory.mkdir(parents=True, exist_ok=True)
    flow.generate(design.top, directory)
    progress("synthesis")
    watch = Stopwatch()
    used = flow.synthesise(directory)
    if missing := used.missing(board.capacity):
        what = ", ".join(f"{need:g} {title} of {have}" for title, need, have in missing)
        has_memory = point.memory == BLOCK_RAM and point.memory_kib
        beside = f" with {point.memory_kib} KiB of memory" if has_memory else ""
        raise FpgaError(f"{config.name}{beside} does not fit on {board.name}: it needs {what}")
    first = point.seed if seed is None else seed
    seed = flow.place_and_route(directory, used, design.mhz, range(first, first + tries), progress)
    progress("bitstream")
    flow.pack(directory)
    board.describe(config, design, directory)
    return conclude(
        directory,
        board,
        config,
        images=flow.images,
        routing=ROUTING,
        spent=watch.read(),
        clock_mhz=design.mhz,
        memory_mhz=design.memory_mhz,
        memory=point.memory,
        memory_kib=point.memory_kib,
        baud=point.baud,
        seed=seed,
        used=used,
        note=flow.note,
    )
