"""The searches, on functions whose optimum is known."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.sweep.search import Assignment, Evaluation, pareto_front, search
from tilewright.sweep.space import parse_space

TABLE: dict[str, Any] = {
    "axes": {"act_rows": {"min": 64, "max": 4096, "step": 64}, "queue_depth": {"min": 2, "max": 60}},
    "objective": {"minimise": ["cycles", "lut"]},
}


def run(method: str, budget: int, seed: int = 0, fails: bool = False) -> list[tuple[Assignment, Evaluation]]:
    space = parse_space(TABLE | {"search": {"method": method, "budget": budget, "seed": seed}})
    seen: list[tuple[Assignment, Evaluation]] = []

    def evaluate(assignments: list[Assignment]) -> list[Evaluation]:
        evaluated = []
        for a in assignments:
            rows, depth = a["act_rows"] / 4096, a["queue_depth"] / 60
            broken = max(0.0, 0.2 - depth)
            objectives = None if fails and a["queue_depth"] % 3 == 0 else (1 - rows + (depth - 0.5) ** 2, rows)
            evaluated.append(Evaluation(True, objectives, (broken,)))
        seen.extend(zip(assignments, evaluated))
        return evaluated

    search(space, evaluate)
    return seen


def test_grid_is_every_point_once() -> None:
    space = parse_space({"axes": {"queue_depth": [2, 3], "semaphores": [12, 13, 14]}})
    seen: list[Assignment] = []

    def evaluate(assignments: list[Assignment]) -> list[Evaluation]:
        seen.extend(assignments)
        return [Evaluation(True)] * len(assignments)

    search(space, evaluate)
    assert sorted(tuple(a.values()) for a in seen) == [(q, s) for q in (2, 3) for s in (12, 13, 14)]


def test_random_is_reproducible_and_without_repeats() -> None:
    first, again, other = run("random", 100), run("random", 100), run("random", 100, seed=1)
    assert [a for a, _ in first] == [a for a, _ in again] != [a for a, _ in other]
    assert len({tuple(a.values()) for a, _ in first}) == 100


def test_random_replaces_impossible_points() -> None:
    space = parse_space(TABLE | {"search": {"method": "random", "budget": 20}})
    seen = []

    def evaluate(assignments: list[Assignment]) -> list[Evaluation]:
        evaluated = [Evaluation(a["queue_depth"] % 2 == 0) for a in assignments]
        seen.extend(evaluated)
        return evaluated

    search(space, evaluate)
    assert sum(t.counts for t in seen) == 20 < len(seen)


@pytest.mark.medium
def test_pareto_finds_more_of_the_front_than_chance() -> None:
    """The front is queue_depth 30 at any act_rows. Failing points and constraints do not stop the search."""

    def distance(seen: list[tuple[Assignment, Evaluation]]) -> float:
        good = [(a, t) for a, t in seen if t.objectives is not None and not any(t.violations)]
        front = pareto_front([t.objectives for _, t in good if t.objectives is not None])
        return sum(abs(good[n][0]["queue_depth"] - 30) for n in front) / len(front)

    guided = run("pareto", 200, fails=True)
    assert len({tuple(a.values()) for a, _ in guided}) == len(guided) <= 200
    assert distance(guided) < distance(run("random", 200, fails=True))
    assert [a for a, _ in guided] == [a for a, _ in run("pareto", 200, fails=True)]


def test_front() -> None:
    assert pareto_front([(1, 5), (2, 2), (3, 3), (2, 2), (0, 9)]) == [0, 1, 3, 4]
