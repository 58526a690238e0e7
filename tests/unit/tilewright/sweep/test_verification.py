"""`--verify`: what it says before, models once per configuration, and what a failed build leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tilewright.sweep.here import Here, loaded
from tilewright.common.native import BuildError
from tilewright.sweep import Database, search, verification
from tilewright.sweep.dispatch import Task
from tilewright.sweep.options import SweepOptions
from tilewright.sweep.runner import Sweep
from tilewright.sweep.space import parse_space

pytestmark = pytest.mark.medium

#: Two machines with three memories each.
TABLE: dict[str, Any] = {
    "base": "tiny",
    "axes": {"queue_depth": [4, 8]},
    "memory": {"read_latency": [16, 32, 64]},
    "search": {"prune": False},
}


class Rtl(Here):
    """Does as if it built and ran the RTL; builds of some configurations fail."""

    def __init__(self, broken: Callable[[Task], bool] = lambda task: False) -> None:
        super().__init__()
        self.broken = broken

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, dict[str, Any]]]:
        for task in tasks:
            if task.kind not in ("model", "verify"):
                yield from super().run([task])
                continue
            self.tasks.append(task)
            if self.broken(task):
                yield task, {"state": "failed", "error": "BuildError: no compiler"}
            else:
                yield task, {"state": "done", "error": None, "simulated_cycles": 5, "rtl_cycles": 5}


def verified(folder: Path, rtl: Rtl, count: int) -> tuple[list[dict[str, Any]], list[str]]:
    networks = loaded({"net": "autoencoder:features=64,hidden=32"})
    said: list[str] = []
    options = SweepOptions(jobs=2, progress=lambda progress: said.append(progress.stage))
    with Database(folder) as database:
        sweep = Sweep(parse_space(TABLE, ["net"]), networks, database, lambda: rtl, options)  # type: ignore[arg-type, return-value]
        search.search(sweep.space, sweep.evaluate, sweep.sketching)
        rtl.tasks.clear()
        return verification.verify(sweep, count), [text for text in said if text.startswith("verifying")]


def test_models_are_built_once_each_and_the_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "is_built", lambda config: config.queue_depth == 8)
    rtl = Rtl()
    rows, said = verified(tmp_path, rtl, 6)
    assert [row["rtl_cycles"] for row in rows] == [5] * 6
    assert rtl.kinds == ["model"] + ["verify"] * 6 and rtl.tasks[0].job["config"]["queue_depth"] == 4
    assert said[0] == "verifying 6 points on the RTL, 1 models to build, about 17 s: 0 of 7 steps done"
    assert said[-1].endswith("7 of 7 steps done")
    # What was run is not run again, and says so.
    again = Rtl()
    rows, said = verified(tmp_path, again, 6)
    assert len(rows) == 6 and again.kinds == [] and said[0].startswith("verifying 0 points")


def test_a_build_that_fails_is_told_for_its_points_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(config: object) -> bool:
        raise BuildError("no Verilator")

    monkeypatch.setattr(verification, "is_built", missing)
    rtl = Rtl(broken=lambda task: task.kind == "model" and task.job["config"]["queue_depth"] == 4)
    rows, _ = verified(tmp_path, rtl, 6)
    assert sorted(row["state"] for row in rows) == ["done"] * 3 + ["failed"] * 3
    assert {row["error"] for row in rows} == {None, "BuildError: no compiler"}
    assert rtl.kinds == ["model"] * 2 + ["verify"] * 3
