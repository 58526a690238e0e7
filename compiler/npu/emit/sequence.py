"""The order in which the runs of a step are written: LOAD fetches ahead where it would stand still.

The emitter gives runs in an order that is right if each ends before the next starts. LOAD works through its own in
order; so one that waits for room in ACT holds back the weights behind it, and where a queue is full, nothing further on
is even fetched. A clock guesses when the engines get to their runs. Where LOAD would stand still, loads from further on
go first, if by then what they read has been written and what they overwrite has been used.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from compiler.npu.emit.hazards import Access, Synchroniser
from isa.config import SEMAPHORE_LIMIT, NpuConfig
from isa.encoding import Op, op
from isa.instructions import Engine, queue_of
from isa.timing import VECTOR_SIGNAL, MemoryTiming, gemm_signal

#: Loads that are ahead of their place at most: each may have given a signal that nobody has taken yet.
_AHEAD = SEMAPHORE_LIMIT // 2
#: How many of the next loads are looked at, and of those that may go first, how many are tried.
_LOOK, _TRY = 64, 8
#: Cycles of standing still that are worth a load.
_GAP = 16
#: Share of the time that loads ahead have to leave, to be worth it.
_BETTER = 0.995
#: Part of a load that may be left when LOAD would have gone on.
_LONGER = 0.5


class Setting(NamedTuple):
    """A configuration instruction; `key` tells the levels of a register apart."""

    name: str
    key: int
    values: Mapping[str, int]


class Registers:
    """What configuration registers hold."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], Mapping[str, int]] = {}

    def get(self, name: str, key: int) -> Mapping[str, int] | None:
        return self._held.get((name, key))

    def change(self, setting: Setting) -> bool:
        """Sets a register; False if it holds these values."""
        name, key, values = setting
        current = self._held.get((name, key))
        if current is None:
            current = {"count": 1} if "count" in values else {}
            current |= {"level": values["level"]} if "level" in values else {}
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
        settings: of the registers before it; of LOAD all of them, of other engines those that change.
        engine: of the operation.
        work: its cycles, estimated.
        after: of a load that may go ahead, the number of the last run that must be written before it, -1 for none.
        written: it has been, with so many `instructions`, behind the ends of the runs in `needs`.
        end: the cycle in which it ends, as the clock guesses.
    """

    settings: list[Setting]
    engine: Engine
    operation: Op
    reads: Sequence[Access]
    writes: Sequence[Access]
    work: int
    after: int = -1
    written: bool = False
    instructions: int = 0
    needs: Sequence[Run] = ()
    end: int = 0


class _Clock:
    """Guesses when the engines get to the runs that have been written."""

    def __init__(self, config: NpuConfig) -> None:
        self._queues = {e: queue_of(e, config) for e in Engine}
        self._starts = {q: deque([0] * config.queue_depth, config.queue_depth) for q in self._queues.values()}
        memory = MemoryTiming()
        self._delay = {
            Engine.LOAD: memory.read_latency, Engine.STORE: memory.write_latency, Engine.GEMM: gemm_signal(config),
            Engine.VECTOR: VECTOR_SIGNAL,
        }  # fmt: skip
        self.free = dict.fromkeys(self._delay, 0)
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
        run.end = start + run.work + self._delay[engine]


def _ready(needs: Iterable[Run]) -> int:
    """Cycle in which all of these runs have ended."""
    return max((run.end for run in needs), default=0)


class Sequencer:
    """Takes a step's runs and writes them.

    Args:
        rows: of every space by name, see `Synchroniser`.
    """

    def __init__(self, config: NpuConfig, rows: Mapping[str, int]) -> None:
        self._config = config
        self._rows = rows
        self._sync = Synchroniser(dict(rows), config.semaphores)
        self._runs: list[Run] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: Run) -> None:
        """The next run, by the order of the program."""
        self._runs.append(run)

    def take(self) -> tuple[list[Op], list[int]]:
        """The finished instructions of all runs since the last call and END; and for each run where those begin that
        were written when its turn came. State and hazards start afresh.

        Where all would end hardly earlier, no load goes ahead: on a memory slower than the clock thinks it is in the
        way of others.
        """
        runs, self._runs = self._runs, []
        self._find_last_uses(runs)
        early, begins, moved = self._write(runs, _AHEAD)
        if not moved:
            return early, begins
        cycles = max(run.end for run in runs)
        clock = _Clock(self._config)
        for run in runs:
            clock.take(run)
        return (early, begins) if cycles < _BETTER * max(run.end for run in runs) else self._write(runs, 0)[:2]

    def _write(self, runs: Sequence[Run], most: int) -> tuple[list[Op], list[int], bool]:
        """As `take`, with so many loads ahead at most; and whether there was one."""
        clock, registers, sync = _Clock(self._config), Registers(), self._sync
        written: dict[tuple[Engine, int], Run] = {}
        begins: list[int] = []
        waiting = deque(number for number, run in enumerate(runs) if run.operation.name == "LOAD")
        ahead, moved = 0, False
        for run in runs:
            run.written = False

        def needs_of(run: Run) -> dict[Engine, int]:
            needs = sync.needs(run.operation, run.reads, run.writes)
            run.needs = [written[item] for item in needs.items()]
            return needs

        def write(run: Run, needs: Mapping[Engine, int]) -> None:
            first = len(sync.order)
            for setting in run.settings:
                if run.engine != Engine.LOAD or registers.change(setting):
                    sync.configure(op(setting.name, **setting.values))
            placed = sync.run(run.operation, run.reads, run.writes, needs)
            written[run.engine, placed.index] = run
            run.instructions, run.written = len(sync.order) - first, True
            clock.take(run)

        def able(chosen: int, number: int) -> bool:
            after = runs[chosen].after
            return after < number and (after < 0 or runs[after].end <= clock.free[Engine.LOAD])

        def goes_first(number: int, until: int) -> tuple[int, dict[Engine, int]] | None:
            """A load that could start at once and be nearly done by cycle `until`, when LOAD goes on anyway, with what
            it needs; all runs before `number` have been written."""
            free = clock.free[Engine.LOAD]
            if until - free < _GAP:
                return None
            near = (chosen for chosen in itertools.islice(waiting, _LOOK) if able(chosen, number))
            for chosen in itertools.islice(near, _TRY):
                run = runs[chosen]
                needs = needs_of(run)
                if _ready(run.needs) <= free and free + (1 - _LONGER) * run.work <= until:
                    return chosen, needs
            return None

        for number, run in enumerate(runs):
            begins.append(len(sync.order))
            if run.written:
                ahead -= 1
                continue
            if waiting and waiting[0] == number:
                waiting.popleft()
            needs = needs_of(run)
            while waiting and ahead < most:
                until = clock.dispatch(run.engine)
                if run.engine == Engine.LOAD:
                    until = max(until, _ready(run.needs))
                first = goes_first(number, until)
                if first is None:
                    break
                chosen, its_needs = first
                waiting.remove(chosen)
                write(runs[chosen], its_needs)
                ahead, moved = ahead + 1, True
                if run.engine == Engine.LOAD:  # it may know more by now
                    needs = needs_of(run)
            write(run, needs)
        sync.configure(op("END"))
        finished = sync.take()
        sync.forget()
        return finished, begins, moved

    def _find_last_uses(self, runs: Sequence[Run]) -> None:
        """Sets `after` of all loads."""
        last = {name: np.full(rows, -1, np.int32) for name, rows in self._rows.items() if name != "acc"}
        for number, run in enumerate(runs):
            loads = run.operation.name == "LOAD"
            # Only what is written of memory matters: there loads are the only ones that read.
            for access in (*(() if loads else run.reads), *run.writes):
                if access.space in last:
                    rows = last[access.space][slice(*access.entries())]
                    if loads:
                        run.after = max(run.after, int(rows.max(initial=-1)))
                    rows[:] = number
            for access in run.reads if loads else ():
                run.after = max(run.after, int(last[access.space][slice(*access.entries())].max(initial=-1)))
