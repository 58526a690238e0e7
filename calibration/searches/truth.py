"""`Truth`: the results of all points of a space on every rung, and the sweeps that take theirs from it."""

from __future__ import annotations

import csv
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.common.documents import read_document
from tilewright.energy.events import EVENTS
from tilewright.sweep import Database
from tilewright.sweep.dispatch import Task
from tilewright.sweep.fronts import Row, hypervolume, pareto_front
from tilewright.sweep.ladder import FULL
from tilewright.sweep.metrics import Metrics
from tilewright.sweep.networks import Network
from tilewright.sweep.options import SweepOptions
from tilewright.sweep.rungs import RUNGS
from tilewright.sweep.runner import Sweep
from tilewright.sweep.search import search
from tilewright.sweep.space import Point, Space, parse_space

SPACE = Path(__file__).with_name("space.toml")
DATA = Path(__file__).with_name("truth.csv")
#: Columns after the number of the point in the grid and the network's place: cycles by rung, bytes at least, and what
#: full effort gave.
COLUMNS = (*RUNGS, "least_bytes", "cycles", "dram_read_bytes", "dram_written_bytes", "npu_macs", "macs")


@dataclass
class Searched:
    """A search of the space.

    Attributes:
        shares: of the truth's hypervolume, after every point at full effort.
        points: of the sweep, with states.
    """

    shares: list[float]
    points: list[dict[str, Any]]

    def reaching(self, share: float) -> int | None:
        """Points at full effort until the share was reached, None if it never was."""
        return next((count for count, reached in enumerate(self.shares, 1) if reached >= share), None)


class Truth:
    """The truth about a space.

    Args:
        changes: of the space's table, such as other objectives; axes and networks must stay.

    Attributes:
        table: of the space.
        rows: the objectives of each point that keeps the constraints, which are about its fields, by its id.
    """

    def __init__(self, **changes: Any) -> None:
        self.table: dict[str, Any] = read_document(SPACE, toml=True) | changes
        space = self.space()
        self.networks = [Network(name, name.encode()) for name in space.models]
        self._results: dict[tuple[str, str], dict[str, int]] = {}
        with DATA.open(newline="", encoding="utf-8") as file:
            for number, network, *values in csv.reader(file):
                point = space.point(space.assignment(int(number)))
                key = point.id, self.networks[int(network)].digest
                self._results[key] = dict(zip(COLUMNS, map(int, values), strict=True))
        metrics = Metrics(space, self.networks, "model")
        self.rows: dict[str, Row] = {}
        for point in map(space.point, space.grid):
            if (point.id, self.networks[0].digest) not in self._results:  # a constraint on its fields is broken
                continue
            found = [self.result(point.id, n.digest, FULL) | {"network": n.digest} for n in self.networks]
            numbers = space.values(point) | metrics.of_results(point, found)
            self.rows[point.id] = tuple(objective.number(numbers) for objective in space.objectives)
        columns = list(zip(*self.rows.values()))
        self._low, self._high = tuple(map(min, columns)), tuple(map(max, columns))
        self._whole = hypervolume(set(self.rows.values()), self._low, self._high)

    def space(self, **search: Any) -> Space:
        """The space with another table `[search]`."""
        return parse_space(self.table | {"search": search})

    def result(self, point: str, network: str, rung: str) -> dict[str, Any]:
        """Returns the result of a worker for a network on a point."""
        row = self._results[point, network]
        if rung != FULL:
            on_cpu = f"{row['macs'] - row['npu_macs']} MACs"
            return {"cycles": row[rung], "dram_bytes": row["least_bytes"], "on_cpu": on_cpu}
        found = {name: value for name, value in row.items() if name not in (*RUNGS, "least_bytes")}
        utilization = row["bound"] / row["cycles"]
        return found | {"bound_cycles": row["bound"], "utilization": utilization, "events": str([0] * len(EVENTS))}

    def luck(self) -> float:
        """Returns the least that smaller scratchpads left of a program's cycles, where the CPU has the same to do."""
        frames: dict[str, list[Point]] = {}
        for point in map(self.space().point, self.space().grid):
            if point.id in self.rows:
                frames.setdefault(point.frame, []).append(point)
        pairs = [(a, b) for points in frames.values() for a in points for b in points if a.holds(b)]
        found = [
            (self._results[small.id, network.digest], self._results[large.id, network.digest])
            for large, small in pairs
            for network in self.networks
        ]
        return min(a["cycles"] / b["cycles"] for a, b in found if a["npu_macs"] == b["npu_macs"])

    def share(self, points: Iterable[str]) -> float:
        """The share of the truth's hypervolume that points reach, by id."""
        return hypervolume({self.rows[one] for one in points if one in self.rows}, self._low, self._high) / self._whole

    def searched(self, **table: Any) -> Searched:
        """Runs the sweep of the space with a table `[search]`, results from the truth."""
        replay = _Replay(self)
        space = self.space(**table)
        with tempfile.TemporaryDirectory() as folder, Database(folder) as database:
            sweep = Sweep(space, self.networks, database, lambda: replay, SweepOptions())  # type: ignore[arg-type, return-value]
            search(space, sweep.evaluate, sweep.sketching)
            points = database.sweep_points(sweep.id)
        shares: list[float] = []
        front: list[str] = []
        for point in replay.compiled:
            front.append(point)
            front = [front[n] for n in pareto_front([self.rows[one] for one in front])]
            shares.append(self.share(front))
        return Searched(shares, points)


@dataclass
class _Replay:
    """Does tasks by looking up the truth; `compiled` are the points with all networks at full effort, in order."""

    truth: Truth
    compiled: list[str] = field(default_factory=list)
    networks: Counter[str] = field(default_factory=Counter)

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, dict[str, Any]]]:
        for task in tasks:
            point, network = task.row["point"], task.row["network"]
            rung = task.row.get("rung", FULL)
            if rung == FULL:
                self.networks[point] += 1
                if self.networks[point] == len(self.truth.networks):
                    self.compiled.append(point)
            yield task, {"state": "done", **self.truth.result(point, network, rung)}

    def close(self) -> None: ...
