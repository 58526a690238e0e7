"""The search of a tuning run: the compiler's own search, which goes on until the time is over.

It begins with the schedule of the compiler and goes on by moves (`tilewright.compiler.npu.schedule.descent`), from
there, from the schedule of an earlier run, then from random changes of the best one.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilewright.compiler.npu.schedule.decisions import Decisions, decisions_of
from tilewright.compiler.npu.schedule.descent import Descent, Found
from tilewright.compiler.npu.schedule.moves import Neighbourhood
from tilewright.compiler.npu.schedule.problem import StepProblem
from tilewright.compiler.npu.schedule.search import search
from tilewright.tuning.trials import Evaluator

#: Moves measured at once, per process.
_BATCH = 8
#: Random moves a restart makes, and the number of restarts in a row that may fail to fit.
_KICKS, _FAILURES = 3, 50
#: Ratio of a schedule's cost to that of the best one, above which it is not worth a local search.
_NEAR = 1.06


@dataclass
class Tuned:
    """Result of the search for a faster schedule of one step.

    Attributes:
        default, best: decisions of the compiler, and the best ones.
        default_cost, cost: cost of the step alone, by its `StepProblem.measure`.
        tried: number of measurements.
        taken: kinds of the moves that led to the best one from where its search began.
        interrupted: True if the user ended the search; what had been found by then is there.
    """

    default: Decisions
    default_cost: float
    best: Decisions
    cost: float
    tried: int = 0
    taken: list[str] | tuple[str, ...] = ()
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
        step: the step.
        seconds: time for the search.
        known: decisions of an earlier search to go on from.
        jobs: number of processes.
        seed: seed of the random restarts.
        progress: called with the fraction of the time used and the best so far.
    """
    evaluator = Evaluator(step, jobs, time.monotonic() + seconds)
    try:
        return _tune(step, evaluator, known, random.Random(seed), lambda found: progress(evaluator.used, found))
    finally:
        evaluator.close()


def _tune(
    step: StepProblem,
    evaluator: Evaluator,
    known: Decisions | None,
    chance: random.Random,
    progress: Callable[[Tuned], None],
) -> Tuned:
    """Returns the best schedule that is found until the evaluator is over."""
    default = decisions_of(search(step, 1))
    cost = evaluator.cost(default)
    found = Tuned(default, cost, default, cost)
    try:
        for start in _starts(step, evaluator, known, chance, found):
            descent = Descent(step, start, evaluator, gain=1)

            def report(descent: Descent = descent) -> None:
                found.tried = evaluator.count
                if descent.best.cost < found.cost:
                    found.best, found.cost, found.taken = *descent.best, descent.kinds
                progress(found)

            report()
            descent.descend(_BATCH * evaluator.jobs, report)
            if evaluator.over:
                break
    except KeyboardInterrupt:
        found.interrupted = True
    return found


def _starts(
    step: StepProblem, evaluator: Evaluator, known: Decisions | None, chance: random.Random, found: Tuned
) -> Iterator[Found]:
    """Yields schedules to begin with: those that are known, the best first, then random changes of the best one."""
    starts = [Found(each, evaluator.cost(each)) for each in (found.default, known) if each is not None]
    yield from sorted(starts, key=lambda start: start.cost)
    near, failed = Neighbourhood(step), 0
    while failed < _FAILURES and not evaluator.over:
        start, cost = found.best, found.cost
        for _ in range(_KICKS):
            moves = [*near.moves(start)]
            after = near.after(start, chance.choice(moves)) if moves else None
            whole = math.inf if after is None else evaluator.cost(after)
            if after is not None and whole < math.inf:
                start, cost = after, whole
        failed = 0 if start != found.best else failed + 1
        if start != found.best and cost <= _NEAR * found.cost:
            yield Found(start, cost)
