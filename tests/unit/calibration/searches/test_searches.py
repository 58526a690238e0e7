"""Searches on a space whose points were all compiled: they reach its front with a fraction of the compilations."""

from __future__ import annotations

import csv
import re
import statistics

import pytest
from click.testing import CliRunner

from calibration.searches import margins
from calibration.searches.__main__ import SHARE, main, summary
from calibration.searches.truth import Searched, Truth
from tests.common.paths import ROOT
from tilewright.sweep.fronts import pareto_front
from tilewright.sweep.rungs import LUCK

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def truth() -> Truth:
    return Truth(objective={"minimise": ["geomean_microseconds", "lut"]})


def test_the_grid_finds_the_front_of_the_truth(truth: Truth) -> None:
    """The ladder's promise: the front of all points, although some were never compiled."""
    found = truth.searched(method="grid")
    best = list(truth.rows.values())
    front = {best[n] for n in pareto_front(best)}
    done = {(p["metrics"]["objective0"], p["metrics"]["objective1"]) for p in found.points if p["state"] == "done"}
    assert front <= done and found.shares[-1] == pytest.approx(1)
    assert len(found.shares) < len(truth.rows)


def test_the_search_reaches_the_truth_with_a_fifth_of_the_compilations(truth: Truth) -> None:
    """A search compiles a twentieth of all points at most, and a fifth of those of NSGA-II without the rungs."""
    guided = [truth.searched(method="pareto", budget=60, seed=seed).reaching(SHARE) for seed in range(2)]
    alone = [truth.searched(method="pareto", budget=120, prune=False, seed=seed).reaching(SHARE) for seed in range(3)]
    most = max(count or len(truth.rows) for count in guided)
    assert most <= len(truth.rows) / 20
    assert statistics.median(count or len(truth.rows) for count in alone) >= 5 * most


def test_no_program_takes_less_than_the_rungs_say() -> None:
    """The bound is proven; the margins of the estimate and of the first schedule are measured, on random machines."""
    found = margins.least()
    assert min(found.values()) >= 1
    page = (ROOT / "docs/sweeps.md").read_text(encoding="utf-8")
    said = re.search(r"(\d+) programs of random machines took at least ([\d.]+) times these cycles", page)
    assert said is not None
    assert int(said[1]) == len(margins.DATA.read_text(encoding="utf-8").splitlines()) - 1
    assert float(said[2]) == pytest.approx(min(found["estimate"], found["schedule"]), abs=0.005)


def test_margins_are_those_of_todays_compiler() -> None:
    """The first pair again: its rungs and its program take less than 3 % more or fewer cycles than when it was kept."""
    with margins.DATA.open(newline="", encoding="utf-8") as lines:
        kept = next(csv.DictReader(lines))
    point, network, found = next(margins.pairs())
    assert (point, network) == (kept["point"], kept["network"])
    for rung, cycles in found.items():
        assert cycles == pytest.approx(int(kept[rung]), rel=0.03), "python -m calibration.searches.margins"


def test_luck_of_the_search_is_within_its_margin(truth: Truth) -> None:
    """Smaller scratchpads never leave less of a program's cycles than the ladder reckons with, nor much more."""
    assert LUCK < truth.luck() < 1.1 * LUCK


def test_summary_and_table(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [Searched([0.5, 0.995, 1.0], []), Searched([0.2, 0.9], [])]
    found = summary(runs)
    assert found == {"runs": 2, "reached": 1, "until": 2, "most": 2, "compiled": 2.5, "share": 0.9}
    rows = [{"search": "nsga2", "points": 9, **found}]
    monkeypatch.setattr("calibration.searches.__main__.compare", lambda *_: rows)
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 0 and "geomean_microseconds, lut, bram: 9 points" in done.output
    assert "1 of 2" in done.output and "90.0%" in done.output
