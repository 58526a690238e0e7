"""Hazards: semaphores that keep instructions of different engines apart where they touch the same rows.

The emitter gives run instructions in one sequential order, which is right if each ends before the next starts, with
the scratchpad rows and memory bytes each one touches. The synchroniser finds which earlier instruction of which engine
every instruction must wait for, drops what another wait implies, and expresses the rest with one counting semaphore
per ordered pair of engines: the n-th wait of a pair takes the n-th signal. Every wait is for an earlier instruction;
so no queue, however short, can deadlock, nor can engines that share a queue.

No semaphore can count beyond its limit, however long each instruction takes: a signal is given by an instruction by
whose end so many earlier ones of the pair have surely been taken that there is room for it. Where no instruction of
the giver knows enough, a SYNC waits for the taker first. The taker can always signal that: between two engines the
semaphores of both directions are never full.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tilewright.compiler.npu.emit.starts import Started, Starts
from tilewright.isa.config import SEMAPHORE_LIMIT, NpuConfig
from tilewright.isa.encoding import Op, op
from tilewright.isa.instructions import Engine

#: Bytes of external memory that share one hazard entry.
MEMORY_GRAIN = 256

#: Engines that write and that read each space.
WRITERS = {
    "act": (Engine.LOAD, Engine.VECTOR),
    "wgt": (Engine.LOAD,),
    "prm": (Engine.LOAD, Engine.VECTOR),
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
#: Index of an instruction that there is not: before the first.
_NEVER = -1


class Access(NamedTuple):
    """Rows start..start+length-1 of a scratchpad, `times` times at a stride; or bytes of the arena (space "memory"),
    once."""

    space: str
    start: int
    length: int
    times: int = 1
    stride: int = 0

    def of(self, rows: np.ndarray) -> np.ndarray:
        """Returns a view of the entries (int32, contiguous) of the space that the access touches; it may have two
        axes."""
        if self.space == "memory":
            return rows[self.start // MEMORY_GRAIN : -(-(self.start + self.length) // MEMORY_GRAIN)]
        if self.times == 1:
            return rows[self.start : self.start + self.length]
        unit = rows.itemsize
        return np.ndarray((self.times, self.length), rows.dtype, rows, self.start * unit, (self.stride * unit, unit))


@dataclass
class Placed:
    """A run instruction in program order, with its semaphores.

    Attributes:
        index: position among this engine's run instructions.
        known: per engine, the index of the last instruction that has surely ended when this one starts.
        started: the same of those that have surely started.
        waits, signals: numbers of semaphores, two of each at most.
    """

    op: Op
    engine: Engine
    index: int
    known: dict[Engine, int]
    started: Started = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)


class _Space:
    """The last accesses to a scratchpad or to memory: per engine and row the index of the last instruction that wrote
    or read it.

    Attributes:
        last_write, last_read: per engine, the highest index of all rows.
    """

    def __init__(self, name: str, rows: int) -> None:
        self.write = {e: np.full(rows, _NEVER, np.int32) for e in WRITERS[name]}
        self.read = {e: np.full(rows, _NEVER, np.int32) for e in READERS[name]}
        self.last_write = dict.fromkeys(WRITERS[name], _NEVER)
        self.last_read = dict.fromkeys(READERS[name], _NEVER)

    def forget(self) -> None:
        """Nothing was accessed yet."""
        for rows, last in ((self.write, self.last_write), (self.read, self.last_read)):
            for engine in rows:
                if last[engine] > _NEVER:
                    rows[engine].fill(_NEVER)
                    last[engine] = _NEVER


@dataclass
class _Channel:
    """The semaphore with which one engine signals another.

    Attributes:
        number: of the semaphore.
        takers: indices of the instructions that wait for it, one for each signal.
    """

    number: int
    takers: list[int] = field(default_factory=list)

    def taken(self, started: int) -> int:
        """Signals that have been taken once the taking engine's instruction `started` has."""
        return bisect_right(self.takers, started)


#: An access, and the space it touches.
_Touched = tuple[_Space, Access]


