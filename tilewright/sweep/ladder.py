"""`Ladder`: which points of a sweep are worth the next rung, and which are left out because they lose.

A point climbs from rung to rung (`rungs`): each says what the networks take at least, so the objectives have values
that the point cannot beat. Only points climb that no other one beats with these values. The last rung is full effort,
which takes the networks one by one, the cheapest first: a point may turn out to lose before the others are compiled.
Behind it values are exact; whoever is no better than such a point in anything even with its own least values is pruned.
So the front is that of all points at full effort, for a part of the compilations. That is proven for the bound; the
other rungs leave a margin to what the search was seen to save.

Of two points that differ in scratchpads alone, the larger one runs every program of the smaller, in the same cycles. So
the smaller one waits for it, and takes at least as much but for luck of the search. Where it costs no less in anything
else, only neighbours of the front are compiled, in case of such luck.

Nothing depends on the order in which results arrive.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tilewright.sweep.expressions import Expression
from tilewright.sweep.fronts import MOST_AXES, Row, hypervolume, pareto_front
from tilewright.sweep.metrics import Metrics
from tilewright.sweep.networks import Network
from tilewright.sweep.rungs import LUCK, RUNGS
from tilewright.sweep.search import Evaluation
from tilewright.sweep.space import ENERGIES, NETWORK_TIME, TIMES, Point, Space, network_key

FULL = "full effort"
#: In place of a rung, where what a point takes at least rests on one with larger scratchpads.
LARGER = "larger scratchpads"
#: A result that is the same on all rungs.
_EXACT = "clock_mhz"


@dataclass(eq=False)
class Candidate:
    """A point on the ladder.

    Attributes:
        number: its first place in the sweep.
        point: configuration and memory.
        rung: the one it is on, "" before the first.
        exact: networks that are at full effort already, the cheapest first.
        at_once: all networks are taken to full effort together, because nothing can be told from some of them.
        floors: the least `cycles` and `dram_bytes`, by name of the network.
        on_cpu: what the networks leave to the CPU, by name; see `rungs`.
        end: none that began with it has larger scratchpads, or none has smaller ones, all else equal.
        heard: news of points that differ in scratchpads which it has taken in.
        covered: its objectives with the cycles of a larger one, where it needs more than luck to be on the front.
        larger: its least values rest on one of these.
        metrics: what is known of it; on a rung below full effort, no more than at full effort.
        row: its objectives, of these metrics.
        settled: its state, "" until that is final.
    """

    number: int
    point: Point
    rung: str = ""
    exact: int = 0
    at_once: bool = False
    floors: dict[str, dict[str, Any]] = field(default_factory=dict)
    on_cpu: dict[str, str] = field(default_factory=dict)
    end: bool = False
    heard: int = 0
    covered: Row = ()
    larger: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    row: Row = ()
    settled: str = ""

    @property
    def where(self) -> str:
        """The rung that its least values rest on."""
        if self.larger:
            return LARGER
        return self.rung if not self.exact else f"{FULL} of some networks"

    @property
    def next(self) -> str:
        """The rung above."""
        rungs = ["", *RUNGS, FULL]
        return rungs[rungs.index(self.rung) + 1]

    def learn(self, found: dict[str, dict[str, Any]]) -> None:
        """Takes in results of a rung, by name of the network."""
        before = self.floors
        self.floors = before | {
            name: {key: max(row[key], before.get(name, row)[key]) for key in ("cycles", "dram_bytes")}
            for name, row in found.items()
        }
        self.on_cpu |= {name: row["on_cpu"] for name, row in found.items() if "on_cpu" in row}
        self.larger = False

    def covers(self, other: Candidate) -> bool:
        """Returns True if this point runs all programs of another one, and both leave the same to the CPU."""
        return self.point.holds(other.point) and self.on_cpu == other.on_cpu != {}


class Ladder:
    """The points that were seen at full effort and kept all constraints, and what they say about others.

    Attributes:
        order: the networks, those first that are compiled in the least time.
        constraints: those that are broken for good if they are broken on any rung.
        sketched: for each objective, whether rungs below full effort give it a value.
    """

    def __init__(self, space: Space, metrics: Metrics) -> None:
        self.space, self.metrics = space, metrics
        floored = _floored(space)
        early = metrics.known | floored | {_EXACT}
        self.sketched = [objective.names <= early for objective in space.objectives]
        # A program of fewest cycles need not be one of fewest bytes.
        self._timed = all(objective.names <= metrics.known | _timed(space) for objective in space.objectives)
        self.constraints = [c for c in space.constraints if c.names <= early and c.bounded_by(floored)]
        self.order = sorted(metrics.networks, key=lambda n: len(n.content))
        self.known: list[Candidate] = []  # of the front
        # By `Point.frame`: those that began, and those that rose or were settled, in order.
        self._alike: defaultdict[str, list[Candidate]] = defaultdict(list)
        self._news: defaultdict[str, list[Candidate]] = defaultdict(list)
        self._visited: list[Candidate] = []  # of those that were known, whose neighbours may climb
        self.low: Row = ()
        self.high: Row = ()
        self._asked: tuple[frozenset[Row], Row, Row] | None = None
        self._volume = 0.0

    def step(self, candidate: Candidate) -> tuple[str, list[Network]]:
        """Returns the rung that a candidate takes next, and the networks that are looked at there."""
        rung, exact = candidate.next, candidate.exact
        return rung, self.order[exact : exact + 1] if rung == FULL and not candidate.at_once else self.order

    def ends(self, candidate: Candidate) -> bool:
        """Returns True if a candidate's next step is its last."""
        return candidate.next == FULL and (candidate.at_once or candidate.exact + 1 == len(self.order))

    def lift(self, candidate: Candidate, rung: str, found: dict[str, dict[str, Any]]) -> Expression | None:
        """Puts a candidate on a rung with the results there, by name of the network: of all, or of the next one at full
        effort. Returns a constraint that it breaks for good. Raises `SpaceError` where expressions have no value."""
        if rung == FULL:
            candidate.exact += len(found)
        else:
            candidate.rung = rung
        candidate.learn(found)
        return self._value(candidate)

    def _value(self, candidate: Candidate) -> Expression | None:
        """Gives a candidate the values that follow from its floors; returns as `lift`."""
        candidate.metrics, candidate.row, values = self._least(candidate.point, candidate.floors)
        self._widen(candidate.row)
        return next((c for c in self.constraints if c.violation(values)), None)

    def _least(self, point: Point, floors: dict[str, dict[str, Any]]) -> tuple[dict[str, float], Row, dict[str, float]]:
        """Returns the least objectives and values of a point, by the networks' least values."""
        values = self.metrics.before_results(point)
        found = self.metrics.floors(point, values, floors)
        values |= found
        return found, tuple(objective.number(values) for objective in self.space.objectives), values

    def sketch(self, candidate: Candidate, found: dict[str, dict[str, Any]]) -> Evaluation:
        """Returns a candidate's values for a search, from results on a rung by name of the network. Raises
        `SpaceError` where expressions have no value."""
        candidate.learn(found)
        values = self.metrics.before_results(candidate.point)
        values |= self.metrics.floors(candidate.point, values, candidate.floors)
        known = zip(self.space.objectives, self.sketched)
        row = tuple(objective.number(values) if sketched else 0.0 for objective, sketched in known)
        return Evaluation(True, row, tuple(c.violation(values) for c in self.constraints))

    def learn(self, candidate: Candidate) -> None:
        """Takes in a candidate whose `floors`, `metrics` and `row` are those of full effort."""
        candidate.rung = FULL
        self.known = self._leading([*self.known, candidate])
        self._widen(candidate.row)

    def begin(self, candidates: list[Candidate]) -> None:
        """Takes in candidates that are not on a rung yet."""
        for candidate in candidates:
            self._alike[candidate.point.frame].append(candidate)
        for candidate in candidates:
            alike = [other.point for other in self._alike[candidate.point.frame] if other is not candidate]
            held = any(other.holds(candidate.point) for other in alike)
            candidate.end = not held or not any(candidate.point.holds(other) for other in alike)

    def _between(self, candidate: Candidate) -> bool:
        """Puts a candidate on the first rung by two others that leave the same to the CPU, of larger and of smaller
        scratchpads: what fits these fits its own, and the larger one's bound holds for its programs too. Returns False
        where there are none."""
        alike = self._alike[candidate.point.frame]
        smaller = [other.on_cpu for other in alike if candidate.point.holds(other.point)]
        for larger in alike:
            if larger.rung == RUNGS[0] and larger.point.holds(candidate.point) and larger.on_cpu in smaller:
                candidate.rung, candidate.floors, candidate.on_cpu = larger.rung, dict(larger.floors), larger.on_cpu
                candidate.larger = True
                self._value(candidate)
                return True
        return False

    def climbing(self, left: list[Candidate]) -> list[Candidate]:
        """Returns the candidates that take the next rung: those that cannot be told to lose by what is known."""
        starting = [c for c in left if not c.row]
        if ends := [c for c in starting if c.end or c.at_once]:
            return ends
        if alone := [c for c in starting if not self._between(c)]:
            return alone
        if not (able := [c for c in left if not c.covered]):
            able = self._beside(left)
        frames = defaultdict[str, list[Candidate]](list)
        for candidate in able:
            frames[candidate.point.frame].append(candidate)
        largest = [c for c in able if not any(other.covers(c) for other in frames[c.point.frame])]
        return [c for c in self._leading([*self.known, *largest]) if c.rung != FULL]

    def _beside(self, left: list[Candidate]) -> list[Candidate]:
        """Returns the covered candidates that are neighbours of the front, which they are no more covered by."""
        for front in self.known:
            if front in self._visited or any(other.covers(front) for other in self.known):  # which is as good
                continue
            self._visited.append(front)
            for candidate in left:
                if front.covers(candidate) and self._neighbours(candidate.point, front.point):
                    candidate.covered = ()
        return [c for c in left if not c.covered]

    def tell(self, candidate: Candidate) -> None:
        """Has those with smaller scratchpads hear of a candidate that rose or was settled."""
        self._news[candidate.point.frame].append(candidate)

    def winner(self, candidate: Candidate) -> Candidate | None:
        """Returns the first known point that a candidate cannot beat in any objective, None if there is none.

        News of points with larger scratchpads raise what the candidate takes at least.
        """
        news = self._news[candidate.point.frame]
        larger_ones = [one for one in news[candidate.heard :] if one.covers(candidate)]
        candidate.heard = len(news)
        for larger in larger_ones:
            if self._timed and larger.settled in ("done", "pruned"):
                _, row, _ = self._least(candidate.point, larger.floors)
                candidate.covered = row if self.first(row) is not None else ()
            self._raise(candidate, larger)
        return self.first(candidate.row, but=candidate.row)

    def first(self, row: Row, but: Row = ()) -> Candidate | None:
        """Returns the first known point, but for those of one row, that objectives are in nothing better than."""
        better = (k for k in self.known if k.row != but and all(a <= b for a, b in zip(k.row, row)))
        return min(better, key=lambda k: k.number, default=None)

    def _neighbours(self, small: Point, large: Point) -> bool:
        """Returns True if no point has scratchpads between those of two."""
        return not any(large.holds(c.point) and c.point.holds(small) for c in self._alike[small.frame])

    def _raise(self, candidate: Candidate, larger: Candidate) -> None:
        """Raises what a candidate takes at least to what one with larger scratchpads does."""
        for place, network in enumerate(self.order):
            own, other = candidate.floors[network.name], larger.floors[network.name]
            least = math.floor(other["cycles"] * (LUCK if place < larger.exact else 1))
            if least > own["cycles"]:
                candidate.floors[network.name] = own | {"cycles": least}
                candidate.larger = True
        if candidate.larger:
            self._value(candidate)

    def _leading(self, candidates: list[Candidate]) -> list[Candidate]:
        """Returns the front of all candidates, in order of their numbers."""
        front = pareto_front([c.row for c in candidates])
        return sorted((candidates[n] for n in front), key=lambda c: c.number)

    def _widen(self, row: Row) -> None:
        self.low = tuple(map(min, self.low, row)) or row
        self.high = tuple(map(max, self.high, row)) or row

    def hypervolume(self) -> float | None:
        """Returns the share of the box of all values seen so far that known points win; None for many objectives."""
        if not self.known or len(self.space.objectives) > MOST_AXES:
            return None
        asked = frozenset(c.row for c in self.known), self.low, self.high
        if asked != self._asked:
            self._asked, self._volume = asked, hypervolume(*asked)
        return self._volume


def why_not(space: Space, tool: str, known: set[str]) -> str:
    """Returns why no point of a space can be pruned, "" if some may be.

    Args:
        tool: that counts the area.
        known: names whose values are known before anything is computed.
    """
    if not space.prune:
        return "the space says so"
    if tool != "model":
        return f"the area is counted by {tool}"
    floored = _floored(space)
    for objective in space.objectives:
        if unknown := sorted(objective.names - known - floored - {_EXACT}):
            return f"nothing is known of {unknown[0]} before a point is compiled"
        if not objective.grows(floored):
            return f"{objective.where}: {objective.text!r} may fall where cycles grow"
    return ""


def _floored(space: Space) -> set[str]:
    """Names of results whose least values the rungs know."""
    return {"dram_bytes", *ENERGIES, *_timed(space), *_of_each(space, "dram_bytes", *ENERGIES)} - {_EXACT}


def _timed(space: Space) -> set[str]:
    """Names of results that follow from cycles."""
    return {"cycles", "geomean_cycles", *TIMES, *_of_each(space, "cycles", NETWORK_TIME)}


def _of_each(space: Space, *keys: str) -> set[str]:
    """Names of results of single networks."""
    return {f"{key}_{network_key(name)}" for key in keys for name in space.weights}
