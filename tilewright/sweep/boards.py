"""Spaces over boards: `board = NAME` or a list, and a table `[boards.NAME]` over the rest of the space."""

from __future__ import annotations

from typing import Any

from tilewright.common.text import suggest
from tilewright.fpga.cells import Capacity
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.points import board_named
from tilewright.fpga.uart_board import UartBoard
from tilewright.fpga.zynq.boards import ZynqBoard
from tilewright.sweep.expressions import SpaceError

#: Names of expressions in a space for a board: what its FPGA has, as `Capacity` counts.
CAPACITY = ("board_lut", "board_ff", "board_dsp", "board_bram")
#: What a table of a board may hold: these replace the space's own, key by key where they are tables; constraints are
#: added to the space's. `family` is another one than the board's where only that has a calibrated area model.
KEYS = ("base", "family", "clock_mhz", "constraints", "axes", "memory")


def named_boards(table: dict[str, Any]) -> list[str]:
    """The boards that a space names, `board = NAME` or `board = [NAME, ...]`. Raises `SpaceError` for anything else."""
    named = table.get("board", [])
    found = named if isinstance(named, list) else [named]
    for name in found:
        family_of(name)
    if len(set(found)) < len(found) or (not found and "board" in table):
        raise SpaceError(f"board must be a board, or a list of different ones, not {named!r}")
    return found


def choose_board(table: dict[str, Any], board: str | None) -> dict[str, Any]:
    """The space for one board: `board`, else the first that the space names; as it is where there is none.

    Raises:
        SpaceError: an unknown board or key.
    """
    tables = table.get("boards", {})
    name = next(iter(named_boards(table)), None) if board is None else board
    if not isinstance(tables, dict) or not all(isinstance(own, dict) for own in tables.values()):
        raise SpaceError(f"boards must be tables [boards.NAME], not {tables!r}")
    for one, own in tables.items():
        family_of(one)
        unknown = sorted(set(own) - set(KEYS))
        if unknown:
            raise SpaceError(
                f"unknown key {unknown[0]!r} in [boards.{one}]{suggest(unknown[0], KEYS)}; known: {', '.join(KEYS)}"
            )
    chosen = {key: value for key, value in table.items() if key != "boards"}
    if name is None:
        return chosen
    chosen = {"family": family_of(name)} | chosen | {"board": name}
    for key, value in tables.get(name, {}).items():
        own = chosen.get(key)
        if key == "constraints" and isinstance(own, list) and isinstance(value, list):
            chosen[key] = [*own, *value]
        elif isinstance(own, dict) and isinstance(value, dict):
            chosen[key] = own | value
        else:
            chosen[key] = value
    return chosen


def family_of(name: object) -> str:
    """The FPGA family of a board. Raises `SpaceError` listing the boards."""
    try:
        board = board_named(str(name))
    except FpgaError as error:
        raise SpaceError(f"board: {error}") from None
    assert isinstance(board, UartBoard | ZynqBoard)
    return board.family


def capacity_of(name: str) -> dict[str, float]:
    """`CAPACITY` of a board by name."""
    has: Capacity = board_named(name).capacity
    return {"board_lut": has.lut, "board_ff": has.ff, "board_dsp": has.dsp, "board_bram": has.bram}
