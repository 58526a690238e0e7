"""Boards by name, and the points at which they are built."""

from __future__ import annotations

from dataclasses import replace

from tilewright.common.text import suggest
from tilewright.fpga.board import SDRAM, Board, Point
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.errors import FpgaError
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
