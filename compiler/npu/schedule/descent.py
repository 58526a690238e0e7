"""The descent: from a schedule to better ones, by moves that are measured and taken where they gain.

A move is measured in the window of layers that it changes. The cost of the whole step then settles what was taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.schedule.decisions import Decisions, schedule_of
from tilewright.compiler.npu.schedule.moves import Move, Neighbourhood
from tilewright.compiler.npu.schedule.problem import Budget, StepProblem
from tilewright.compiler.npu.schedule.ranker import Ranker
from tilewright.compiler.npu.schedule.windows import Window, windows

#: Cost after a change over cost before, at most, for it to be taken: the constants lie elsewhere in the end, whose
#: bursts then end elsewhere.
GAIN = 0.997

#: Decisions, and the window that is measured, None for the whole step.
Question = tuple[Decisions, Window | None]


class Evaluator(Protocol):
    """Measures schedules until a budget is used up."""

    def costs(self, questions: Sequence[Question]) -> list[float]:
        """Returns the costs of schedules, or of windows of them; infinite where a schedule does not fit."""

    @property
    def over(self) -> bool:
        """True when nothing more is to be measured."""


class Budgeted:
    """Measures in this process, with a budget of instructions."""

    def __init__(self, problem: StepProblem, budget: Budget) -> None:
        self.problem, self.budget = problem, budget

    def costs(self, questions: Sequence[Question]) -> list[float]:
        return [cost_of(self.problem, *question) for question in questions]

    @property
    def over(self) -> bool:
        return self.budget.left() <= 0


def cost_of(problem: StepProblem, decisions: Decisions, window: Window | None = None) -> float:
    """Returns the cost of a step by a schedule, or of a window of it; infinite if it does not fit."""
    try:
        schedule = schedule_of(problem, decisions)
    except CompileError:
        return math.inf
    if window is None:
        return problem.cost(schedule)
    starts = decisions.starts()
    return problem.cost(schedule, (starts.index(window.first), starts.index(window.end)))


class Found(NamedTuple):
    """A schedule and its measured cost.

    Attributes:
        decisions: the schedule.
        cost: its cost, infinite if the step does not fit.
    """

    decisions: Decisions
    cost: float


class Trial(NamedTuple):
    """A measured move.

    Attributes:
        move: the move.
        windows: the layers whose cost it changes.
        before, after: their cost.
    """

    move: Move
    windows: list[Window]
    before: float
    after: float


class Descent:
    """A search from a schedule to better ones.

    Args:
        problem: the step.
        start: a schedule with its cost.
        evaluator: measures schedules.
        gain: largest ratio of costs after and before a move that is taken.

    Attributes:
        best: the best schedule, with its cost.
        now: the best schedule with moves that were taken since, whose cost as a whole is not known.
        taken: these moves, by gain where they were measured together.
        kinds: kinds of the moves that led to the best schedule.
    """

    def __init__(self, problem: StepProblem, start: Found, evaluator: Evaluator, gain: float = GAIN) -> None:
        self.problem, self.near = problem, Neighbourhood(problem)
        self.evaluator, self.gain = evaluator, gain
        self.best, self.now = start, start.decisions
        self.taken: list[Move] = []
        self.kinds: list[str] = []
        self._busy: dict[Decisions, tuple[int, int]] = {}

    def busy_cycles(self) -> tuple[int, int]:
        """Returns `StepProblem.busy_cycles` of the schedule at hand."""
        if self.now not in self._busy:
            self._busy[self.now] = self.problem.busy_cycles(schedule_of(self.problem, self.now))
        return self._busy[self.now]

    def descend(self, batch: int = 1, report: Callable[[], None] = lambda: None) -> None:
        """Measures all moves in the order of the gain that a ranker expects, as long as one gains.

        Args:
            batch: number of moves that are measured together.
            report: called whenever moves were measured.
        """
        ranker = Ranker(self.problem.layers)
        moves = self._ranked(ranker)
        while True:
            self.run(moves, batch, ranker, once=True)
            report()
            if not self.taken:
                return
            if self.settle(alone=True):
                moves = self._ranked(ranker)
                report()

    def _ranked(self, ranker: Ranker) -> Iterator[Move]:
        """Returns all moves from the schedule at hand, those first that are expected to gain most."""
        share = self.best.cost / max(1, len(self.problem.layers))
        return iter(sorted(self.near.moves(self.now), key=lambda move: -ranker.gain(move, share * move.count)))

    def run(self, moves: Iterable[Move], batch: int = 1, ranker: Ranker | None = None, once: bool = False) -> None:
        """Measures moves, and takes those that gain, until there are no more or the search is over.

        Args:
            moves: the moves in the order in which they are tried; they may depend on those taken before.
            batch: number of moves that are measured together, from the schedule before them.
            ranker: learns from every trial.
            once: True to return as soon as something was taken.
        """
        moves = iter(moves)
        while not (once and self.taken) and not self.evaluator.over and (some := [*islice(moves, batch)]):
            changed: list[Window] = []
            for trial in sorted(self._trials(some), key=lambda one: one.after - one.before):
                if ranker is not None and trial.before < math.inf:
                    ranker.learn(trial.move, trial.before, trial.before - trial.after)
                apart = not any(w.first < c.end and c.first < w.end for w in trial.windows for c in changed)
                after = self.near.after(self.now, trial.move) if apart else None
                gain = self.gain if trial.move.kind == "tile" else 1  # small ones are mostly chance there
                if after is not None and trial.after < gain * trial.before:
                    self.now = after
                    self.taken.append(trial.move)
                    changed += trial.windows

    def _trials(self, moves: list[Move]) -> list[Trial]:
        """Returns the moves that are some from the schedule at hand, measured."""
        afters = [(move, self.near.after(self.now, move)) for move in moves]
        different = [(m, after, windows(self.problem, self.now, after)) for m, after in afters if after is not None]
        questions = [(each, w) for _, after, found in different for w in found for each in (self.now, after)]
        costs = iter(self.evaluator.costs(questions))
        trials = []
        for move, _, found in different:
            pairs = [(next(costs), next(costs)) for _ in found]
            before, after_cost = (sum(side) for side in zip(*pairs)) if pairs else (0.0, 0.0)
            trials.append(Trial(move, found, before, after_cost))
        return trials

    def settle(self, alone: bool = False) -> bool:
        """Takes the moves since the last time if the whole step costs less with them; returns whether it does.

        Args:
            alone: True to try the first of several moves alone where they do not gain together.
        """
        moves, self.taken = self.taken, []
        after: Decisions | None = self.now
        for some in (moves, moves[:1]) if alone and len(moves) > 1 else [moves] * bool(moves):
            if after is not None and (cost := self.evaluator.costs([(after, None)])[0]) < self.gain * self.best.cost:
                self.best, self.now = Found(after, cost), after
                self.kinds += [move.kind for move in some]
                return True
            after = self.near.after(self.best.decisions, moves[0])
        self.now = self.best.decisions
        return False
