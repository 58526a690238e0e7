"""Local search over the schedules of an NPU step, by exact cycles.

From the compiler's own schedule on, moves (see `compiler.npu.neighbours`) are tried in the order of the gain a ranker
expects. A move is first measured with the layers around it alone; what gains there is measured with the whole step and
taken if it gains there too. When no move is left, the search goes on from another policy's schedule, then from random
changes of the best one.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from compiler.npu.decisions import Decisions, decisions_of
from compiler.npu.neighbours import Move, Neighbourhood
from compiler.npu.search import Policy, policies
from tilewright.tuning.evaluate import Evaluator, Span, Step
from tilewright.tuning.ranker import Ranker

#: Moves measured at once, per process.
_BATCH = 2
#: Random moves a restart makes.
_KICKS = 3
#: Schedules further than this from the best one are not worth a local search.
_NEAR = 1.06


@dataclass
class Tuned:
    """Attributes:
    default, best: decisions of the compiler, and the best ones.
    default_cycles, cycles: of the step alone.
    tried: schedules measured.
    taken: kinds of the moves that led to the best one.
    history: (seconds, cycles) at each improvement.
    """

    default: Decisions
    default_cycles: float
    best: Decisions
    cycles: float
    tried: int = 0
    taken: list[str] = field(default_factory=list)
    history: list[tuple[float, float]] = field(default_factory=list)


def tune_step(
    step: Step,
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
    default = decisions_of(step.default(Policy()))
    evaluator = Evaluator(step, jobs)
    try:
        return _Search(step, evaluator, default, seconds, seed, progress).run(known)
    finally:
        evaluator.close()


class _Search:
    def __init__(
        self,
        step: Step,
        evaluator: Evaluator,
        default: Decisions,
        seconds: float,
        seed: int,
        progress: Callable[[float, Tuned], None],
    ) -> None:
        self.step, self.evaluator, self.progress = step, evaluator, progress
        self.near = Neighbourhood(step.config, step.layers, step.outside)
        self.ranker = Ranker(step.layers)
        self.random = random.Random(seed)
        self.started, self.seconds = time.monotonic(), seconds
        (cycles,) = evaluator.cycles([(default, None)])
        self.found = Tuned(default, cycles, default, cycles, history=[(0.0, cycles)])

    @property
    def over(self) -> bool:
        return time.monotonic() - self.started >= self.seconds

    def run(self, known: Decisions | None) -> Tuned:
        for start in self._starts(known):
            if self.over:
                break
            (cycles,) = self.evaluator.cycles([(start, None)])
            self._report()
            if cycles <= self.found.cycles * _NEAR:
                self._descend(start, cycles)
        self.found.tried = self.evaluator.count
        return self.found

    def _starts(self, known: Decisions | None) -> Iterator[Decisions]:
        """Where to search from: what is known, the policies, then the best one with random changes, without end."""
        if known is not None:
            yield known
        yield self.found.default
        for policy in policies(3)[1:]:
            yield decisions_of(self.step.default(policy))
        failed = 0
        while failed < 50:
            start = self.found.best
            for _ in range(_KICKS):
                moves = list(self.near.moves(start))
                if moves:
                    start = self.random.choice(moves).decisions
            fits = math.isfinite(self.evaluator.cycles([(start, None)])[0])
            failed = 0 if fits else failed + 1
            if fits:
                yield start

    def _descend(self, at: Decisions, cycles: float) -> None:
        """Takes moves as long as one gains."""
        taken: list[str] = []
        self._keep(at, cycles, taken)
        while not self.over:
            move, after = self._improve(at, cycles)
            if move is None:
                return
            at, cycles = move.decisions, after
            taken = [*taken, move.kind]
            self._keep(at, cycles, taken)

    def _improve(self, at: Decisions, cycles: float) -> tuple[Move | None, float]:
        """The first move found to gain, in the order of the expected gain."""
        moves = list(self.near.moves(at))
        share = cycles / max(1, len(self.step.layers))
        moves.sort(key=lambda m: -self.ranker.gain(m, share * (m.span[1] - m.span[0])))
        batch = _BATCH * self.evaluator.jobs
        while moves and not self.over:
            now, moves = moves[:batch], moves[batch:]
            windows = [_window(at, move) for move in now]
            questions = [(at, w) for w in windows] + [(m.decisions, w) for m, w in zip(now, windows)]
            answers = self.evaluator.cycles(questions)
            gains = []
            for move, before, after in zip(now, answers, answers[len(now) :]):
                gain = before - after if math.isfinite(before) else -math.inf
                self.ranker.learn(move, before if math.isfinite(before) else share, gain)
                gains.append(gain)
            self._report()
            for gain, move in sorted(zip(gains, now), key=lambda pair: -pair[0]):
                if gain <= 0:
                    break
                (whole,) = self.evaluator.cycles([(move.decisions, None)])
                if whole < cycles:
                    return move, whole
        return None, cycles

    def _keep(self, at: Decisions, cycles: float, taken: list[str]) -> None:
        if cycles < self.found.cycles:
            self.found.best, self.found.cycles, self.found.taken = at, cycles, taken
            self.found.history.append((time.monotonic() - self.started, cycles))
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
