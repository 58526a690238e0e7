"""Data of a sweep's report, read from its database."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.common.documents import parse_document
from tilewright.common.errors import TilewrightError
from tilewright.compiler.options import MAX_EFFORT
from tilewright.errors import UsageError
from tilewright.sweep.database import Database
from tilewright.sweep.expressions import SpaceError
from tilewright.sweep.fronts import pareto_front
from tilewright.sweep.space import TOOLS, Point, Space, parse_space


@dataclass(frozen=True)
class Quantity:
    """A number every point has.

    Attributes:
        key: of the point's metrics.
        label: for axes and headings, with unit.
    """

    key: str
    label: str


@dataclass
class SweepData:
    """A sweep with its points.

    Attributes:
        row: of the table `sweep`.
        space: what was swept.
        networks: digest by name.
        points: rows of `Database.sweep_points` with metrics ("done", "infeasible"), in order.
        rest: the other rows (invalid, failed, still planned, or infeasible by their size alone).
        results: by point and network digest, rows of the table `result`.
        front: numbers of the points that no other feasible one beats in every objective, by the first.
    """

    row: dict[str, Any]
    space: Space
    networks: dict[str, str]
    points: list[dict[str, Any]]
    rest: list[dict[str, Any]]
    results: dict[tuple[str, str], dict[str, Any]]
    front: list[int]

    @property
    def feasible(self) -> list[dict[str, Any]]:
        return [p for p in self.points if p["state"] == "done"]

    @property
    def varied(self) -> list[str]:
        """Axes with more than one value among the points."""
        names = [axis.field for axis in self.space.axes]
        return [n for n in names if len({p["assignment"][n] for p in self.points}) > 1]

    @property
    def latency(self) -> Quantity:
        """Time where the clock is known for all points, else cycles."""
        if self.points and all("milliseconds" in p["metrics"] for p in self.points):
            return Quantity("milliseconds", "time, ms")
        return Quantity("cycles", "cycles")

    @property
    def quantities(self) -> list[Quantity]:
        """Quantities that fronts are drawn over: latency, area, energy, bytes moved, on-chip memory."""
        able = [
            self.latency,
            Quantity("lut", "LUT"),
            Quantity("microjoules", "energy, µJ"),
            Quantity("dram_bytes", "bytes to and from memory"),
            Quantity("scratchpad_bytes", "scratchpad bytes"),
        ]
        return [q for q in able if all(q.key in p["metrics"] for p in self.points)]

    @property
    def changing(self) -> list[Quantity]:
        """Returns the quantities that differ between points: the others have no front."""
        return [q for q in self.quantities if len({p["metrics"][q.key] for p in self.points}) > 1]

    def point(self, number: int) -> dict[str, Any]:
        """Raises `UsageError` for a number that is not there or has no results."""
        for row in self.points:
            if row["number"] == number:
                return row
        have = ", ".join(str(p["number"]) for p in self.points[:10]) + (", ..." if len(self.points) > 10 else "")
        raise UsageError(f"point {number} has no results in this sweep; those that have: {have}")

    def machine(self, number: int) -> Point:
        """Configuration and memory of a point."""
        return self.space.point(self.point(number)["assignment"])

    def front_over(self, x: str, y: str) -> list[int]:
        """Numbers of the feasible points that no other dominates in both quantities, sorted by the first."""
        points = self.feasible
        rows: list[tuple[float, ...]] = [(p["metrics"][x], p["metrics"][y]) for p in points]
        chosen = sorted(pareto_front(rows), key=lambda n: rows[n])
        return [points[n]["number"] for n in chosen]


def choose(database: Database, sweep: str | None = None) -> dict[str, Any]:
    """The row of the last sweep of a database, or of the one whose id begins with `sweep`.

    Raises:
        UsageError: there is none.
    """
    rows = database.query("select * from sweep order by started, rowid")
    if not rows:
        raise UsageError(f"{database.path} has no sweep yet; `tilewright sweep` makes one")
    if sweep is not None:
        rows = [row for row in rows if row["id"].startswith(sweep)]
        if not rows:
            known = ", ".join(r["id"] for r in database.query("select id from sweep"))
            raise UsageError(f"no sweep {sweep!r} in {database.path}; there is {known}")
    return rows[-1]


def load(database: Database, sweep: str | None = None) -> SweepData:
    """The last sweep of a database, or the one whose id begins with `sweep`.

    Raises:
        UsageError: there is none, or none of its points has results.
    """
    row = choose(database, sweep)
    networks, space = swept(database, row)
    points = database.sweep_points(row["id"])
    measured = [p for p in points if p["metrics"] and p["state"] in ("done", "infeasible")]
    _check(database, space, measured)
    if not measured:
        states = ", ".join(f"{count} {state}" for state, count in Counter(p["state"] for p in points).items())
        raise UsageError(
            f"no point of sweep {row['id']} in {database.path} has results: {states or 'none was looked at yet'}"
        )
    for p in measured:
        if "microseconds" in p["metrics"]:
            p["metrics"]["milliseconds"] = p["metrics"]["microseconds"] / 1e3
    numbers = {p["number"] for p in measured}
    found = database.query("select * from result where state = 'done' and effort = ? order by finished", row["effort"])
    for result in found:
        for name, value in result.items():
            fits = isinstance(value, str | None if name in _TEXTS else int | float | None)
            if not fits or (value is None and name in _SHOWN):
                raise database.damaged(f"result {result['key']!r}: {name} is {value!r}")
    results = {(r["point"], r["network"]): r for r in found}
    data = SweepData(row, space, networks, measured, [p for p in points if p["number"] not in numbers], results, [])
    data.front = front_of(space, data.feasible)
    return data


#: No quantity of a network on a machine is larger, and larger ones cannot be drawn.
_MOST = 1e18
_SHOWN = ("cycles", "utilization", "dram_read_bytes", "dram_written_bytes", "npu_mac_fraction")
_TEXTS = ("key", "point", "network", "sources", "state", "error", "finished", "events")


def front_of(space: Space, done: list[dict[str, Any]]) -> list[int]:
    """Numbers of the points that no other one beats in every objective, by the first."""
    objectives = range(len(space.objectives))
    order = pareto_front([tuple(p["metrics"][f"objective{n}"] for n in objectives) for p in done])
    front = sorted((done[n] for n in order), key=lambda p: p["metrics"]["objective0"])
    return [p["number"] for p in front]


def swept(database: Database, row: dict[str, Any]) -> tuple[dict[str, str], Space]:
    """Networks and space of a sweep. Raises `UsageError` for a damaged row."""
    where = f"sweep {row['id']!r}"
    for name in ("id", "space", "networks", "tool", "started"):
        database.checked(row, name, str, where)
    if (
        not isinstance(row["finished"], str | None)
        or row["tool"] not in TOOLS
        or row["effort"] not in range(MAX_EFFORT + 1)
    ):
        raise database.damaged(f"{where}: tool, effort or finished")
    networks: dict[str, str] = database.table(row["networks"], str, f"{where}: networks")
    try:
        table = parse_document(row["space"], toml=False)
        return networks, parse_space(table, networks)
    except (ValueError, SpaceError) as error:
        raise database.damaged(f"{where}: space: {error}") from None


def _check(database: Database, space: Space, points: list[dict[str, Any]]) -> None:
    """Raises `UsageError` for points that are none of the space, or lack what each has."""
    fields = {axis.field for axis in space.axes}
    wanted = {"cycles", "utilization", *(f"objective{n}" for n in range(len(space.objectives)))}
    for p in points:
        where = f"sweep_point {p['number']}"
        if set(p["assignment"]) != fields:
            raise database.damaged(f"{where}: {p['assignment']} is no point of the space")
        if not all(abs(value) < _MOST for value in p["metrics"].values()):
            raise database.damaged(f"{where}: a metric is not below {_MOST:g}")
        missing = sorted(wanted - set(p["metrics"]))
        if missing:
            raise database.damaged(f"{where}: there is no {missing[0]} among the metrics")
        try:
            space.point(p["assignment"])
        except TilewrightError as error:
            raise database.damaged(f"{where}: {error}") from None


def fitted(data: SweepData, key: str) -> dict[str, float]:
    """Returns the effect of each varied axis on a quantity from its first value to its last, by the power law that
    fits all points best: for sweeps in which too few points differ in one axis only. Axes with values below 1 are left
    out."""
    axes = [axis for axis in data.varied if min(p["assignment"][axis] for p in data.points) >= 1]
    logs = np.log([[p["assignment"][axis] for axis in axes] for p in data.points]).reshape(len(data.points), len(axes))
    quantity = np.log([max(p["metrics"][key], 1e-12) for p in data.points])
    spread = logs - logs.mean(axis=0)
    slopes = np.linalg.lstsq(spread, quantity - quantity.mean(), rcond=None)[0]
    if len(data.points) <= len(axes) or np.linalg.matrix_rank(spread) < len(axes):
        return {}
    return dict(zip(axes, np.exp(slopes * np.ptp(logs, axis=0)).tolist()))


@dataclass(frozen=True)
class Effect:
    """The effect of an axis on a quantity, all else equal.

    Attributes:
        values: of the axis, in order.
        low, middle, high: of the quantity at each value over that at the first value: least, geometric mean, most,
            over all points that differ in this axis only; nan where there are none.
        pairs: such points, per value.
    """

    values: list[int]
    low: list[float]
    middle: list[float]
    high: list[float]
    pairs: list[int]


def effect(data: SweepData, axis: str, key: str) -> Effect:
    """Ratios are taken between neighbouring values and multiplied up, so that points missing at one value still count
    at others."""
    values = sorted({p["assignment"][axis] for p in data.points})
    groups: dict[tuple[tuple[str, int], ...], dict[int, float]] = {}
    for p in data.points:
        rest = tuple(sorted((k, v) for k, v in p["assignment"].items() if k != axis))
        groups.setdefault(rest, {})[p["assignment"][axis]] = max(p["metrics"][key], 1e-12)
    low, middle, high, pairs = [1.0], [1.0], [1.0], [len(groups)]
    for before, after in itertools.pairwise(values):
        ratios = np.array([g[after] / g[before] for g in groups.values() if before in g and after in g])
        pairs.append(len(ratios))
        base = middle[-1]
        steps = (ratios.min(), np.exp(np.log(ratios).mean()), ratios.max()) if len(ratios) else (np.nan,) * 3
        for series, step in zip((low, middle, high), steps):
            series.append(base * float(step))
    return Effect(values, low, middle, high, pairs)
