"""The order in which the runs of a step are written: LOAD and VECTOR go on where they would stand still.

The emitter gives runs in an order that is right if each ends before the next starts. An engine works through its own in
order; so a load that waits for room in ACT holds back the weights behind it, a VECTOR that waits for products holds
back what the next ones are made of, and where a queue is full, nothing further on is even fetched. A clock guesses when
the engines get to their runs. Where LOAD or VECTOR would stand still, runs from further on go first, if by then what
they read has been written and what they overwrite has been used.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.compiler.npu.emit.hazards import WRITERS, Access, Synchroniser
from tilewright.isa.config import SEMAPHORE_LIMIT, NpuConfig
from tilewright.isa.encoding import Op, op
from tilewright.isa.instructions import BY_NAME, Engine, queue_of
from tilewright.isa.timing import DEFAULT_MEMORY, VECTOR_SIGNAL, MemoryTiming, gemm_signal

#: Runs that are ahead of their place at most: each may have given a signal that nobody has taken yet, and where a
#: semaphore is full, somebody has to wait.
_AHEAD = SEMAPHORE_LIMIT // 2
#: How many of an engine's next runs are looked at, and of those that may go first, how many are tried.
_LOOK, _TRY = 64, 8
#: Cycles of standing still that are worth a run.
_GAP = 16
#: Share of the time that runs ahead have to leave, to be worth it.
_BETTER = 0.995
#: Part of a run that may be left when its engine would have gone on.
_LONGER = {Engine.LOAD: 0.5, Engine.VECTOR: 0.5}
#: Part of the time that its engine stands still, after which a run may start at the latest.
_LATER = {Engine.LOAD: 0.0, Engine.VECTOR: 0.5}
#: Runs that may go ahead: not those of ROW, which leave something in VECTOR for the next.
_GOES_AHEAD = {"LOAD": Engine.LOAD, "VECTOR": Engine.VECTOR}
#: Spaces that are written in the order of the program.
_IN_ORDER = {space for space, engines in WRITERS.items() if not {*engines} & {*_GOES_AHEAD.values()}}


class Setting(NamedTuple):
    """A configuration instruction; `key` tells the levels of a register apart."""

    name: str
    key: int
    values: Mapping[str, int]


class Registers:
    """The values of the configuration registers."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], Mapping[str, int]] = {}

    def get(self, name: str, key: int) -> Mapping[str, int]:
        """Returns the value of a register; at the start of a step, one iteration or 0."""
        held = self._held.get((name, key))
        if held is not None:
            return held
        fields = BY_NAME[name].by_name
        return {field: value for field, value in (("level", key), ("count", 1)) if field in fields}

    def change(self, setting: Setting) -> bool:
        """Sets a register; False if it holds these values."""
        name, key, values = setting
        current = self.get(name, key)
        if values == current or not _differ(values, current):
            return False
        self._held[name, key] = values
        return True

    def forget(self) -> None:
        self._held.clear()


def _differ(a: Mapping[str, int], b: Mapping[str, int]) -> bool:
    """True if registers set to `a` and `b` differ; those that are not named are 0."""
    return any(a.get(name, 0) != b.get(name, 0) for name in (*a, *b))


@dataclass(slots=True)
class Run:
    """A run instruction that is to be written.

    Attributes:
        settings: of the registers before it; of LOAD and VECTOR all of them, of other engines those that change.
        engine: of the operation.
        work: its cycles, estimated.
        after: of a run that may go ahead, the numbers of those that must be written before it, in order.
        behind: the last of them that cannot go ahead, -1 for none.
        hides: of such a run, those before it that have read the same rows: who overwrites them comes after these too.
        written: it has been, with so many `instructions`, behind the ends of the runs in `needs`.
        end: the cycle in which it ends, as the clock guesses.
    """

    settings: list[Setting]
    engine: Engine
    operation: Op
    reads: Sequence[Access]
    writes: Sequence[Access]
    work: int
    after: Sequence[int] = ()
    behind: int = -1
    hides: Sequence[int] = ()
    written: bool = False
    instructions: int = 0
    needs: Sequence[Run] = ()
    end: int = 0

    @property
    def movable(self) -> bool:
        """True if it may be issued before earlier instructions."""
        return self.operation.name in _GOES_AHEAD


