"""What a sweep came to, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fpga.area.model import AreaModel
from fpga.fmax.model import FmaxModel
from tilewright.sweep.space import NETWORK_TIME, network_key


@dataclass
class Outcome:
    """The outcome of a sweep.

    Attributes:
        sweep: its id in the database.
        points: rows of `Database.sweep_points`.
        front: those of `points` that no other one beats in every objective.
        computed, reused: results computed now, and found in the database.
        verifications: with `verify`, rows with cycles of RTL and simulator.
        area_model: that gave the area, None where a tool counted.
        clock_model: that gave the clock, None where something else did.
    """

    sweep: str
    points: list[dict[str, Any]]
    front: list[dict[str, Any]]
    computed: int
    reused: int
    verifications: list[dict[str, Any]]
    area_model: AreaModel | None = None
    clock_model: FmaxModel | None = None

    def fastest(self, network: str, count: int) -> list[dict[str, Any]]:
        """Rows of `points` that run a network in the least time, the fastest first; none where there is no clock."""
        key = f"{NETWORK_TIME}_{network_key(network)}"
        done = [p for p in self.points if p["state"] == "done" and key in p["metrics"]]
        return sorted(done, key=lambda p: (p["metrics"][key], p["number"]))[:count]

    def count(self, state: str) -> int:
        """Points in a state."""
        return sum(point["state"] == state for point in self.points)


@dataclass
class Progress:
    """The progress of a sweep: points done of those planned, and the best value of the first objective so far."""

    done: int
    planned: int
    computed: int
    best: float | None
