"""Workers of a scheduler that is there already: the same sweep as without, and one line for those that disagree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster, get_worker

from tests.common.waiting import HANG
from tests.unit.tilewright.sweep.here import Here, loaded
from tilewright.errors import UsageError
from tilewright.sweep import Database, run, search, worker
from tilewright.sweep.dispatch import Dispatcher, Task
from tilewright.sweep.options import SweepOptions
from tilewright.sweep.runner import Sweep
from tilewright.sweep.space import parse_space

pytestmark = pytest.mark.slow

TABLE: dict[str, Any] = {
    "base": "small",
    "axes": {
        "block_in": [4, 8],
        "block_out": [4, 8],
        "vector_passes": [1, 2],
        "row_unit": {"choices": [0, 1], "when": "vector_passes == 1", "else": 0},
    },
    "memory": {"read_interval": [1, 4]},
    "clock_mhz": 50,
    "objective": {"minimise": ["microseconds", "lut", "bram", "dram_bytes"]},
    "search": {"method": "pareto", "budget": 10, "seed": 4},
}


@pytest.fixture(scope="module")
def others() -> Iterator[str]:
    """The address of a scheduler with two workers in this process."""
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        cluster.wait_for_workers(2, timeout=HANG)
        yield cluster.scheduler_address


def test_the_same_sweep_with_and_without_a_scheduler(others: str, tmp_path: Path) -> None:
    """A search with four objectives chooses, prunes and counts the same wherever, in whatever order."""
    networks = loaded({"net": "autoencoder:features=64,hidden=32"})
    space = parse_space(TABLE, ["net"])
    there = run(space, networks, tmp_path / "there", scheduler=others)
    with Database(tmp_path / "here") as database:
        sweep = Sweep(space, networks, database, lambda: Here(seed=5), SweepOptions())  # type: ignore[arg-type, return-value]
        search.search(space, sweep.evaluate, sweep.sketching)
        here = database.sweep_points(sweep.id)
    assert there.points == here and there.sweep == sweep.id
    assert len(there.front) > 1 and there.count("pruned") + there.count("done") == 10


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            lambda: {"state": "done", "cycles": get_worker().name, "seconds": 1},
            "workers disagree about a task: at .* cyc",
        ),
        (lambda: {"state": worker.REFUSED, "error": "runs other sources"}, "the worker at .* runs other sources"),
    ],
)
def test_workers_that_cannot_be_trusted_are_one_line(
    others: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, result: Callable[[], dict[str, Any]], message: str
) -> None:
    monkeypatch.setattr("tilewright.sweep.dispatch.evaluate", lambda job: result())
    dispatcher = Dispatcher({}, 1, others, tmp_path / "log")
    try:
        with pytest.raises(UsageError, match=message):
            list(dispatcher.run([Task("cycles", "k", {})]))
    finally:
        dispatcher.close()
