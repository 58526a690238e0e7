"""`run`: a space, networks and a folder to a database with every point's results."""

from __future__ import annotations

import contextlib
import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.common import native
from tilewright.common.options import collect, keywords
from tilewright.fpga import area, fmax
from tilewright.fpga.bare import designs, resources
from tilewright.isa.config import ConfigError
from tilewright.runtime.energy import meter
from tilewright.sweep.boards import CAPACITY
from tilewright.sweep.database import Database, key_of
from tilewright.sweep.dispatch import Dispatcher, Task
from tilewright.sweep.expressions import SpaceError
from tilewright.sweep.networks import Network
from tilewright.sweep.options import SweepOptions
from tilewright.sweep.outcome import Outcome, Progress
from tilewright.sweep.search import Assignment, Evaluation, pareto_front, planned, search
from tilewright.sweep.space import (
    AREA,
    CONFIG_FIELDS,
    DERIVED,
    ENERGIES,
    MEMORY_FIELDS,
    NETWORK_TIME,
    PER_NETWORK,
    TIMES,
    Point,
    Space,
    network_key,
)
from tilewright.sweep.worker import sources_digest


class Sweep:
    """One run of a sweep; see `run`."""

    def __init__(
        self,
        space: Space,
        networks: list[Network],
        database: Database,
        dispatcher: Callable[[], Dispatcher],
        options: SweepOptions | None = None,
    ) -> None:
        chosen = options or SweepOptions()
        self.space, self.networks, self.database = space, networks, database
        self.tool, self.effort, self.retry_failed = chosen.synth, chosen.effort, chosen.retry_failed
        self.progress = chosen.progress
        self._make = dispatcher
        self._dispatcher: Dispatcher | None = None
        self.known = _names_before_results(space, self.tool)
        self.sources = sources_digest()
        resources.family_named(space.family)
        self.area_sources = designs.sources_digest()
        self.area_model = area.load(space.family) if self.tool == "model" else None
        self.clock_model = fmax.load(space.family) if space.clock_model and self.tool != "nextpnr" else None
        self.energy_model = meter().load()
        self.number = self.done = self.computed = self.reused = 0
        self.best: float | None = None
        self.states: dict[str, Evaluation] = {}  # of points by id
        database.keep_networks(networks)
        digests = {network.name: network.digest for network in networks}
        model = key_of(self.area_model.coefficients) if self.area_model is not None else self.area_sources
        if self.clock_model is not None:
            model = key_of(model, self.clock_model.coefficients, self.clock_model.routed)
        model = key_of(model, self.energy_model.coefficients)
        self.id = database.begin_sweep(space.text, digests, self.effort, self.tool, f"{self.sources} {model}")

    # Tasks of a point.

    def tasks(self, point: Point) -> list[Task]:
        """Tasks of a point: cycles of each network, the largest first, then synthesis."""
        config, timing = point.config.to_dict(), asdict(point.timing)
        found = []
        job: dict[str, Any]
        for network in sorted(self.networks, key=lambda n: -len(n.content)):
            key = key_of("cycles", point.id, network.digest, self.sources, self.effort)
            job = {"kind": "cycles", "config": config, "timing": timing, "network": network.digest,
                   "sources": self.sources, "effort": self.effort}  # fmt: skip
            found.append(Task("cycles", key, job))
        if self.tool in ("yosys", "nextpnr"):
            fingerprint = point.config.fingerprint
            key = key_of("synthesis", fingerprint, self.tool, self.space.family, self.area_sources)
            job = {"kind": "synthesis", "config": config, "tool": self.tool, "family": self.space.family}
            found.append(Task("synthesis", key, job))
        return found

    def _keep(self, task: Task, result: dict[str, Any], point: Point) -> None:
        row: dict[str, Any]
        if task.kind == "synthesis":
            row = {"fingerprint": point.config.fingerprint, "tool": self.tool, "family": self.space.family,
                   "sources": self.area_sources}  # fmt: skip
        else:
            row = {"point": point.id, "network": task.job["network"], "sources": self.sources}
            row["effort"] = self.effort
        self.database.keep(task.kind, task.key, row | result)

    def _found(self, task: Task) -> dict[str, Any] | None:
        found = self.database.find(task.kind, task.key)
        return None if found is not None and found["state"] == "failed" and self.retry_failed else found

    # Evaluation of points.

    def evaluate(self, assignments: list[Assignment]) -> list[Evaluation]:
        """Looks at points: finds or computes their results and commits their state."""
        points: list[Point | None] = []
        evaluated: dict[int, Evaluation] = {}
        first = self.number
        self.number += len(assignments)
        for index, assignment in enumerate(assignments):
            point, early = self._before(first + index, assignment)
            points.append(point)
            if early is not None:
                evaluated[index] = early
        wanted: dict[str, list[int]] = {}
        for index, point in enumerate(points):
            if point is not None and index not in evaluated:
                wanted.setdefault(point.id, []).append(index)
        missing: dict[str, set[str]] = {}
        owners: dict[str, list[Point]] = {}
        new: list[Task] = []
        for indices in wanted.values():
            point = points[indices[0]]
            assert point is not None
            missing[point.id] = set()
            for task in self.tasks(point):
                if self._found(task) is not None:
                    self.reused += 1
                    continue
                missing[point.id].add(task.key)
                if task.key not in owners:
                    new.append(task)
                owners.setdefault(task.key, []).append(point)

        def finish(point: Point) -> None:
            for index in wanted[point.id]:
                evaluated[index] = self._after(first + index, assignments[index], point)

        for indices in wanted.values():
            point = points[indices[0]]
            assert point is not None
            if not missing[point.id]:
                finish(point)
        for task, result in self._dispatch(new):
            self.computed += 1
            self._keep(task, result, owners[task.key][0])
            for point in owners[task.key]:
                missing[point.id].discard(task.key)
                if not missing[point.id]:
                    finish(point)
            self._report()
        return [evaluated[index] for index in range(len(assignments))]

    def _dispatch(self, tasks: list[Task]) -> Iterator[tuple[Task, dict[str, Any]]]:
        if not tasks:
            return
        if self._dispatcher is None:
            self._dispatcher = self._make()
        yield from self._dispatcher.run(tasks)

    def close(self) -> None:
        """Ends the cluster."""
        if self._dispatcher is not None:
            self._dispatcher.close()
            self._dispatcher = None

    def _report(self) -> None:
        self.progress(Progress(self.done, planned(self.space), self.computed, self.best))

    def _before(self, number: int, assignment: Assignment) -> tuple[Point | None, Evaluation | None]:
        """The point of an assignment, with its evaluation if that is known without results."""
        keep = self.database.keep_sweep_point
        try:
            point = self.space.point(assignment)
        except ConfigError as error:
            keep(self.id, number, assignment, "invalid", reason=str(error))
            return None, Evaluation(counts=False)
        self.database.keep_point(point)
        early = [constraint for constraint in self.space.constraints if constraint.names <= self.known]
        values = self._static_values(point) if any(c.names & {*AREA} for c in early) else self.space.values(point)
        for constraint in early:
            if constraint.violation(values):
                reason = f"constraint {constraint.text!r}"
                keep(self.id, number, assignment, "infeasible", point=point.id, reason=reason)
                return point, Evaluation(counts=False)
        keep(self.id, number, assignment, "planned", point=point.id)
        return point, None

    def _after(self, number: int, assignment: Assignment, point: Point) -> Evaluation:
        """Commits and returns the evaluation of a point whose results are all there."""
        self.done += 1
        keep = self.database.keep_sweep_point
        results = {task.key: self.database.find(task.kind, task.key) for task in self.tasks(point)}
        failed = [r for r in results.values() if r is None or r["state"] == "failed"]
        if failed:
            names = {network.digest: network.name for network in self.networks}
            reasons = [f"{names.get(r.get('network', ''), self.tool)}: {r['error']}" for r in failed if r is not None]
            keep(self.id, number, assignment, "failed", point=point.id, reason="; ".join(reasons))
            return Evaluation(counts=True)
        found = [r for r in results.values() if r is not None]
        metrics: dict[str, float] = {}
        try:
            metrics = self.metrics(point, found)
            values = self.space.values(point) | metrics
            violations = tuple(constraint.violation(values) for constraint in self.space.constraints)
            objectives = tuple(objective.number(values) for objective in self.space.objectives)
        except SpaceError as error:
            keep(self.id, number, assignment, "failed", point=point.id, reason=str(error), metrics=metrics)
            return Evaluation(counts=True)
        broken = [c.text for c, v in zip(self.space.constraints, violations) if v]
        state, reason = ("infeasible", f"constraint {broken[0]!r}") if broken else ("done", None)
        metrics |= {f"objective{n}": value for n, value in enumerate(objectives)}
        keep(self.id, number, assignment, state, point=point.id, reason=reason, metrics=metrics)
        if not broken and (self.best is None or objectives[0] < self.best):
            self.best = objectives[0]
        return Evaluation(counts=True, objectives=objectives, violations=violations)

    def _static_values(self, point: Point) -> dict[str, float]:
        values = self.space.values(point)
        if self.area_model is not None:
            area = self.area_model.estimate(point.config)
            values |= {name: getattr(area, name) for name in AREA}
        return values

    def _clock_mhz(self, point: Point, values: dict[str, float]) -> float | None:
        """The clock of a point with these values. Raises `SpaceError` where an expression gives none."""
        if self.clock_model is not None:
            return self.clock_model.mhz(point.config)
        if self.space.clock is None:
            return values.get("fmax_mhz")
        clock = float(self.space.clock.value(values))
        if not 0 < clock < math.inf:
            raise SpaceError(f"{self.space.clock.where}: {self.space.clock.text!r} gives {clock:g} MHz")
        return clock

    def metrics(self, point: Point, results: list[dict[str, Any]]) -> dict[str, float]:
        """Sizes, area and the networks' results of a point, weighted; see docs/sweeps.md for each.

        Args:
            results: rows of the database: one per network, and of the synthesis.
        """
        values: dict[str, float] = {"scratchpad_bytes": point.config.scratchpad_bytes}
        static = self._static_values(point)
        values |= {name: static[name] for name in AREA if name in static}
        for row in results:
            if "lut" in row:
                values |= {name: row[name] for name in (*AREA, "fmax_mhz") if row[name] is not None}
        by_network = {row["network"]: row | self.energy(point, row) for row in results if "network" in row}
        weights = self.space.weights
        rows = [(weights[network.name], by_network[network.digest]) for network in self.networks]
        total = sum(weight for weight, _ in rows) or 1.0
        cycles = sum(weight * row["cycles"] for weight, row in rows)
        logs = sum(weight * math.log(max(1, row["cycles"])) for weight, row in rows)
        macs = sum(weight * row["macs"] for weight, row in rows)
        values |= {
            "cycles": cycles,
            "geomean_cycles": math.exp(logs / total),
            "utilization": sum(weight * row["bound_cycles"] for weight, row in rows) / cycles if cycles else 0.0,
            "dram_bytes": sum(w * (row["dram_read_bytes"] + row["dram_written_bytes"]) for w, row in rows),
            "npu_mac_fraction": sum(weight * row["npu_macs"] for weight, row in rows) / macs if macs else 0.0,
            **{name: sum(weight * row[name] for weight, row in rows) for name in ENERGIES},
        }
        if (clock := self._clock_mhz(point, self.space.values(point) | values)) is not None:
            values |= {"clock_mhz": clock, "microseconds": cycles / clock}
            values["geomean_microseconds"] = values["geomean_cycles"] / clock
        for network in self.networks:
            row = by_network[network.digest]
            row = row | {"dram_bytes": row["dram_read_bytes"] + row["dram_written_bytes"]}
            values |= {f"{name}_{network_key(network.name)}": row[name] for name in PER_NETWORK}
            if clock is not None:
                values[f"{NETWORK_TIME}_{network_key(network.name)}"] = row["cycles"] / clock
        return values

    def energy(self, point: Point, row: dict[str, Any]) -> dict[str, float]:
        """µJ of a network, from the events its result has. Raises `SpaceError` for a damaged result."""
        try:
            counts = np.array(json.loads(row["events"]), float)
        except (TypeError, ValueError):
            counts = np.zeros(0)
        events = len(meter().EVENTS)
        if counts.shape != (events,) or not np.isfinite(counts).all():
            raise SpaceError(f"result {row['key']!r}: events are {row['events']!r}, not {events} numbers")
        found = self.energy_model.energy(point.config, counts)
        return dict(zip(ENERGIES, (found.total / 1e6, found.chip / 1e6)))

    # Verification.

    def verify(self, count: int) -> list[dict[str, Any]]:
        """Cycles of up to `count` points, chosen at random, on the RTL: the network of the fewest cycles each."""
        candidates = [
            p for p in self.database.sweep_points(self.id) if p["state"] in ("done", "infeasible") and p["metrics"]
        ]
        chosen = random.Random(self.space.seed).sample(candidates, min(count, len(candidates)))
        tasks: dict[str, tuple[Task, Point]] = {}
        for row in chosen:
            point = self.space.point(row["assignment"])
            smallest = min(self.networks, key=lambda n: row["metrics"][f"cycles_{network_key(n.name)}"])
            task = next(t for t in self.tasks(point) if t.job.get("network") == smallest.digest)
            key = key_of("verify", task.key, self.area_sources)
            tasks[key] = Task("verify", key, task.job | {"kind": "verify"}), point
        new = [task for key, (task, _) in tasks.items() if self._found(task) is None]
        for task, result in self._dispatch(new):
            self._keep(task, result, tasks[task.key][1])
        found = [self.database.find("verify", key) for key in tasks]
        return [row for row in found if row is not None]


