"""Builds the bitstream of a configuration for a board, with its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tilewright.common.text import suggest
from tilewright.fpga.board import BLOCK_RAM, SDRAM, Board, Point
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.synthesis import ROUTING
from tilewright.fpga.flows.tools import Stopwatch
from tilewright.fpga.report import Report, conclude
from tilewright.fpga.uart_board import UartBoard
from tilewright.fpga.zynq.boards import ZYNQ_BOARDS
from tilewright.isa.config import NpuConfig


def board_named(name: str) -> Board:
    """The board of this name. Raises `FpgaError` listing the boards."""
    boards: dict[str, Board] = {**BOARDS, **ZYNQ_BOARDS}
    if name not in boards:
        raise FpgaError(f"unknown board {name!r}{suggest(name, boards)}; boards: {', '.join(boards)}")
    return boards[name]


def point_of(
    board: Board,
    config: NpuConfig,
    *,
    clock_mhz: float | None = None,
    memory: str | None = None,
    memory_kib: int | None = None,
    baud: int | None = None,
) -> Point:
    """The point a configuration is built at; arguments override the board's own values.

    Raises:
        FpgaError: the board does not have this memory, or not in this size.
    """
    point = board.points.get(config.name, board.other)
    if not isinstance(board, UartBoard):
        if memory or memory_kib or baud:
            raise FpgaError(
                f"{board.name} has its own memory and no serial bridge: no --memory, no --memory-kib and no --baud"
            )
    elif memory == SDRAM:
        if board.sdram is None:
            having = ", ".join(b.name for b in BOARDS.values() if b.sdram is not None)
            raise FpgaError(f"{board.name} has no SDRAM that is supported; boards with one: {having}")
        if memory_kib is not None:
            raise FpgaError(f"the SDRAM of {board.name} has {board.sdram.size >> 10} KiB: no other size of memory")
        memory_kib = board.sdram.size >> 10
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
