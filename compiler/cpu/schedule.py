"""Schedules as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LoopSchedule:
    """How a loop nest is run.

    Attributes:
        unroll: vectors per iteration of the innermost loop.
        tile_rows, tile_columns: elements of the tiles of a transposition: along the loop in which the source is
            contiguous, and along the one in which the result is.
    """

    unroll: int = 1
    tile_rows: int = 64
    tile_columns: int = 64
