"""Cycles of some points on the RTL beside those of the simulator: which points, what it takes, and doing it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.common.native import BuildError
from tilewright.hw.sim.build import is_built
from tilewright.isa.config import NpuConfig
from tilewright.sweep.database import key_of
from tilewright.sweep.dispatch import Task
from tilewright.sweep.space import network_key

if TYPE_CHECKING:
    from tilewright.sweep.runner import Sweep

#: CPU seconds to build the Verilated RTL, and to simulate a cycle of it: a constant, and a term per product of the
#: array. Measured with DS-CNN on `tiny` (16.8 s, 533,000 cycles/s) and `base` (30.4 s, 206,000 cycles/s).
_BUILD_SECONDS = (16.0, 0.056)
_CYCLE_SECONDS = (1.68e-6, 1.24e-8)


@dataclass
class Verification:
    """Networks to be run on the RTL.

    Attributes:
        tasks: of the runs, by their keys in the database.
        missing: keys of those that were not run yet.
        models: tasks that build the RTL of the configurations that were not simulated yet, each once.
        seconds: it takes about so long.
    """

    tasks: dict[str, Task]
    missing: list[str]
    models: list[Task]
    seconds: float

    def __str__(self) -> str:
        minutes = f"{self.seconds / 60:.0f} min" if self.seconds > 100 else f"{self.seconds:.0f} s"
        return f"verifying {len(self.missing)} points on the RTL, {len(self.models)} models to build, about {minutes}"


def plan(sweep: Sweep, count: int) -> Verification:
    """Chooses up to `count` points at random, each with the network of the fewest cycles."""
    candidates = [
        p for p in sweep.database.sweep_points(sweep.id) if p["state"] in ("done", "infeasible") and p["metrics"]
    ]
    chosen = random.Random(sweep.space.seed).sample(candidates, min(count, len(candidates)))
    found = Verification({}, [], [], 0.0)
    models: dict[str, Task] = {}
    work = [0.0]
    for row in chosen:
        point = sweep.space.point(row["assignment"])
        cycles = {network.digest: row["metrics"][f"cycles_{network_key(network.name)}"] for network in sweep.networks}
        smallest = min(cycles, key=lambda digest: cycles[digest])
        task = next(t for t in sweep.tasks(point) if t.job.get("network") == smallest)
        key = key_of("verify", task.key, sweep.area_sources)
        found.tasks[key] = Task("verify", key, task.job | {"kind": "verify"}, task.row)
        if sweep.found(found.tasks[key]) is not None or key in found.missing:
            continue
        found.missing.append(key)
        config = point.config
        work.append(cycles[smallest] * _linear(_CYCLE_SECONDS, config))
        if config.fingerprint not in models and not _is_built(config):
            job = {"kind": "model", "config": config.to_dict()}
            models[config.fingerprint] = Task("model", config.fingerprint, job)
            work.append(_linear(_BUILD_SECONDS, config))
    found.models = list(models.values())
    found.seconds = max(max(work), sum(work) / sweep.jobs)
    return found


def verify(sweep: Sweep, count: int) -> list[dict[str, Any]]:
    """Runs up to `count` points on the RTL, and returns their rows of the database. The models are built first."""
    planned = plan(sweep, count)
    steps, done, failed = len(planned.models) + len(planned.missing), 0, dict[str, dict[str, Any]]()

    def said() -> None:
        sweep.stage = f"{planned}: {done} of {steps} steps done"
        sweep.report()

    said()
    for task, result in sweep.dispatch(planned.models):
        done += 1
        if result["state"] == "failed":
            failed[task.key] = result
        said()
    runs = []
    for task in (planned.tasks[key] for key in planned.missing):
        fingerprint = NpuConfig.from_dict(task.job["config"]).fingerprint
        if fingerprint in failed:
            sweep.keep(task, failed[fingerprint])
        else:
            runs.append(task)
    for task, result in sweep.dispatch(runs):
        done += 1
        sweep.keep(task, result)
        said()
    found = [sweep.database.find("verify", key) for key in planned.tasks]
    return [row for row in found if row is not None]


def _linear(terms: tuple[float, float], config: NpuConfig) -> float:
    return terms[0] + terms[1] * config.block_in * config.block_out


def _is_built(config: NpuConfig) -> bool:
    try:
        return is_built(config)
    except BuildError:
        return False  # which the build says again, with all that is wrong
