"""From board and configuration to a bitstream with its report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fpga import into_luts
from fpga.board import BLOCK_RAM, SDRAM, Board, Point
from fpga.boards import BOARDS
from fpga.bridge.uart import bit_time
from fpga.errors import FpgaError
from fpga.implementation import Implementation
from fpga.report import Report, conclude, used
from fpga.sdram.chip import SdramCycles
from fpga.toolchain import FAMILIES, NAME, ROUTING, STATISTICS, cpu_time, require, run
from fpga.top import BoardTop
from isa.config import NpuConfig

#: Share of an FPGA's LUTs above which a design counts as crowded: its connections get in each other's way.
CROWDED = 0.36
#: Share of them above which it fills the FPGA: it is placed twice, the second time with room where wires are few.
FULL = 0.7
#: The second router stops as soon as its clock is reached by its own count, which is half a percent above the truth.
MARGIN = 1.01


def board_named(name: str) -> Board:
    """Raises `FpgaError` listing the boards."""
    if name not in BOARDS:
        raise FpgaError(f"unknown board {name!r}; boards: {', '.join(BOARDS)}")
    return BOARDS[name]


def point_of(
    board: Board,
    config: NpuConfig,
    *,
    clock_mhz: float | None = None,
    memory: str | None = None,
    memory_kib: int | None = None,
    baud: int | None = None,
) -> Point:
    """The point a configuration is built at, with what is given instead of the board's own.

    Raises:
        FpgaError: the board does not have this memory, or not in this size.
    """
    if memory == SDRAM:
        if board.sdram is None:
            having = ", ".join(b.name for b in BOARDS.values() if b.sdram is not None)
            raise FpgaError(f"{board.name} has no SDRAM that is supported; boards with one: {having}")
        if memory_kib is not None:
            raise FpgaError(f"the SDRAM of {board.name} has {board.sdram.size >> 10} KiB: no other size of memory")
        memory_kib = board.sdram.size >> 10
    point = board.points.get(config.name, board.other)
    if memory is not None and memory != point.memory and memory_kib is None:
        memory_kib = board.other.memory_kib  # that of the point is the size of the other memory
    chosen = {"clock_mhz": clock_mhz, "memory": memory, "memory_kib": memory_kib, "baud": baud}
    return replace(point, **{k: v for k, v in chosen.items() if v is not None})  # type: ignore[arg-type]


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
    """Builds in `directory` (made if missing), which then holds the bitstream, `report.json` and the tools' logs. The
    same arguments give the same bytes.

    Parameters:
        seed: of the placement; None = that of the point.
        tries: placements, of this seed and those after it. The best by nextpnr's estimate is routed; where that fails,
            the next one is.

    Raises:
        FpgaError: tools missing, the design does not fit, a tool fails, or the clock is not reached.
    """
    require(board.family)
    family = FAMILIES[board.family]
    if tries > 1 and family.place is None:
        raise FpgaError(f"{board.name} is placed and routed in one step: no --tries")
    directory.mkdir(parents=True, exist_ok=True)
    progress("generating")
    pll = board.pll(round(point.clock_mhz * 1e6))
    try:
        bit_time(pll.output_hz, point.baud)
        if point.memory == SDRAM and board.sdram is not None:
            SdramCycles.of(board.sdram, pll.output_hz)
    except ValueError as error:
        raise FpgaError(f"{board.name}: {error}") from None
    platform = board.platform()
    overrides = {**family.overrides, "script_after_read": into_luts.AFTER_READ}
    plan = platform.prepare(BoardTop(board, config, point, pll), name=NAME, emit_src=False, **overrides)
    plan.extract(directory)

    progress("synthesis")
    multipliers, memories, seconds, cpu = into_luts.survey(directory, family)
    chosen = into_luts.choose(multipliers, memories, board.capacity)
    into_luts.write_script(chosen, directory, family)
    took = run(family.synthesis(directory, dense=bool(chosen)), directory)
    seconds, cpu = seconds + took[0], cpu + took[1]
    resources = used(json.loads((directory / STATISTICS).read_text()))
    if family.lut_sites is not None:
        resources = replace(resources, lut=family.lut_sites(directory))
    if missing := resources.missing(board.capacity):
        what = ", ".join(f"{need:g} {title} of {have}" for title, need, have in missing)
        beside = f" with {point.memory_kib} KiB of memory" if point.memory == BLOCK_RAM else ""
        raise FpgaError(f"{config.name}{beside} does not fit on {board.name}: it needs {what}")
    if family.netlist is not None:
        resources = replace(resources, ff=resources.ff - family.netlist(directory, bool(chosen)))
    mhz = pll.output_hz / 1e6
    crowded = resources.lut > CROWDED * board.capacity.lut
    if crowded and family.aim is not None:
        family.aim(directory, MARGIN * mhz)
    before = cpu_time()
    started = time.monotonic()
    left = board.capacity.lut - resources.lut if resources.lut > FULL * board.capacity.lut else None
    implementation = Implementation(family, platform, board.capacity, directory, mhz=mhz, crowded=crowded, left=left)
    first = point.seed if seed is None else seed
    seed = implementation.run(range(first, first + tries), progress)
    progress("bitstream")
    run(family.pack(platform), directory)
    seconds, cpu = seconds + time.monotonic() - started, cpu + cpu_time() - before
    return conclude(
        directory,
        board,
        config,
        images=(family.bitstream,),
        routing=ROUTING,
        spent=(seconds, cpu),
        clock_mhz=mhz,
        memory=point.memory,
        memory_kib=point.memory_kib,
        baud=point.baud,
        seed=seed,
        used=resources,
    )
