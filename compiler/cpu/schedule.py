"""Schedules as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LoopSchedule:
    """How a loop nest is run.

    Attributes:
        unroll: vectors per iteration of the innermost loop.
    """

    unroll: int = 1