class Synchroniser:
    """The collector of a step's instructions, which gives each its semaphores.

    Args:
        rows: size of every space by name, in rows; of "memory" in units of `MEMORY_GRAIN` bytes.
        config: how many semaphores the machine has, and what its queues hold.
        limit: to which a semaphore counts.
    """

    def __init__(self, rows: dict[str, int], config: NpuConfig, limit: int = SEMAPHORE_LIMIT) -> None:
        self._spaces = {name: _Space(name, n) for name, n in rows.items()}
        self._semaphores, self._limit = config.semaphores, limit
        self._starts = Starts(config)
        self._channels: dict[tuple[Engine, Engine], _Channel] = {}
        self._engines: dict[Engine, list[Placed]] = {e: [] for e in Engine if e != Engine.FETCH}
        self.order: list[Placed | Op] = []

    def configure(self, operation: Op) -> None:
        """Appends an instruction that only sets registers, or END."""
        self._starts.configure(operation.instruction.engine)
        self.order.append(operation)

    def run(
        self,
        operation: Op,
        reads: Iterable[Access],
        writes: Iterable[Access],
        needs: Mapping[Engine, int] | None = None,
    ) -> Placed:
        """Appends a run instruction, with a SYNC before it where it would need a third wait.

        Args:
            needs: what `needs` gives for these accesses, where the caller has asked.
        """
        if needs is None:
            needs = self.needs(operation, reads, writes)
        engine = operation.instruction.engine
        placed = self._place(operation, engine, needs)
        index = placed.index
        for space, access in map(self._touched, reads):
            access.of(space.read[engine])[...] = space.last_read[engine] = index
        for space, access in map(self._touched, writes):
            access.of(space.write[engine])[...] = space.last_write[engine] = index
        return placed

    def forget(self) -> None:
        """A new program starts: everything before is complete. Call between NPU steps."""
        for space in self._spaces.values():
            space.forget()
        for placed in self._engines.values():
            placed.clear()
        self._starts.forget()
        self._channels.clear()

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

    def _touched(self, access: Access) -> _Touched:
        return self._spaces[access.space], access

    def needs(self, operation: Op, read: Iterable[Access], written: Iterable[Access]) -> dict[Engine, int]:
        """Per engine, the last of its instructions that must have ended before these accesses and may not have.

        An engine keeps its own instructions in order, with one exception: a VECTOR may read before an earlier one has
        written.
        """
        engine = operation.instruction.engine
        reads, writes = [self._touched(a) for a in read], [self._touched(a) for a in written]
        queue = self._engines[engine]
        known = queue[-1].known if queue else dict.fromkeys(self._engines, _NEVER)
        needs: dict[Engine, int] = {}
        for other, rows, access, last in self._earlier(engine, reads, writes):
            # Most are known to have ended, whichever rows they touched.
            enough = needs.get(other, known[other])
            if last > enough and access.length > 0:
                found = int(access.of(rows).max())
                if found > enough:
                    needs[other] = found
        if len(needs) > 1 and len({self._knowledge(item) for item in needs.items()}) < len(needs):
            # Which of them comes first then decides: the one that touched the first of the rows.
            earlier = self._earlier(engine, reads, writes)
            met = [other for other, rows, access, _ in earlier if access.of(rows).max(initial=_NEVER) > _NEVER]
            needs = {other: needs[other] for other in met if other in needs}
        return needs

    def _earlier(
        self, engine: Engine, reads: list[_Touched], writes: list[_Touched]
    ) -> Iterator[tuple[Engine, np.ndarray, Access, int]]:
        """Yields what must have ended before these accesses: an engine, the indices of its accesses to each row of a
        space, the access that counts, and the highest index of all rows."""
        for space, access in reads:
            for other, rows in space.write.items():
                if other != engine or engine == Engine.VECTOR:
                    yield other, rows, access, space.last_write[other]
        for space, access in writes:
            for all_rows, last in ((space.write, space.last_write), (space.read, space.last_read)):
                for other, rows in all_rows.items():
                    if other != engine:
                        yield other, rows, access, last[other]

    def _place(self, operation: Op, engine: Engine, needs: Mapping[Engine, int]) -> Placed:
        """Appends an instruction that waits for what it needs and does not know to have ended."""
        queue = self._engines[engine]
        known = dict(queue[-1].known) if queue else dict.fromkeys(self._engines, _NEVER)
        waits: list[tuple[Engine, int]] = []
        # Latest requirements first: what they know often covers the others.
        for other, last in sorted(needs.items(), key=lambda item: -self._knowledge(item)):
            if known[other] < last:
                signaller = self._signaller(other, engine, last, waits)
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
        """Returns, by engine, how many instructions have ended once instruction (engine, index) has."""
        return sum(self._engines[item[0]][item[1]].known.values()) + item[1]

    def _signaller(self, other: Engine, engine: Engine, last: int, chosen: list[tuple[Engine, int]]) -> int:
        """The first instruction of `other` from `last` on that can still give `engine` a signal (a fresh SYNC if none).

        Args:
            chosen: those that are to give one besides.
        """
        for placed in self._engines[other][last:]:
            if len(placed.signals) < 2 and self._has_room(other, engine, placed.started):
                return placed.index
        # Behind a fresh SYNC `engine` knows all that `other` has taken: it has room again in its own direction.
        full = self._left(other, engine, self._starts.newest(other)) == self._limit
        waits = [(engine, self._taker(other, engine, chosen))] if full else []
        return self._place_exact(op(f"{other.name}_SYNC"), other, waits).index

    def _has_room(self, source: Engine, target: Engine, started: Started) -> bool:
        """True if the semaphore has room for a signal that is given when so much has started, and one of the two
        directions between the engines will have room for another."""
        left = self._left(source, target, started)
        if left < self._limit - 1:
            return True
        return left < self._limit and self._left(target, source, self._starts.newest(target)) < self._limit

    def _left(self, source: Engine, target: Engine, started: Started) -> int:
        """Signals so far that may not have been taken when so much has started."""
        channel = self._channels.get((source, target))
        # Given are as many as are waited for.
        return len(channel.takers) - channel.taken(started[target]) if channel is not None else 0

    def _taker(self, source: Engine, target: Engine, chosen: list[tuple[Engine, int]]) -> int:
        """An instruction of `target` by whose start half of the signals of `source` that may be left have been taken,
        and which can give `source` a signal."""
        channel = self._channels[source, target]
        taken = channel.taken(self._starts.newest(source)[target])
        for placed in self._engines[target][channel.takers[(taken + len(channel.takers)) // 2] :]:
            free = len(placed.signals) < 2 and (target, placed.index) not in chosen
            if free and self._has_room(target, source, placed.started):
                return placed.index
        return self._place_exact(op(f"{target.name}_SYNC"), target, []).index

    def _place_exact(self, operation: Op, engine: Engine, waits: list[tuple[Engine, int]]) -> Placed:
        """Appends an instruction with waits for just these instructions (engine, index)."""
        queue = self._engines[engine]
        known = dict(queue[-1].known) if queue else dict.fromkeys(self._engines, _NEVER)
        placed = Placed(operation, engine, len(queue), known)
        sources = [self._engines[other][index] for other, index in waits]
        for source in sources:
            channel = self._channel(source.engine, engine)
            source.signals.append(channel.number)
            placed.waits.append(channel.number)
            channel.takers.append(placed.index)
            _merge(known, source)
        placed.started = self._starts.run(engine, placed.index, [source.started for source in sources])
        queue.append(placed)
        self.order.append(placed)
        return placed

    def _channel(self, source: Engine, target: Engine) -> _Channel:
        """The semaphore that `source` signals and `target` waits for."""
        key = (source, target)
        if key not in self._channels:
            number = len(self._channels) + 1
            if number > self._semaphores:
                raise ValueError(f"the schedule needs {number} semaphores, the machine has {self._semaphores}")
            self._channels[key] = _Channel(number)
        return self._channels[key]


def _merge(known: dict[Engine, int], source: Placed) -> None:
    """Adds to `known` what is known once `source` has ended."""
    for engine, index in source.known.items():
        if index > known[engine]:
            known[engine] = index
    if source.index > known[source.engine]:
        known[source.engine] = source.index
