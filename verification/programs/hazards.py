"""Programs of runs with what they read and write, for tests of hazards; and what their semaphores must keep apart."""

from __future__ import annotations

import random
from collections.abc import Mapping

from tilewright.compiler.npu.emit.spaces import MEMORY_GRAIN, READERS, WRITERS
from tilewright.isa.config import SEMAPHORE_LIMIT, NpuConfig
from tilewright.isa.encoding import Op, op
from tilewright.isa.instructions import Engine
from verification.programs import accesses
from verification.programs.accesses import Access, assembled, rows_of

ROWS = dict.fromkeys(WRITERS, 40)
MACHINE = NpuConfig()
Accesses = list[Access]
#: An instruction by name, what it reads and what it writes.
Run = tuple[str, Accesses, Accesses]
_NAMES = {Engine.LOAD: "LOAD", Engine.GEMM: "GEMM", Engine.VECTOR: "VECTOR", Engine.STORE: "STORE"}


def synchronised(
    *runs: Run, config: NpuConfig = MACHINE, limit: int = SEMAPHORE_LIMIT, rows: Mapping[str, int] = ROWS
) -> list[Op]:
    """Returns the finished instructions of a program, in its order and without END."""
    made = [accesses.Run(op(name), reads, writes) for name, reads, writes in runs]
    return assembled(made, config, rows, limit, ahead=False)[0][:-1]


def access_of(space: str, start: int, length: int, times: int = 1, stride: int = 0) -> Access:
    """Rows of a scratchpad, `times` times; or grains of memory, once."""
    if space == "memory":
        return Access(space, start * MEMORY_GRAIN, length * MEMORY_GRAIN)
    return Access(space, start, length, times, stride)


def _spaces(rng: random.Random, engine: Engine) -> list[list[str]]:
    """Draws the spaces that a run of the engine reads, and those that it writes."""
    touched = [[space for space, engines in table.items() if engine in engines] for table in (READERS, WRITERS)]
    return [rng.sample(spaces, rng.randint(0, len(spaces))) for spaces in touched]


def random_program(rng: random.Random) -> list[Run]:
    """Runs of all engines in turn, which often meet."""
    runs = []
    for _ in range(60):
        engine, name = rng.choice(list(_NAMES.items()))
        reads, writes = (
            [access_of(s, rng.randrange(12), rng.randint(1, 4), rng.randint(1, 3), rng.randint(1, 9)) for s in spaces]
            for spaces in _spaces(rng, engine)
        )
        runs.append((name, reads, writes))
    return runs


def bursts(rng: random.Random, length: int = 150, longest: int = 24) -> list[Run]:
    """Returns many runs of one engine, one row further each, before those of the next: signals pile up."""
    runs: list[Run] = []
    while len(runs) < length:
        engine, name = rng.choice(list(_NAMES.items()))
        first, step = rng.randrange(20), rng.randint(0, 2)
        reads, writes = _spaces(rng, engine)
        for i in range(rng.randint(1, longest)):
            row = (first + i * step) % 36
            sides = ([access_of(s, row, rng.randint(1, 3)) for s in spaces] for spaces in (reads, writes))
            runs.append((name, *sides))  # type: ignore[arg-type]
    return runs


def overlap(a: Accesses, b: Accesses) -> bool:
    return any(x.space == y.space and rows_of(x) & rows_of(y) for x in a for y in b)


def check_order(runs: list[Run], ops: list[Op]) -> None:
    """Checks that conflicting instructions never overlap, whatever order the semaphores allow, and that no wait is
    superfluous. A wait is superfluous for what has surely ended when the instruction before it of its engine starts.

    Engines start and end their instructions in order; the n-th wait of a semaphore takes its n-th signal.
    """
    signals: dict[int, list[int]] = {}
    for number, operation in enumerate(ops):
        for name in ("signal0", "signal1"):
            if operation[name]:
                signals.setdefault(operation[name], []).append(number)
    taken = dict.fromkeys(signals, 0)
    last: dict[Engine, int] = {}
    #: Instructions that have surely ended when this one starts, and when it ends.
    before_start: list[set[int]] = []
    before_end: list[set[int]] = []
    for number, operation in enumerate(ops):
        engine = operation.instruction.engine
        ended: set[int] = set()
        if engine in last:
            ended |= before_start[last[engine]]
        for name in ("wait0", "wait1"):
            if operation[name]:
                giver = signals[operation[name]][taken[operation[name]]]
                taken[operation[name]] += 1
                assert giver < number  # no queue, however short, can block
                assert engine not in last or giver not in before_start[last[engine]]
                ended |= before_end[giver] | {giver}
        before_start.append(ended)
        previous = before_end[last[engine]] | {last[engine]} if engine in last else set()
        before_end.append(ended | previous)
        last[engine] = number
    numbers = [n for n, operation in enumerate(ops) if not operation.name.endswith("_SYNC")]
    assert len(numbers) == len(runs)
    for later, (name, reads, writes) in enumerate(runs):
        for earlier, (other, other_reads, other_writes) in enumerate(runs[:later]):
            if name == other:  # the engine keeps order alone, but a VECTOR may read what one before still writes
                conflict = name == "VECTOR" and overlap(reads, other_writes)
            else:
                conflict = overlap(reads, other_writes) or overlap(writes, other_reads) or overlap(writes, other_writes)
            if conflict:
                assert numbers[earlier] in before_start[numbers[later]], (earlier, later)
