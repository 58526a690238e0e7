"""Sweeps in this process: what computes their tasks, and the networks they are for."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tilewright.sweep import resolve, worker
from tilewright.sweep.dispatch import Task
from tilewright.sweep.networks import Network


class Here:
    """Does the tasks in this process and counts them.

    Args:
        seed: of an order of its own, None for the given one.
        most: tasks after which it stops, as by Ctrl-C.
    """

    def __init__(self, seed: int | None = None, most: int = 1_000_000) -> None:
        self.rng, self.left = None if seed is None else random.Random(seed), most
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
            yield task, worker.evaluate(task.job)

    def close(self) -> None: ...


def loaded(sources: Mapping[str, str]) -> list[Network]:
    """Returns networks, from sources by name, with their models ready for `worker.evaluate`."""
    found = [Network(name, network.content) for name, network in zip(sources, resolve([*sources.values()]))]
    worker.Models({n.digest: n.content for n in found}).setup(None)
    return found