def _names_before_results(space: Space, tool: str) -> set[str]:
    """Names whose values are known before anything is computed. Raises `SpaceError` for names that never will be."""
    known = {*CONFIG_FIELDS, *MEMORY_FIELDS, *DERIVED, *CAPACITY}
    if tool == "model":
        known |= set(AREA)
    clocked = space.clock is not None or space.clock_model
    times = {*TIMES, *(f"{NETWORK_TIME}_{network_key(name)}" for name in space.weights)}
    for expression in (*space.constraints, *space.objectives):
        unknown = expression.names & ({"fmax_mhz"} if clocked else {"fmax_mhz", *times})
        if unknown and tool != "nextpnr":
            needed = "--synth nextpnr" if clocked else "--clock MHZ, clock_mhz in the space or --synth nextpnr"
            raise SpaceError(f"{expression.where}: {sorted(unknown)[0]} needs {needed}")
    return known


@keywords(SweepOptions)
def run(space: Space, networks: list[Network], folder: str | Path, **options: Any) -> Outcome:
    """Sweeps a space; what the folder's database has already is not computed again.

    Args:
        space: made for these networks.
        networks: each is compiled for every point.
        folder: of the database, made if missing.
        options: fields of `SweepOptions`.

    Raises:
        UsageError: a mistake in the arguments, or the scheduler is gone for good; the database is valid.
    """
    chosen = collect(SweepOptions, options, "run")
    folder = Path(folder)
    models = {network.digest: network.content for network in networks}
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(Database(folder))
        jobs = chosen.jobs or native.jobs()

        def dispatcher() -> Dispatcher:
            return Dispatcher(models, jobs, chosen.scheduler, folder / "workers.log")

        sweep = Sweep(space, networks, database, dispatcher, chosen)
        stack.callback(sweep.close)
        search(space, sweep.evaluate)
        verifications = sweep.verify(chosen.verify) if chosen.verify else []
        database.end_sweep(sweep.id)
        points = database.sweep_points(sweep.id)
        done = [p for p in points if p["state"] == "done"]
        rows = [tuple(p["metrics"][f"objective{n}"] for n in range(len(space.objectives))) for p in done]
        front = sorted((done[n] for n in pareto_front(rows)), key=lambda p: p["metrics"]["objective0"])
        return Outcome(
            sweep.id, points, front, sweep.computed, sweep.reused, verifications, sweep.area_model, sweep.clock_model,
            space, folder,
        )  # fmt: skip