class _Clock:
    """Guesses when the engines get to the runs that have been written."""

    def __init__(self, config: NpuConfig, memory: MemoryTiming) -> None:
        self._queues = {e: queue_of(e, config) for e in Engine}
        self._starts = {q: deque([0] * config.queue_depth, config.queue_depth) for q in self._queues.values()}
        self.delay = {
            Engine.LOAD: memory.read_latency, Engine.STORE: memory.write_latency, Engine.GEMM: gemm_signal(config),
            Engine.VECTOR: VECTOR_SIGNAL,
        }  # fmt: skip
        self.free = dict.fromkeys(self.delay, 0)
        self._fetched = 0

    def dispatch(self, engine: Engine) -> int:
        """Cycle in which one more instruction can be in the queue of an engine."""
        return max(self._fetched, self._starts[self._queues[engine]][0])

    def take(self, run: Run) -> None:
        """The next run that is written."""
        engine = run.engine
        self._fetched = self.dispatch(engine) + run.instructions
        start = max(self.free[engine], self._fetched, _ready(run.needs))
        self._starts[self._queues[engine]].extend([start] * run.instructions)
        self.free[engine] = start + run.work
        run.end = start + run.work + self.delay[engine]


def _ready(needs: Iterable[Run]) -> int:
    """Cycle in which all of these runs have ended."""
    return max((run.end for run in needs), default=0)


class _Writer:
    """Writes the runs of a step once.

    Args:
        clock: at its start.
        sync: gets the instructions; nothing is in it.
        runs: by the order of the program, `after` set.
        most: runs that are ahead of their place at most.

    Attributes:
        begins: for each run, how many instructions were written when its turn came.
        moved: a run went ahead.
    """

    def __init__(self, clock: _Clock, sync: Synchroniser, runs: Sequence[Run], most: int) -> None:
        self._runs, self._sync, self._most = runs, sync, most
        self._clock, self._registers = clock, Registers()
        self._written: dict[tuple[Engine, int], Run] = {}
        self._waiting: dict[Engine, deque[int]] = {engine: deque() for engine in _GOES_AHEAD.values()}
        for number, run in enumerate(runs):
            run.written = False
            if run.movable:
                self._waiting[run.engine].append(number)
        self._ahead = 0
        self.begins: list[int] = []
        self.moved = False

    def write_all(self) -> None:
        """Writes all runs, and END."""
        for number, run in enumerate(self._runs):
            self.begins.append(len(self._sync.order))
            if run.written:
                self._ahead -= 1
                continue
            if run.movable:
                self._waiting[run.engine].popleft()
            needs = self._needs(run)
            while self._ahead < self._most:
                chosen = self._first(number)
                if not chosen:
                    break
                for one in chosen:
                    self._waiting[self._runs[one].engine].remove(one)
                    self._write(self._runs[one], self._needs(self._runs[one]))
                self._ahead, self.moved = self._ahead + len(chosen), True
                if run.engine in (self._runs[one].engine for one in chosen):  # it may know more by now
                    needs = self._needs(run)
            self._write(run, needs)
        self._sync.configure(op("END"))

    def _needs(self, run: Run) -> dict[Engine, int]:
        needs = self._sync.needs(run.operation, run.reads, run.writes)
        run.needs = [self._written[item] for item in needs.items()]
        return needs

    def _write(self, run: Run, needs: Mapping[Engine, int]) -> None:
        first = len(self._sync.order)
        for setting in run.settings:
            if self._registers.change(setting):
                self._sync.configure(op(setting.name, **setting.values))
        placed = self._sync.run(run.operation, run.reads, run.writes, needs)
        self._written[run.engine, placed.index] = run
        run.instructions, run.written = len(self._sync.order) - first, True
        self._clock.take(run)

    def _first(self, number: int) -> list[int]:
        """Returns the runs that are issued before run `number`: one, behind loads that it reads; none if that gains
        nothing. All runs before `number` have been written."""
        run = self._runs[number]
        dispatched = self._clock.dispatch(run.engine)
        for engine, waiting in self._waiting.items():
            until = max(dispatched, _ready(run.needs)) if run.engine == engine else dispatched
            free = self._clock.free[engine]
            if not waiting or until - free < _GAP:
                continue
            tried, latest = 0, free + _LATER[engine] * (until - free)
            for chosen in itertools.islice(waiting, _LOOK):
                if self._runs[chosen].behind >= number:
                    continue
                loads = self._unwritten(chosen, number, latest)
                if loads is None:
                    continue
                start = self._start(chosen, loads)
                tried += 1
                if start <= latest and start + (1 - _LONGER[engine]) * self._runs[chosen].work <= until:
                    return [*loads, chosen]
                if tried == _TRY:
                    break
        return []

    def _unwritten(self, chosen: int, number: int, latest: float) -> list[int] | None:
        """The loads that have to be written before a run, where all before `number` are; None if others have to, or
        what it comes after ends later than in cycle `latest`."""
        runs, missing = self._runs, []
        after = runs[chosen].after
        if after and after[-1] < number:
            return [] if runs[after[-1]].end <= latest else None
        seen = set(after)
        todo = [n for n in after if n >= number]
        while todo:
            n = todo.pop()
            before = runs[n]
            if before.written:
                if before.end > latest:
                    return None
            elif (
                n == number
                or before.engine != Engine.LOAD
                or not before.movable
                or self._unwritten(n, number, math.inf) != []
            ):
                return None
            else:
                missing.append(n)
            for hidden in before.hides:
                if hidden >= number and hidden not in seen:
                    seen.add(hidden)
                    todo.append(hidden)
        return sorted(missing)

    def _start(self, chosen: int, loads: Sequence[int]) -> int:
        """Guesses when a run would start, behind some loads."""
        run, loaded = self._runs[chosen], self._clock.free[Engine.LOAD]
        for n in loads:
            self._needs(self._runs[n])
            loaded = max(loaded, _ready(self._runs[n].needs)) + self._runs[n].work
        self._needs(run)
        start = max(self._clock.free[run.engine], _ready(run.needs))
        return max(start, loaded + self._clock.delay[Engine.LOAD]) if loads else start


