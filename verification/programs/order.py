"""Puts run instructions of several engines in order by the fewest semaphores.

Every record says what it reads and writes; where two engines conflict, the later instruction waits for a signal that
the earlier one, or a later one of the same engine, gives.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from tilewright.isa.encoding import Op, op
from tilewright.isa.instructions import Engine


@dataclass
class Record:
    """A run instruction with what it touches: bool masks by resource."""

    engine: Engine
    values: dict[str, int]
    name: str
    reads: dict[str, np.ndarray] = field(default_factory=dict)
    writes: dict[str, np.ndarray] = field(default_factory=dict)
    waits: list[int] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)

    def op(self) -> Op:
        semaphores = {f"wait{i}": s for i, s in enumerate(self.waits)}
        semaphores |= {f"signal{i}": s for i, s in enumerate(self.signals)}
        return op(self.name, **self.values, **semaphores)


def touch(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return any(bool((a[k] & b[k]).any()) for k in a.keys() & b.keys())


class Order:
    """A stream of instructions that is given waits and signals while it grows.

    Args:
        rng: source of the choices that do not matter for the result.
        semaphores: how many there are.
    """

    def __init__(self, rng: random.Random, semaphores: int) -> None:
        self.rng = rng
        self.stream: list[Record | Op] = []
        self.records: list[Record] = []
        self.ids: dict[tuple[Engine, Engine], int] = {}  # semaphore by giver and taker
        self.free_ids = rng.sample(range(1, semaphores + 1), semaphores)
        self.seen: dict[tuple[Engine, Engine], int] = {}  # record up to which the taker knows the giver
        self.signalled: dict[tuple[Engine, Engine], int] = {}
        self.uses: dict[tuple[Engine, Engine], int] = {}

    def _semaphore(self, pair: tuple[Engine, Engine]) -> int:
        if pair not in self.ids:
            self.ids[pair] = self.free_ids.pop()
        return self.ids[pair]

    def append(self, record: Record) -> None:
        """Appends a run instruction as it is."""
        self.stream.append(record)
        self.records.append(record)

    def _conflicts(self, old: Record, new: Record) -> bool:
        if old.engine == new.engine:  # in order, but VECTOR may read what an earlier VECTOR still writes
            return new.engine == Engine.VECTOR and touch(old.writes, new.reads)
        return touch(old.writes, new.reads) or touch(old.reads, new.writes) or touch(old.writes, new.writes)

    def add(self, record: Record) -> None:
        """Appends a run instruction, ordered after everything it conflicts with."""
        waits = []
        for engine in list(Engine)[1:]:
            pair = (engine, record.engine)
            after = self.seen.get(pair, -1)
            conflicts = (
                i
                for i in range(len(self.records) - 1, after, -1)
                if self.records[i].engine == engine and self._conflicts(self.records[i], record)
            )
            needed = next(conflicts, None)
            if needed is not None:
                waits.append(self.signal(pair, needed))
        self.rng.shuffle(waits)
        while len(waits) > 2 or (waits and self.rng.random() < 0.1):
            taken = [waits.pop() for _ in range(min(len(waits), 2))]
            self.append(Record(record.engine, {}, f"{record.engine.name}_SYNC", waits=taken))
        record.waits = waits
        self.append(record)

    def signal(self, pair: tuple[Engine, Engine], needed: int) -> int:
        """Lets an instruction of pair[0] at or after `needed` signal pair[1]; returns the semaphore."""
        semaphore = self._semaphore(pair)
        self.uses[pair] = self.uses.get(pair, 0) + 1
        first = max(needed, self.signalled.get(pair, -1) + 1)
        for i in range(first, len(self.records)):
            if self.records[i].engine == pair[0] and len(self.records[i].signals) < 2:
                break
        else:
            i = len(self.records)
            self.append(Record(pair[0], {}, f"{pair[0].name}_SYNC"))
        self.records[i].signals.append(semaphore)
        self.signalled[pair] = self.seen[pair] = i
        return semaphore
