"""Local search over the schedules of an NPU step, by exact cycles or what they cost.

It starts from the best of the schedules that the compiler makes under several policies, and tries moves (see
`tilewright.compiler.npu.schedule.neighbours`) in the order of the gain a ranker expects. A move is first measured with
the layers around it alone; what gains there is measured with the whole step and taken if it gains there too. When no
move is left, the search goes on from the next schedule, then from random changes of the best one.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tilewright.compiler.npu.schedule.decisions import Decisions, decisions_of
from tilewright.compiler.npu.schedule.neighbours import Move, Neighbourhood
from tilewright.compiler.npu.schedule.problem import StepProblem
from tilewright.compiler.npu.schedule.search import Policy, make_schedule, policies
from tilewright.tuning.ranker import Ranker
from tilewright.tuning.trials import Evaluator, Span

#: Moves measured at once, per process.
_BATCH = 8
#: Share of the time that goes into the schedules to start from.
_POLICIES = 0.3
#: Random moves a restart makes.
_KICKS = 3
#: Schedules further than this from the best one are not worth a local search.
_NEAR = 1.06


@dataclass
class Tuned:
    """Result of the search for a faster schedule of one step.

    Attributes:
        default, best: decisions of the compiler, and the best ones.
        default_cost, cost: of the step alone, by its `StepProblem.measure`.
        tried: schedules measured.
        taken: kinds of the moves that led to the best one.
        interrupted: by the user; what had been found by then is there.
    """

    default: Decisions
    default_cost: float
    best: Decisions
    cost: float
    tried: int = 0
    taken: list[str] = field(default_factory=list)
    interrupted: bool = False


def tune_step(
    step: StepProblem,
    seconds: float,
    *,
    known: Decisions | None = None,
    jobs: int = 1,
    seed: int = 0,
    progress: Callable[[float, Tuned], None] = lambda done, tuned: None,
) -> Tuned:
    """Searches until the time is over.

    Args:
        known: decisions of an earlier search to go on from.
        jobs: processes.
        seed: of the random restarts.
        progress: called with the fraction of the time used and the best so far.
    """
    default = decisions_of(make_schedule(step, Policy()))
    evaluator = Evaluator(step, jobs)
    try:
        return _Search(step, evaluator, default, seconds, seed, progress).run(known)
    finally:
        evaluator.close()


class _Search:
    """A local search for the schedule of one step: what has been measured, and the best schedule so far."""

    def __init__(
        self,
        step: StepProblem,
        evaluator: Evaluator,
        default: Decisions,
        seconds: float,
        seed: int,
        progress: Callable[[float, Tuned], None],
    ) -> None:
        self.step, self.evaluator, self.progress = step, evaluator, progress
        self.near = Neighbourhood(step)
        self.ranker = Ranker(step.layers)
        self.random = random.Random(seed)
        self.started, self.seconds = time.monotonic(), seconds
        (cost,) = evaluator.costs([(default, None)])
        self.found = Tuned(default, cost, default, cost)

    @property
    def over(self) -> bool:
        return time.monotonic() - self.started >= self.seconds

    def run(self, known: Decisions | None) -> Tuned:
        try:
            for cost, start in self._starts(known):
                if self.over:
                    break
                if cost <= self.found.cost * _NEAR:
                    self._descend(start, cost)
        except KeyboardInterrupt:
            self.found.interrupted = True
        self.found.tried = self.evaluator.count
        return self.found

    def _starts(self, known: Decisions | None) -> Iterator[tuple[float, Decisions]]:
        """Start points of the search, with their cost. First come the known decisions and the policies, the best first;
        then random changes of the best one found, until they fail to fit."""
        starts = [self.found.default] + ([known] if known is not None else [])
        options = policies(3)[1:]
        jobs = self.evaluator.jobs
        while options and time.monotonic() - self.started < _POLICIES * self.seconds:
            now, options = options[:jobs], options[jobs:]
            starts += self.evaluator.defaults(now)
            self.evaluator.costs([(start, None) for start in starts])
            self._report()
        starts = list(dict.fromkeys(starts))
        ranked = sorted(zip(self.evaluator.costs([(s, None) for s in starts]), starts), key=lambda pair: pair[0])
        for cost, start in ranked[:1]:  # written down before the long part
            self._keep(start, cost, [])
        yield from ranked
        failed = 0
        while failed < 50:
            start, cost = self.found.best, self.found.cost
            for _ in range(_KICKS):
                moves = list(self.near.moves(start))
                after = self.random.choice(moves).decisions if moves else start
                (whole,) = self.evaluator.costs([(after, None)])
                failed = 0 if math.isfinite(whole) else failed + 1
                if math.isfinite(whole):
                    start, cost = after, whole
            yield cost, start

    def _descend(self, at: Decisions, cost: float) -> None:
        """Takes moves as long as one gains."""
        taken: list[str] = []
        self._keep(at, cost, taken)
        while not self.over:
            after, cost, kinds = self._improve(at, cost)
            if not kinds:
                return
            at, taken = after, [*taken, *kinds]
            self._keep(at, cost, taken)

    def _improve(self, at: Decisions, cost: float) -> tuple[Decisions, float, list[str]]:
        """Decisions after the first moves found to gain, in the order of the expected gain; their cost and kinds."""
        moves = list(self.near.moves(at))
        share = cost / max(1, len(self.step.layers))
        moves.sort(key=lambda m: -self.ranker.gain(m, share * (m.span[1] - m.span[0])))
        batch = _BATCH * self.evaluator.jobs
        while moves and not self.over:
            now, moves = moves[:batch], moves[batch:]
            windows = [_window(at, move) for move in now]
            questions = [(at, w) for w in windows] + [(m.decisions, w) for m, w in zip(now, windows)]
            answers = self.evaluator.costs(questions)
            gains = []
            for move, before, after in zip(now, answers, answers[len(now) :]):
                gain = before - after if math.isfinite(before) else -math.inf
                self.ranker.learn(move, before if math.isfinite(before) else share, gain)
                gains.append(gain)
            self._report()
            better = [m for gain, m in sorted(zip(gains, now), key=lambda pair: -pair[0]) if gain > 0]
            for some in (_independent_moves(better), better[:1], better[1:2]):
                if some:
                    joined = _with_tiles(some)
                    (whole,) = self.evaluator.costs([(joined, None)])
                    if whole < cost:
                        return joined, whole, [move.kind for move in some]
        return at, cost, []

    def _keep(self, at: Decisions, cost: float, taken: list[str]) -> None:
        if cost < self.found.cost:
            self.found.best, self.found.cost, self.found.taken = at, cost, taken
        self._report()

    def _report(self) -> None:
        self.found.tried = self.evaluator.count
        self.progress(min(1.0, (time.monotonic() - self.started) / self.seconds), self.found)


def _window(at: Decisions, move: Move) -> Span:
    """The layers of the move's units and of one unit on either side: they are cut alike before and after it."""
    cuts = sorted(set(at.starts()) & set(move.decisions.starts()))
    first = max(cut for cut in cuts if cut <= move.span[0])
    end = min(cut for cut in cuts if cut >= move.span[1])
    before = max((cut for cut in cuts if cut < first), default=first)
    after = min((cut for cut in cuts if cut > end), default=end)
    return before, after


def _independent_moves(moves: list[Move]) -> list[Move]:
    """The first move, and the first of the tiles for each other layer apart from it."""
    found: list[Move] = []
    for move in moves:
        apart = all(move.span[1] <= other.span[0] or move.span[0] >= other.span[1] for other in found)
        if not found or (apart and move.kind == "tile"):
            found.append(move)
    return found


def _with_tiles(moves: list[Move]) -> Decisions:
    """Decisions after the first move, with the tiles of the others."""
    first = moves[0].decisions
    tiles = dict(first.tiles)
    for move in moves[1:]:
        tiles.pop(move.layer, None)
        tiles |= {layer: tile for layer, tile in move.decisions.tiles if layer == move.layer}
    return replace(first, tiles=tuple(sorted(tiles.items())))