class Sequencer:
    """Takes a step's runs and writes them.

    Args:
        rows: of every space by name, see `Synchroniser`.
        memory: as the program will find it.
    """

    def __init__(self, config: NpuConfig, rows: Mapping[str, int], memory: MemoryTiming = DEFAULT_MEMORY) -> None:
        self._config, self._memory = config, memory
        self._rows = rows
        self._sync = Synchroniser(dict(rows), config)
        self._runs: list[Run] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: Run) -> None:
        """The next run, by the order of the program."""
        self._runs.append(run)

    def take(self) -> tuple[list[Op], list[int]]:
        """The finished instructions of all runs since the last call and END; and for each run where those begin that
        were written when its turn came. State and hazards start afresh.

        Where all would end hardly earlier, no run goes ahead: on a memory slower than the clock thinks it is in the
        way of others.
        """
        runs, self._runs = self._runs, []
        self._find_places(runs)
        finished, begins, moved = self._write(runs, _AHEAD)
        if not moved:
            return finished, begins
        cycles = max(run.end for run in runs)
        clock = _Clock(self._config, self._memory)
        for run in runs:
            clock.take(run)
        if cycles >= _BETTER * max(run.end for run in runs):
            finished, begins, _ = self._write(runs, 0)
        return finished, begins

    def _write(self, runs: Sequence[Run], most: int) -> tuple[list[Op], list[int], bool]:
        """Does what `take` does, with so many runs ahead at most; returns whether there was one."""
        writer = _Writer(_Clock(self._config, self._memory), self._sync, runs, most)
        writer.write_all()
        finished = self._sync.take()
        self._sync.forget()
        return finished, writer.begins, writer.moved

    def _find_places(self, runs: Sequence[Run]) -> None:
        """Sets `after`, `behind` and `hides` of all runs that may go ahead."""
        written, used = ({name: np.full(rows, -1, np.int32) for name, rows in self._rows.items()} for _ in range(2))
        for number, run in enumerate(runs):
            if run.movable:
                after: set[int] = set()
                hides: set[int] = set()
                for access in run.reads:
                    if access.space in _IN_ORDER:
                        after.add(int(access.of(written[access.space]).max(initial=-1)))
                    else:
                        after |= _numbers(access.of(written[access.space]))
                        hides |= _numbers(access.of(used[access.space]))
                for access in run.writes:
                    after |= _numbers(access.of(used[access.space]))
                run.after, run.hides = sorted(after - {-1}), tuple(hides - {-1})
                run.behind = max((n for n in run.after if not runs[n].movable), default=-1)
            for access in run.reads:
                access.of(used[access.space])[...] = number
            for access in run.writes:
                access.of(written[access.space])[...] = number
                access.of(used[access.space])[...] = number


def _numbers(rows: np.ndarray) -> set[int]:
    """All numbers in int32 [rows] or [times, rows]: neighbours mostly have the same."""
    if not rows.size:
        return set()
    flat = rows.reshape(-1)
    return {int(flat[0]), *flat[1:][flat[1:] != flat[:-1]].tolist()}
