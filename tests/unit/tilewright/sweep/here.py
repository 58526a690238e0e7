"""Sweeps in this process: what computes their tasks, the networks they are for, and a small one for reports."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.common.paths import ROOT
from tilewright.sweep import Database, load_space, resolve, worker
from tilewright.sweep.dispatch import Task
from tilewright.sweep.networks import Network
from tilewright.sweep.runner import Sweep
from tilewright.sweep.search import search

MODEL = ROOT / "examples" / "digits" / "digits_int8.onnx"
#: Twelve points on the digits network, some of them too slow.
SPACE = """
constraints = ["cycles <= 20000"]
[axes]
block_in = [4, 8, 16]
block_out = [8, 16]
[memory]
read_latency = [16, 64]
[search]
prune = false
[objective]
minimise = ["cycles", "lut"]
"""


Known = dict[tuple[str, str], dict[str, Any]]


class Here:
    """Does the tasks in this process and counts them.

    Args:
        seed: of an order of its own, None for the given one.
        most: tasks after which it stops, as by Ctrl-C.
        known: results by the task's kind and key, of sweeps before and of this one.
    """

    def __init__(self, seed: int | None = None, most: int = 1_000_000, known: Known | None = None) -> None:
        self.rng, self.left = None if seed is None else random.Random(seed), most
        self.known = {} if known is None else known
        self.tasks: list[Task] = []

    @property
    def kinds(self) -> list[str]:
        """The kinds of the tasks that were done, in order."""
        return [task.kind for task in self.tasks]

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, dict[str, Any]]]:
        waiting = list(tasks)
        if self.rng is not None:
            self.rng.shuffle(waiting)
        for task in waiting:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            self.tasks.append(task)
            if (task.kind, task.key) not in self.known:
                self.known[task.kind, task.key] = worker.evaluate(task.job)
            yield task, self.known[task.kind, task.key]

    def close(self) -> None: ...


def loaded(sources: Mapping[str, str]) -> list[Network]:
    """Returns networks, from sources by name, with their models ready for `worker.evaluate`."""
    found = [Network(name, network.content) for name, network in zip(sources, resolve([*sources.values()]))]
    worker.Models({n.digest: n.content for n in found}).setup(None)
    return found


def swept(path: Path, space_text: str) -> Path:
    """Sweeps a space over the digits network into a folder."""
    (path / "space.toml").write_text(space_text)
    network = Network("digits", MODEL.read_bytes())
    worker.Models({network.digest: network.content}).setup(None)
    with Database(path) as database:
        space = load_space(path / "space.toml", ["digits"])
        sweep = Sweep(space, [network], database, Here)  # type: ignore[arg-type]
        search(space, sweep.evaluate)
        database.end_sweep(sweep.id)
    return path
