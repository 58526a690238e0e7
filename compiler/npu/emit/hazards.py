"""Hazards: semaphores that keep instructions of different engines apart where they touch the same rows.

The emitter gives run instructions in one sequential order, which is right if each ends before the next starts, with
the scratchpad rows and memory bytes each one touches. The synchroniser finds which earlier instruction of which engine
every instruction must wait for, drops what another wait implies, and expresses the rest with one counting semaphore
per ordered pair of engines: the n-th wait of a pair takes the n-th signal. Every wait is for an earlier instruction;
so no queue, however short, can deadlock, nor can engines that share a queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from isa.encoding import Op, op
from isa.instructions import Engine

#: Bytes of external memory that share one hazard entry.
MEMORY_GRAIN = 256

#: Engines that write and that read each space.
WRITERS = {
    "act": (Engine.LOAD, Engine.VECTOR),
    "wgt": (Engine.LOAD,),
    "prm": (Engine.LOAD,),
    "lut": (Engine.LOAD,),
    "acc": (Engine.GEMM,),
    "memory": (Engine.STORE,),
}
READERS = {
    "act": (Engine.GEMM, Engine.VECTOR, Engine.STORE),
    "wgt": (Engine.GEMM,),
    "prm": (Engine.VECTOR,),
    "lut": (Engine.VECTOR,),
    "acc": (Engine.VECTOR,),
    "memory": (Engine.LOAD,),
}


@dataclass(frozen=True)
class Access:
    """Rows start..start+count-1 of a scratchpad, or bytes of the arena (space "memory")."""

    space: str
    start: int
    count: int


@dataclass
class Placed:
    """A run instruction in program order, with its semaphores.

    Attributes:
        index: position among this engine's run instructions.
        known: per engine, the index of the last instruction that has surely ended when this one starts.
        waits, signals: numbers of semaphores, two of each at most.
    """

    op: Op
    engine: Engine
    index: int
    known: dict[Engine, int]
    waits: list[int] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)


class _Space:
    """The last accesses to a scratchpad or to memory: per engine and row the index of the last instruction that wrote
    or read it, -1 for none."""

    def __init__(self, name: str, rows: int) -> None:
        self.write = {e: np.full(rows, -1, np.int32) for e in WRITERS[name]}
        self.read = {e: np.full(rows, -1, np.int32) for e in READERS[name]}


class Synchroniser:
    """The collector of a step's instructions, which gives each its semaphores.

    Args:
        rows: size of every space by name, in rows; of "memory" in units of `MEMORY_GRAIN` bytes.
        semaphores: how many the machine has.
    """

    def __init__(self, rows: dict[str, int], semaphores: int) -> None:
        self._spaces = {name: _Space(name, n) for name, n in rows.items()}
        self._semaphores = semaphores
        self._pair: dict[tuple[Engine, Engine], int] = {}
        self._last_signal: dict[tuple[Engine, Engine], int] = {}
        self._engines: dict[Engine, list[Placed]] = {e: [] for e in Engine if e != Engine.FETCH}
        self.order: list[Placed | Op] = []

    def configure(self, operation: Op) -> None:
        """Appends an instruction that only sets registers."""
        self.order.append(operation)

    def run(self, operation: Op, reads: Iterable[Access], writes: Iterable[Access]) -> Placed:
        """Appends a run instruction, with a SYNC before it where it would need a third wait."""
        engine = operation.instruction.engine
        reads, writes = list(reads), list(writes)
        needs = self._needs(engine, reads, writes)
        placed = self._place(operation, engine, needs)
        for access in reads:
            lo, hi = _span(access)
            self._spaces[access.space].read[engine][lo:hi] = placed.index
        for access in writes:
            lo, hi = _span(access)
            self._spaces[access.space].write[engine][lo:hi] = placed.index
        return placed

    def forget(self) -> None:
        """A new program starts: everything before is complete. Call between NPU steps."""
        for space in self._spaces.values():
            for rows in (*space.write.values(), *space.read.values()):
                rows.fill(-1)
        for placed in self._engines.values():
            placed.clear()
        self._last_signal.clear()
        self._pair.clear()

    def take(self) -> list[Op]:
        """The finished instructions since the last call, semaphores filled in."""
        finished = []
        for item in self.order:
            if isinstance(item, Op):
                finished.append(item)
                continue
            values = dict(item.op.values)
            values |= {f"wait{i}": s for i, s in enumerate(item.waits)}
            values |= {f"signal{i}": s for i, s in enumerate(item.signals)}
            finished.append(Op(item.op.instruction, values))
        self.order = []
        return finished

    def _needs(self, engine: Engine, reads: list[Access], writes: list[Access]) -> dict[Engine, int]:
        """Per engine, the last of its instructions that must have ended before these accesses.

        An engine keeps its own instructions in order, with one exception: a VECTOR may read before an earlier one has
        written.
        """
        needs: dict[Engine, int] = {}

        def need(other: Engine, rows: np.ndarray, same_engine: bool = False) -> None:
            if other == engine and not same_engine:
                return
            last = int(rows.max(initial=-1))
            if last > needs.get(other, -1):
                needs[other] = last

        for access in reads:
            lo, hi = _span(access)
            for other, rows in self._spaces[access.space].write.items():
                need(other, rows[lo:hi], same_engine=engine == Engine.VECTOR)
        for access in writes:
            lo, hi = _span(access)
            for other, rows in self._spaces[access.space].write.items():
                need(other, rows[lo:hi])
            for other, rows in self._spaces[access.space].read.items():
                need(other, rows[lo:hi])
        return needs

    def _place(self, operation: Op, engine: Engine, needs: dict[Engine, int]) -> Placed:
        """Appends an instruction that waits for what it needs and does not know to have ended."""
        queue = self._engines[engine]
        known = dict(queue[-1].known) if queue else dict.fromkeys(self._engines, -1)
        waits: list[tuple[Engine, int]] = []
        # Latest requirements first: what they know often covers the others.
        for other, last in sorted(needs.items(), key=lambda item: -self._knowledge(item)):
            if known[other] < last:
                signaller = self._signaller(other, engine, last)
                waits.append((other, signaller))
                _merge(known, self._engines[other][signaller])
        if len(waits) > 2:
            # A SYNC of the same engine takes the waits that do not fit.
            sync = op(f"{engine.name}_SYNC")
            extra, waits = waits[2:], waits[:2]
            self._place_exact(sync, engine, extra)
            queue = self._engines[engine]
            known = dict(queue[-1].known)
            waits = [(e, i) for e, i in waits if known[e] < i]
        return self._place_exact(operation, engine, waits)

    def _knowledge(self, item: tuple[Engine, int]) -> int:
        """How much is known to have ended once an instruction (engine, index) has."""
        return sum(self._engines[item[0]][item[1]].known.values()) + item[1]

    def _signaller(self, other: Engine, engine: Engine, last: int) -> int:
        """The first instruction of `other` from `last` on that can still give a signal (a fresh SYNC if none)."""
        for placed in self._engines[other][last:]:
            if len(placed.signals) < 2:
                return placed.index
        return self._place_exact(op(f"{other.name}_SYNC"), other, []).index

    def _place_exact(self, operation: Op, engine: Engine, waits: list[tuple[Engine, int]]) -> Placed:
        """Appends an instruction with waits for just these instructions (engine, index)."""
        queue = self._engines[engine]
        known = dict(queue[-1].known) if queue else dict.fromkeys(self._engines, -1)
        placed = Placed(operation, engine, len(queue), known)
        for other, index in waits:
            semaphore = self._channel(other, engine)
            source = self._engines[other][index]
            source.signals.append(semaphore)
            placed.waits.append(semaphore)
            _merge(known, source)
        queue.append(placed)
        self.order.append(placed)
        return placed

    def _channel(self, source: Engine, target: Engine) -> int:
        """Number of the semaphore that `source` signals and `target` waits for."""
        key = (source, target)
        if key not in self._pair:
            self._pair[key] = len(self._pair) + 1
            if len(self._pair) > self._semaphores:
                raise ValueError(f"the schedule needs {len(self._pair)} semaphores, the machine has {self._semaphores}")
        return self._pair[key]


def _merge(known: dict[Engine, int], source: Placed) -> None:
    """Adds to `known` what is known once `source` has ended."""
    for engine, index in source.known.items():
        known[engine] = max(known[engine], index)
    known[source.engine] = max(known[source.engine], source.index)


def _span(access: Access) -> tuple[int, int]:
    """First entry of the space that an access touches, and the one after the last."""
    if access.space == "memory":
        return access.start // MEMORY_GRAIN, -(-(access.start + access.count) // MEMORY_GRAIN)
    return access.start, access.start + access.count
