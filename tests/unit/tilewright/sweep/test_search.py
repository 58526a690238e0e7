"""The searches, on functions whose optimum is known."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.common import needs
from tilewright.cli import cli
from tilewright.sweep.expressions import SpaceError
from tilewright.sweep.fronts import best, pareto_front
from tilewright.sweep.search import Assignment, Evaluation, search
from tilewright.sweep.space import SAMPLERS, parse_space

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


def converging(sampler: str, seed: int = 0, sketched: bool = True) -> list[Assignment]:
    """Returns the choices of a sampler whose sketches are right about the rows and wrong about the depth."""
    table = {"method": "pareto", "sampler": sampler, "budget": 40, "seed": seed}
    space = parse_space(TABLE | {"search": table})
    seen: list[Assignment] = []
    rungs: list[str] = []

    def evaluate(assignments: list[Assignment]) -> list[Evaluation]:
        seen.extend(assignments)
        return [Evaluation(True, (abs(a["queue_depth"] - 30), 1.0 + abs(a["act_rows"] - 2048))) for a in assignments]

    def sketch(assignments: list[Assignment], rung: str) -> list[Evaluation]:
        rungs.append(rung)
        return [Evaluation(True, (0.0, float(abs(a["act_rows"] - 2048)))) for a in assignments]

    search(space, evaluate, sketch if sketched else None)
    assert not sketched or (rungs[0], rungs[-1]) == ("bound", "schedule")
    return seen


@pytest.mark.medium
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samplers_begin_with_the_best_of_the_sketches(sampler: str) -> None:
    """The first generation is near the rows that the sketches like, later ones too; the same seed chooses the same."""
    if sampler == "gp" and find_spec("torch") is None:
        needs.skip(needs.GAUSSIAN, "PyTorch is not installed")

    def miss(seen: list[Assignment]) -> float:
        return sum(abs(a["act_rows"] - 2048) for a in seen) / len(seen)

    seen, blind = converging(sampler), converging(sampler, sketched=False)
    assert len(seen) == len({tuple(a.values()) for a in seen}) == 40
    assert miss(seen[:8]) < miss(blind[:8]) / 4 and miss(seen) < miss(blind)
    assert converging(sampler) == seen != converging(sampler, seed=1)


def test_a_sampler_without_its_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.sweep.search.find_spec", lambda name: None)
    with pytest.raises(SpaceError, match=r'sampler = "gp" needs the package torch: .*install torch'):
        converging("gp")


def test_the_command_without_that_package_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the package and how to get it, before any point is looked at."""
    monkeypatch.setattr("tilewright.sweep.search.find_spec", lambda name: None)
    text = 'axes = { block_in = [4, 8] }\nsearch = { method = "pareto", sampler = "gp" }\n'
    (tmp_path / "space.toml").write_text(text)
    arguments = ["sweep", str(tmp_path / "space.toml"), "--models", "ds_cnn", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, arguments, prog_name="tilewright")
    assert done.exit_code == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith('tilewright: error: [search] sampler = "gp" needs the package torch: ')
    assert line.endswith(" install torch")


def test_points_under_a_condition_are_looked_at_once() -> None:
    axes = {"vector_passes": [1, 2, 4], "row_unit": {"choices": [0, 1], "when": "vector_passes == 1", "else": 0}}
    for method in ("grid", "random", "pareto"):
        space = parse_space({"axes": axes, "search": {"method": method, "budget": 50}})
        seen: list[Assignment] = []

        def evaluate(assignments: list[Assignment], seen: list[Assignment] = seen) -> list[Evaluation]:
            seen.extend(assignments)
            return [Evaluation(True, (1.0, 1.0))] * len(assignments)

        search(space, evaluate)
        assert sorted(tuple(a.values()) for a in seen) == [(1, 0), (1, 1), (2, 0), (4, 0)]


def test_the_best_are_of_the_first_fronts_and_far_apart() -> None:
    rows = [(0.0, 10.0), (1.0, 9.0), (5.0, 5.0), (9.0, 1.0), (10.0, 0.0), (11.0, 11.0), (10.5, 3.0)]
    assert best(rows, 1) == [2] and sorted(best(rows, 3)) == [
        1,
        2,
        3,
    ]
    assert best([(*row, 0.0, 0.0) for row in rows], 3) == [0, 4, 2]  # with many objectives by distance
    assert sorted(best(rows, 6)) == [0, 1, 2, 3, 4, 6]
    assert sorted(best(rows, 99)) == list(range(7)) and best([], 3) == []


def test_front() -> None:
    assert pareto_front([(1, 5), (2, 2), (3, 3), (2, 2), (0, 9)]) == [0, 1, 3, 4]
