"""Chooses points of the space: the whole grid, a random sample, or one of Optuna's samplers searching the Pareto front.

A search proposes generations of assignments and receives the evaluation of each. Samplers begin with the best by what
the ladder's lower rungs say of many more points than are evaluated, far from each other.

Choices depend on the space, the seed and the results only, not on the order they arrive in, so the same sweep makes the
same choices again: one that was killed runs through what is in the database and goes on behind it.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tilewright.common.installation import install_packages
from tilewright.sweep.expressions import SpaceError
from tilewright.sweep.fronts import Row, best
from tilewright.sweep.space import SAMPLERS, Space

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

Assignment = dict[str, int]
#: Candidates that turn out impossible (contradicting fields, constraints) per point of the budget, before giving up.
_TRIES_PER_POINT = 50
_STALE_GENERATIONS = 10
#: Points that a sampler's first generation is chosen from, per point of the budget.
_SKETCHES_PER_POINT = 10
#: Trials of the sampler that looks at them, for each: it repeats itself when it has seen most of what is good, and asks
#: for thousands before it has found as many others.
_TRIES_PER_SKETCH = 2
#: Points that are estimated for each one that gets a first schedule: the bound alone misses good ones.
_ESTIMATES_PER_SKETCH = 4
#: Trials that samplers without generations are asked for before the first is told, as is what they begin with: few, so
#: that more of the later ones are pruned; the same for any number of workers.
_BATCH = 8


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
#: The same by a rung of the ladder: the least that the objectives can be, 0 for those that it does not know.
Sketch = Callable[[list[Assignment], str], list[Evaluation]]


def search(space: Space, evaluate: Evaluate, sketch: Sketch | None = None) -> None:
    """Runs the space's search to its end; `sketch` is for samplers, None to begin with random points."""
    if space.method == "pareto":
        _pareto(space, evaluate, sketch)
    else:
        {"grid": _grid, "random": _random}[space.method](space, evaluate)


def planned(space: Space) -> int:
    """Points the search will look at, at most."""
    return len(space.grid) if space.method == "grid" else min(space.budget, space.size)


def _grid(space: Space, evaluate: Evaluate) -> None:
    evaluate(space.grid)


def _random(space: Space, evaluate: Evaluate) -> None:
    assignments = distinct(space)
    left, tries = planned(space), _TRIES_PER_POINT * space.budget
    while left > 0 and tries > 0:
        batch = [assignment for assignment, _ in zip(assignments, range(min(left, tries)))]
        if not batch:
            return
        tries -= len(batch)
        left -= sum(evaluated.counts for evaluated in evaluate(batch))


def distinct(space: Space) -> Iterator[Assignment]:
    """Assignments of the grid in random order, each once."""
    rng = random.Random(space.seed)
    numbers: set[int] = set()
    seen: set[tuple[int, ...]] = set()
    while len(numbers) < space.size:
        number = rng.randrange(space.size)
        if number not in numbers:
            numbers.add(number)
            assignment = space.assignment(number)
            if tuple(assignment.values()) not in seen:
                seen.add(tuple(assignment.values()))
                yield assignment


def _pareto(space: Space, evaluate: Evaluate, sketch: Sketch | None) -> None:
    if space.sampler == "gp" and find_spec("torch") is None:  # which Optuna looks for at the first trial only
        raise SpaceError(f'[search] sampler = "gp" needs the package torch: {install_packages("torch")}')
    population = max(4, min(24, space.budget // 5))
    first = _sketched(space, sketch, 4 * population)[: space.budget // 2] if sketch is not None else []
    tries = _TRIES_PER_POINT * planned(space)
    _sample(space, evaluate, planned(space), population, first, space.sampler, tries)


def _sketched(space: Space, sketch: Sketch, count: int) -> list[Assignment]:
    """Returns up to `count` assignments that are good by a first schedule, of more that are good by the estimate, of
    those that are good by the bound."""
    known: list[tuple[Assignment, Row]] = []

    def look(assignments: list[Assignment]) -> list[Evaluation]:
        found = sketch(assignments, "bound")
        known.extend((a, e.objectives) for a, e in zip(assignments, found) if e.objectives and not any(e.violations))
        return found

    most = _SKETCHES_PER_POINT * space.budget
    if space.size <= most:
        look(space.grid)
    else:
        tries = _TRIES_PER_SKETCH * most
        _sample(space, look, most, count, [], SAMPLERS[0], tries)  # the cheapest of samplers for so many points
    for rung, several in (("estimate", _ESTIMATES_PER_SKETCH), ("schedule", 1)):
        chosen = [known[n][0] for n in best([row for _, row in known], several * count)]
        found = zip(chosen, sketch(chosen, rung))
        known = [(a, e.objectives) for a, e in found if e.objectives and not any(e.violations)]
    return [known[n][0] for n in best([row for _, row in known], count)]


def _sample(
    space: Space, evaluate: Evaluate, budget: int, population: int, first: list[Assignment], name: str, tries: int
) -> None:
    """Lets the sampler of a name choose `budget` points, after `first`, in so many tries at most."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        sampler = _sampler(name, population, space.seed)
    batch = population if name.startswith("nsga") else min(population, _BATCH)
    # Positions on the axes: neighbours in an axis' order are neighbours for the search.
    places: dict[str, optuna.distributions.BaseDistribution] = {
        axis.field: optuna.distributions.IntDistribution(0, len(axis.values) - 1) for axis in space.axes
    }
    study = optuna.create_study(directions=["minimize"] * len(space.objectives), sampler=sampler)
    for assignment in first:
        study.enqueue_trial(space.places(assignment))
    known: dict[tuple[int, ...], Evaluation] = {}
    left, stale, asked = budget, 0, 0
    while left > 0 and tries > 0 and stale < _STALE_GENERATIONS:
        trials = [study.ask(places) for _ in range(min(batch, _BATCH) if asked < len(first) else batch)]
        asked += len(trials)
        tries -= len(trials)
        chosen = [space.assigned(trial.params) for trial in trials]
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


def _sampler(name: str, population: int, seed: int) -> BaseSampler:
    """Returns a sampler of Optuna."""
    import optuna

    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    match name:
        case "nsga2":
            return optuna.samplers.NSGAIISampler(population_size=population, seed=seed)
        case "nsga3":
            return optuna.samplers.NSGAIIISampler(population_size=population, seed=seed)
        case "tpe":
            return optuna.samplers.TPESampler(n_startup_trials=population, multivariate=True, seed=seed)
        case _:
            return optuna.samplers.GPSampler(n_startup_trials=population, seed=seed)
