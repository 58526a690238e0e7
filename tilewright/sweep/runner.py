"""`run`: a space, networks and a folder to a database with every point's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from tilewright.common import native
from tilewright.fpga.bare import designs
from tilewright.isa.config import ConfigError
from tilewright.sweep.database import Database, key_of
from tilewright.sweep.dispatch import Dispatcher, Task
from tilewright.sweep.expressions import SpaceError
from tilewright.sweep.fronts import Row
from tilewright.sweep.ladder import FULL, LARGER, Candidate, Ladder, why_not
from tilewright.sweep.metrics import Metrics, dram_bytes
from tilewright.sweep.networks import Network
from tilewright.sweep.options import SweepOptions
from tilewright.sweep.outcome import Progress
from tilewright.sweep.rungs import MARGINS, RUNGS
from tilewright.sweep.search import Assignment, Evaluation, Sketch, planned
from tilewright.sweep.space import Point, Space
from tilewright.sweep.worker import sources_digest

#: A candidate, the rung it takes, and the networks that are looked at there.
_Step = tuple[Candidate, str, list[Network]]


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
        self.metrics = Metrics(space, networks, self.tool)
        self.unpruned = why_not(space, self.tool, self.metrics.known)
        self.ladder = Ladder(space, self.metrics)
        self.sources = sources_digest()
        self.area_sources = designs.sources_digest()
        self.number = self.done = self.pruned = self.impossible = self.sketched = self.computed = self.reused = 0
        self.best: float | None = None
        self.planned, self.jobs = planned(space), chosen.jobs or native.jobs()
        self.stage = ""  # what is looked at before the first point is chosen
        database.keep_networks(networks)
        digests = {network.name: network.digest for network in networks}
        version = f"{self.sources} {self.metrics.version}{'' if self.unpruned else ' pruned'}"
        self.id = database.begin_sweep(space.text, digests, self.effort, self.tool, version)

    # Tasks of a point.

    def tasks(self, point: Point, rung: str = FULL, networks: list[Network] | None = None) -> list[Task]:
        """Tasks of a point on a rung: one for each network or some of them, the largest first, and at full effort the
        synthesis."""
        config, timing = point.config.to_dict(), asdict(point.timing)
        found = []
        for network in sorted(networks or self.networks, key=lambda n: -len(n.content)):
            row = {"point": point.id, "network": network.digest, "sources": self.sources, "effort": self.effort}
            job = {"config": config, "timing": timing, "network": network.digest, "sources": self.sources,
                   "effort": self.effort, "small_weights": point.small_weights}  # fmt: skip
            parts = (point.id, network.digest, self.sources, self.effort)
            if rung == FULL:
                found.append(Task("cycles", key_of("cycles", *parts), job | {"kind": "cycles"}, row))
            else:
                kind = {"kind": "rung", "rung": rung}
                margins = () if rung == RUNGS[0] else MARGINS
                found.append(Task("rung", key_of(rung, *margins, *parts), job | kind, row | {"rung": rung}))
        if rung == FULL and self.tool in ("yosys", "nextpnr"):
            fingerprint = point.config.fingerprint
            key = key_of("synthesis", fingerprint, self.tool, self.space.family, self.area_sources)
            row = {"fingerprint": fingerprint, "tool": self.tool, "family": self.space.family,
                   "sources": self.area_sources}  # fmt: skip
            job = {"kind": "synthesis", "config": config, "tool": self.tool, "family": self.space.family}
            found.append(Task("synthesis", key, job, row))
        return found

    def keep(self, task: Task, result: dict[str, Any]) -> None:
        """Commits the result of a task."""
        self.database.keep(task.kind, task.key, task.row | result)

    def found(self, task: Task) -> dict[str, Any] | None:
        """Returns the result of a task that need not be done again, None if there is none."""
        found = self.database.find(task.kind, task.key)
        return None if found is not None and found["state"] == "failed" and self.retry_failed else found

    # Evaluation of points.

    def evaluate(self, assignments: list[Assignment]) -> list[Evaluation]:
        """Looks at points: finds or computes their results, rung by rung, and commits their state."""
        evaluated: dict[int, Evaluation] = {}
        places: dict[tuple[str, int | None], list[int]] = {}
        left: list[Candidate] = []
        first = self.number
        self.number += len(assignments)
        for index, assignment in enumerate(assignments):
            point, early = self._before(first + index, assignment)
            if point is None or early is not None:
                evaluated[index] = early or Evaluation(counts=False)
                continue
            places.setdefault(point.key, []).append(index)
            if len(places[point.key]) == 1:
                unpruned = bool(self.unpruned)
                left.append(Candidate(first + index, point, RUNGS[-1] if unpruned else "", at_once=unpruned))

        def settle(one: Candidate, state: str, outcome: Evaluation, reason: str | None = None) -> None:
            one.settled = state
            for index in places[one.point.key]:
                self.done += state != "pruned"
                self.pruned += state == "pruned"
                evaluated[index] = outcome
                self.database.keep_sweep_point(
                    self.id, first + index, assignments[index], state, point=one.point.id, reason=reason,
                    metrics=one.metrics or None,
                )  # fmt: skip

        def prune(one: Candidate, where: str, row: Row, winner: Candidate | None) -> None:
            if winner is not None:
                settle(one, "pruned", Evaluation(True, row), f"{where}: in nothing better than point {winner.number}")

        self.ladder.begin(left)
        while left:
            learned = []
            steps = [(one, *self.ladder.step(one)) for one in self.ladder.climbing(left)]
            for one in [] if steps else left:
                prune(one, LARGER, one.covered, self.ladder.first(one.covered))
            risen = [one for one, rung, _ in steps if rung != RUNGS[0]]
            for one, rung, networks in self._compute(steps):
                if not self.ladder.ends(one):
                    self._lift(one, rung, networks, settle)
                elif self._finish(one, settle):
                    learned.append(one)
            for one in learned:
                self.ladder.learn(one)
            for one in sorted(left, key=lambda one: (-sum(one.point.room), one.number)):  # larger scratchpads first
                if one.row and not one.settled:
                    prune(one, one.where, one.row, self.ladder.winner(one))
                if one.settled or one in risen:
                    self.ladder.tell(one)
            left = [one for one in left if not one.settled]
            self.report()
        return [evaluated[index] for index in range(len(assignments))]

    def _compute(self, climbing: list[_Step]) -> Iterator[_Step]:
        """Yields steps as soon as the database has all results of them."""
        missing: dict[int, set[str]] = {}
        owners: dict[str, list[_Step]] = {}
        new: list[Task] = []
        for step in climbing:
            one, rung, networks = step
            missing[one.number] = set()
            for task in self.tasks(one.point, rung, networks):
                if self.found(task) is not None:
                    self.reused += 1
                    continue
                missing[one.number].add(task.key)
                if task.key not in owners:
                    new.append(task)
                owners.setdefault(task.key, []).append(step)
        yield from (step for step in climbing if not missing[step[0].number])
        for task, result in self.dispatch(new):
            self.computed += 1
            self.keep(task, result)
            for step in owners[task.key]:
                left = missing[step[0].number]
                left.discard(task.key)
                if not left:
                    yield step
            self.report()

    def dispatch(self, tasks: list[Task]) -> Iterator[tuple[Task, dict[str, Any]]]:
        """Yields tasks with their results as they come; the cluster is started for the first one."""
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

    def report(self) -> None:
        """Tells how far the sweep is."""
        left = max(0, self.planned - self.done - self.pruned - self.impossible)
        found = self.done, self.pruned, left, self.computed, self.best, self.ladder.hypervolume()
        self.progress(Progress(*found, self.stage))

    def _before(self, number: int, assignment: Assignment) -> tuple[Point | None, Evaluation | None]:
        """The point of an assignment, with its evaluation if that is known without results."""
        keep = self.database.keep_sweep_point
        point, reason = self.possible(assignment)
        if point is not None:
            self.database.keep_point(point)
        if not reason:
            assert point is not None
            keep(self.id, number, assignment, "planned", point=point.id)
            return point, None
        state, found = ("invalid", None) if point is None else ("infeasible", point.id)
        keep(self.id, number, assignment, state, point=found, reason=reason)
        self.impossible += self.space.method == "grid"  # where an impossible point is not replaced by another
        return point, Evaluation(counts=False)

    def possible(self, assignment: Assignment) -> tuple[Point | None, str]:
        """The point of an assignment, None if there is no such machine, and why it need not be looked at, "" if so."""
        try:
            point = self.space.point(assignment)
        except ConfigError as error:
            return None, str(error)
        early = [constraint for constraint in self.space.constraints if constraint.names <= self.metrics.known]
        values = self.metrics.before_results(point) if early else {}
        broken = next((constraint for constraint in early if constraint.violation(values)), None)
        return point, "" if broken is None else f"constraint {broken.text!r}"

    @property
    def sketching(self) -> Sketch | None:
        """`sketch`, None where it says nothing or is not wanted."""
        return self.sketch if self.space.prune and any(self.ladder.sketched) else None

    def sketch(self, assignments: list[Assignment], rung: str) -> list[Evaluation]:
        """Says what points come to by a rung, without making them points of the sweep."""
        found: dict[int, Evaluation] = {}
        looked: list[_Step] = []
        for index, assignment in enumerate(assignments):
            point, reason = self.possible(assignment)
            if point is None or reason:
                found[index] = Evaluation(counts=False)
            else:
                self.database.keep_point(point)
                looked.append((Candidate(index, point), rung, self.networks))
        for one, *_ in self._compute(looked):
            self.sketched += 1
            self.stage = f"choosing the first points by the {rung}: {self.sketched:,} looked at"
            try:
                for step in dict.fromkeys((RUNGS[0], rung)):  # no rung says less than the bound
                    found[one.number] = self._sketched(one, step)
            except SpaceError:
                found[one.number] = Evaluation(counts=True)
        self.stage = ""
        return [found[index] for index in range(len(assignments))]

    def _results(
        self, one: Candidate, rung: str, networks: list[Network] | None = None
    ) -> tuple[list[dict[str, Any]], str]:
        """Results of a candidate on a rung for some networks or all, and what failed there."""
        found = [self.database.find(task.kind, task.key) for task in self.tasks(one.point, rung, networks)]
        rows = [row for row in found if row is not None]
        names = {network.digest: network.name for network in self.networks}
        failed = [row for row in rows if row["state"] == "failed"]
        return rows, "; ".join(f"{names.get(row.get('network', ''), self.tool)}: {row['error']}" for row in failed)

    def _sketched(self, one: Candidate, rung: str) -> Evaluation:
        """Returns a candidate's values by this rung and earlier ones. Raises `SpaceError` where something failed."""
        rows, error = self._results(one, rung)
        if error:
            raise SpaceError(error)
        by_digest = {row["network"]: row for row in rows}
        return self.ladder.sketch(one, {n.name: by_digest[n.digest] for n in self.networks})

    def _lift(self, one: Candidate, rung: str, networks: list[Network], settle: Callable[..., None]) -> None:
        """Puts a candidate on a rung, or straight below full effort, which says what is wrong with it."""
        rows, error = self._results(one, rung, networks)
        try:
            if error:
                raise SpaceError(error)
            by_network = {row["network"]: row | {"dram_bytes": dram_bytes(row)} for row in rows}
            broken = self.ladder.lift(one, rung, {n.name: by_network[n.digest] for n in networks})
        except SpaceError:
            one.rung, one.at_once, one.row, one.metrics = RUNGS[-1], True, (), {}
            return
        if broken is not None:
            violations = (broken.violation(self.metrics.before_results(one.point) | one.metrics),)
            one.metrics = {}
            settle(
                one, "infeasible", Evaluation(True, one.row, violations), f"constraint {broken.text!r} by the {rung}"
            )

    def _finish(self, one: Candidate, settle: Callable[..., None]) -> bool:
        """Commits the state of a candidate whose results are all there. Returns True if others can lose to it."""
        rows, error = self._results(one, FULL)
        one.metrics = {}
        try:
            if error:
                raise SpaceError(error)
            one.metrics = self.metrics.of_results(one.point, rows)
            values = self.space.values(one.point) | one.metrics
            violations = tuple(constraint.violation(values) for constraint in self.space.constraints)
            one.row = tuple(objective.number(values) for objective in self.space.objectives)
        except SpaceError as failure:
            one.on_cpu = {}  # so that it says nothing of others
            settle(one, "failed", Evaluation(counts=True), str(failure))
            return False
        by_network = {row["network"]: row | {"dram_bytes": dram_bytes(row)} for row in rows if "network" in row}
        one.learn({n.name: by_network[n.digest] for n in self.networks})
        one.exact = len(self.networks)
        one.metrics |= {f"objective{n}": value for n, value in enumerate(one.row)}
        broken = [c.text for c, v in zip(self.space.constraints, violations) if v]
        outcome = Evaluation(counts=True, objectives=one.row, violations=violations)
        settle(one, *(("infeasible", outcome, f"constraint {broken[0]!r}") if broken else ("done", outcome)))
        if not broken and (self.best is None or one.row[0] < self.best):
            self.best = one.row[0]
        return not broken
