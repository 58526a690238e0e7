"""Result and progress of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.common.shown import Shown
from tilewright.fpga.area.model import AreaModel
from tilewright.fpga.fmax.model import FmaxModel
from tilewright.measure.clock import Clock
from tilewright.sweep.space import NETWORK_TIME, Space, network_key

#: Points of each network that `Outcome.to_dict` has.
FASTEST = 3
#: Shares of the MACs that differ by no more are as good as equal.
_ALIKE = 0.01
#: States of points when a sweep has ended.
STATES = ("done", "pruned", "infeasible", "invalid", "failed")


@dataclass(repr=False)
class Outcome(Shown):
    """The outcome of a sweep.

    Attributes:
        sweep: its id in the database.
        points: rows of `Database.sweep_points`.
        front: those of `points` that no other one beats in every objective.
        computed, reused: results computed now, and found in the database.
        verifications: with `verify`, rows with cycles of RTL and simulator.
        area_model: that gave the area, None where a tool counted.
        clock_model: that gave the clock, None where something else did.
        space: what was swept.
        folder: of the database.
        unpruned: why nothing was pruned, "" if points may have been.
    """

    sweep: str
    points: list[dict[str, Any]]
    front: list[dict[str, Any]]
    computed: int
    reused: int
    verifications: list[dict[str, Any]]
    area_model: AreaModel | None = None
    clock_model: FmaxModel | None = None
    space: Space | None = None
    folder: Path | None = None
    unpruned: str = ""

    @property
    def database(self) -> Path | None:
        """The file with all results."""
        return None if self.folder is None else self.folder / "sweep.sqlite"

    def facts(self) -> dict[str, Any]:
        """Returns facts, for `repr` and notebooks."""
        counts = {state: self.count(state) for state in STATES if self.count(state)}
        return counts | {"front": len(self.front), "computed": self.computed, "database": str(self.database)}

    def table(self) -> list[list[str]]:
        """A table of the points that no other dominates."""
        fields = list(self.front[0]["assignment"]) if self.front else []
        objectives = [o.text for o in self.space.objectives] if self.space is not None else []
        rows = [
            [str(p["number"]), *(str(p["assignment"][f]) for f in fields)]
            + [f"{p['metrics'][f'objective{n}']:g}" for n in range(len(objectives))]
            for p in self.front
        ]
        return [["#", *fields, *objectives], *rows] if rows else []

    def to_dict(self) -> dict[str, Any]:
        """Returns the outcome for JSON, as `tilewright sweep --json` prints it."""
        networks = self.space.weights if self.space is not None else ()
        return {
            "board": self.space.board if self.space is not None else None,
            "family": self.space.family if self.space is not None else None,
            "database": str(self.database),
            "sweep": self.sweep,
            "computed": self.computed,
            "reused": self.reused,
            "points": self.points,
            "front": [point["number"] for point in self.front],
            "fastest": {name: [timed(point, name) for point in self.fastest(name, FASTEST)] for name in networks},
            "verifications": self.verifications,
        }

    def fastest(self, network: str, count: int) -> list[dict[str, Any]]:
        """Rows of `points` that run a network in the least time, the fastest first; none where there is no clock."""
        key = f"{NETWORK_TIME}_{network_key(network)}"
        done = [p for p in self.points if p["state"] == "done" and key in p["metrics"]]
        return sorted(done, key=lambda p: (p["metrics"][key], p["number"]))[:count]

    def count(self, state: str) -> int:
        """Points in a state."""
        return sum(point["state"] == state for point in self.points)


def left_to_cpu(points: list[dict[str, Any]]) -> str:
    """Returns a sentence about points that leave unlike parts of the networks' products to the CPU, so that cycles are
    hard to compare; "" where they do not."""
    found = [p["metrics"] for p in points if p["state"] == "done"]
    shares = [1 - metrics["npu_mac_fraction"] for metrics in found if "npu_mac_fraction" in metrics]
    if not shares or max(shares) - min(shares) < _ALIKE:
        return ""
    return (
        f"points leave {min(shares):.0%} to {max(shares):.0%} of the MACs to the CPU, whose time is in no cycles; "
        f"a constraint such as 'npu_mac_fraction >= {1 - min(shares) - _ALIKE:.2f}' leaves those out that do less"
    )


def timed(point: dict[str, Any], network: str) -> dict[str, Any]:
    """A point and its time for a network."""
    key = network_key(network)
    found = Clock(point["metrics"]["clock_mhz"], "sweep").describe(round(point["metrics"][f"cycles_{key}"]))
    return {
        "number": point["number"],
        "assignment": point["assignment"],
        "cycles": point["metrics"][f"cycles_{key}"],
        **{name: found[name] for name in ("clock_mhz", "milliseconds", "inferences_per_second")},
    }


@dataclass
class Progress:
    """The progress of a sweep.

    Attributes:
        done, pruned, left: points with results, points left out because they lose, and points to be looked at.
        computed: results computed now, those of rungs below full effort included.
        best: value of the first objective so far.
        hypervolume: share of the box of all values seen that the front so far wins; None where it is not computed.
        stage: what is done before the first point is chosen or after the last one has its results, "" in between.
    """

    done: int
    pruned: int
    left: int
    computed: int
    best: float | None
    hypervolume: float | None
    stage: str = ""
