"""Searches on a space whose points were all compiled: they reach its front with a fraction of the compilations."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from calibration.searches.__main__ import SHARE, main, summary
from calibration.searches.truth import Searched, Truth
from tilewright.sweep.fronts import pareto_front

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def truth() -> Truth:
    return Truth(objective={"minimise": ["geomean_microseconds", "lut"]})


def test_the_grid_finds_the_front_of_the_truth(truth: Truth) -> None:
    """The ladder's promise: the front of all points, although some were never compiled."""
    found = truth.searched(method="grid")
    best = {truth.rows[point] for point in truth.rows}
    front = {row for n, row in enumerate(best) if n in pareto_front(list(best))}
    done = {(p["metrics"]["objective0"], p["metrics"]["objective1"]) for p in found.points if p["state"] == "done"}
    assert front <= done and found.shares[-1] == 1
    assert len(found.shares) < len(truth.rows)


def test_the_search_reaches_the_truth_with_a_fifth_of_the_compilations(truth: Truth) -> None:
    guided = [truth.searched(method="pareto", budget=60, seed=seed) for seed in range(2)]
    alone = [truth.searched(method="pareto", budget=len(truth.rows), prune=False, seed=seed) for seed in range(2)]
    counts = [run.reaching(SHARE) for run in guided]
    others = [run.reaching(SHARE) for run in alone]
    assert all(count is not None and count <= 0.05 * len(truth.rows) for count in counts), counts
    assert all(a is not None and b is not None and 5 * a <= b for a, b in zip(counts, others)), (counts, others)


def test_summary_and_table() -> None:
    runs = [Searched([0.5, 0.995, 1.0], []), Searched([0.2, 0.9], [])]
    assert summary(runs) == {"runs": 2, "reached": 1, "until": 2, "most": 2, "compiled": 2.5, "share": 0.9}
    done = CliRunner().invoke(main, ["--budget", "10", "--seeds", "1"])
    assert done.exit_code == 0 and "nsga2 alone" in done.output and "grid, pruned" in done.output
