"""Chooses points of the space: the whole grid, a random sample, or Optuna's NSGA-II searching the Pareto front.

A search proposes generations of assignments and receives the evaluation of each. Its choices depend on the space, the
seed and the results only, not on the order they arrive in, so the same sweep makes the same choices again: one that was
killed runs through what is in the database and goes on behind it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilewright.sweep.space import Space

Assignment = dict[str, int]
#: The objectives of a point.
Row = tuple[float, ...]
#: Candidates that turn out impossible (contradicting fields, constraints) per point of the budget, before giving up.
_TRIES_PER_POINT = 50
_STALE_GENERATIONS = 10


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a point, for the search.

    Attributes:
        counts: it was evaluated, so it takes a point of the budget.
        objectives: None if it has none (impossible, or failed); the least they can be for a point that was pruned.
        violations: of the constraints, 0 where they hold.
    """

    counts: bool
    objectives: Row | None = None
    violations: tuple[float, ...] = ()


#: Looks at assignments and says what they came to, in the same order.
Evaluate = Callable[[list[Assignment]], list[Evaluation]]


def search(space: Space, evaluate: Evaluate) -> None:
    """Runs the space's search to its end."""
    {"grid": _grid, "random": _random, "pareto": _pareto}[space.method](space, evaluate)


def planned(space: Space) -> int:
    """Points the search will look at, at most."""
    return space.size if space.method == "grid" else min(space.budget, space.size)


def _grid(space: Space, evaluate: Evaluate) -> None:
    evaluate([space.assignment(n) for n in range(space.size)])


def _random(space: Space, evaluate: Evaluate) -> None:
    numbers = _distinct(space)
    left, tries = planned(space), _TRIES_PER_POINT * space.budget
    while left > 0 and tries > 0:
        batch = [space.assignment(n) for n, _ in zip(numbers, range(min(left, tries)))]
        if not batch:
            return
        tries -= len(batch)
        left -= sum(evaluated.counts for evaluated in evaluate(batch))


def _distinct(space: Space) -> Iterator[int]:
    """Numbers of the grid in random order, each once."""
    rng = random.Random(space.seed)
    seen: set[int] = set()
    while len(seen) < space.size:
        number = rng.randrange(space.size)
        if number not in seen:
            seen.add(number)
            yield number


def _pareto(space: Space, evaluate: Evaluate) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    population = max(4, min(24, space.budget // 5))
    study = optuna.create_study(
        directions=["minimize"] * len(space.objectives),
        sampler=optuna.samplers.NSGAIISampler(population_size=population, seed=space.seed),
    )
    # Positions on the axes: neighbours in an axis' order are neighbours for the search.
    places: dict[str, optuna.distributions.BaseDistribution] = {
        axis.field: optuna.distributions.IntDistribution(0, len(axis.values) - 1) for axis in space.axes
    }
    values = {axis.field: axis.values for axis in space.axes}
    known: dict[tuple[int, ...], Evaluation] = {}
    left, tries, stale = planned(space), _TRIES_PER_POINT * space.budget, 0
    while left > 0 and tries > 0 and stale < _STALE_GENERATIONS:
        trials = [study.ask(places) for _ in range(population)]
        tries -= len(trials)
        chosen = [{name: values[name][at] for name, at in trial.params.items()} for trial in trials]
        new: dict[tuple[int, ...], Assignment] = {}
        for assignment in chosen:
            identity = tuple(assignment.values())
            if identity not in known and len(new) < left:
                new[identity] = assignment
        known |= dict(zip(new, evaluate(list(new.values()))))
        counted = sum(known[identity].counts for identity in new)
        left, stale = left - counted, 0 if counted else stale + 1
        for trial, assignment in zip(trials, chosen):
            evaluated = known.get(tuple(assignment.values()))
            if evaluated is None or evaluated.objectives is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                continue
            for number, violation in enumerate(evaluated.violations):
                trial.set_constraint(f"constraint{number}", violation)
            study.tell(trial, list(evaluated.objectives))


def pareto_front(rows: list[Row]) -> list[int]:
    """Indices of the rows that no other row dominates: none is at most as large everywhere and smaller somewhere."""
    front: dict[Row, None] = {}
    for row in sorted(set(rows)):  # what dominates a row is sorted before it
        if not any(all(a <= b for a, b in zip(other, row)) for other in front):
            front[row] = None
    return [n for n, row in enumerate(rows) if row in front]
