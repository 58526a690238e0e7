"""Semaphores follow from what instructions read and write, and keep everything apart that must be."""

from __future__ import annotations

import random
import re

import pytest

from compiler.npu.emit.hazards import MEMORY_GRAIN, READERS, WRITERS, Access, Synchroniser
from isa.assembler import disassemble_one
from isa.config import SEMAPHORE_LIMIT, NpuConfig
from isa.encoding import Op, op
from isa.instructions import Engine
from tests.common.accesses import rows_of
from tests.common.semaphore_counts import highest_counts

ROWS = dict.fromkeys(WRITERS, 40)
MACHINE = NpuConfig()
Accesses = list[Access]
#: An instruction by name, what it reads and what it writes.
Run = tuple[str, Accesses, Accesses]


def synchronised(*runs: Run, config: NpuConfig = MACHINE, limit: int = SEMAPHORE_LIMIT) -> list[Op]:
    """The finished instructions of a program."""
    sync = Synchroniser(ROWS, config, limit)
    for name, reads, writes in runs:
        sync.run(op(name), reads, writes)
    return sync.take()


def text(*runs: Run) -> list[str]:
    """Names and semaphores of the finished instructions."""
    return [" ".join(re.findall(r"^\w+|(?:wait|signal)\d=\d+", disassemble_one(o))) for o in synchronised(*runs)]


def act(start: int, count: int = 1) -> Accesses:
    return [Access("act", start, count)]


def acc(start: int, count: int = 1) -> Accesses:
    return [Access("acc", start, count)]


def memory(start: int, count: int = 1) -> Accesses:
    return [Access("memory", start, count)]


def test_reader_waits_for_writer() -> None:
    assert text(("LOAD", [], act(0, 4)), ("GEMM", act(3), acc(0))) == ["LOAD signal0=1", "GEMM wait0=1"]


def test_neighbours_do_not_wait() -> None:
    assert text(("LOAD", [], act(0, 4)), ("GEMM", act(4), acc(0))) == ["LOAD", "GEMM"]


def test_writer_waits_for_reader() -> None:
    assert text(("GEMM", act(3), acc(0)), ("LOAD", [], act(0, 4))) == ["GEMM signal0=1", "LOAD wait0=1"]


def test_each_pair_of_engines_has_its_semaphore() -> None:
    assert text(("LOAD", [], act(0)), ("GEMM", act(0), acc(0)), ("VECTOR", acc(0), act(1)), ("STORE", act(1), [])) == [
        "LOAD signal0=1", "GEMM wait0=1 signal0=2", "VECTOR wait0=2 signal0=3", "STORE wait0=3",
    ]  # fmt: skip


def test_what_is_implied_is_not_waited_for() -> None:
    """VECTOR reads what LOAD wrote, but GEMM, for which it waits, waited for LOAD."""
    assert text(("LOAD", [], act(0, 2)), ("GEMM", act(0), acc(0)), ("VECTOR", [*act(1), *acc(0)], act(8))) == [
        "LOAD signal0=1", "GEMM wait0=1 signal0=2", "VECTOR wait0=2",
    ]  # fmt: skip


def test_one_wait_covers_all_before() -> None:
    """LOADs end in order, so that the wait for the second is one for the first."""
    assert text(("LOAD", [], act(0)), ("LOAD", [], act(1)), ("GEMM", act(0, 2), acc(0))) == [
        "LOAD", "LOAD signal0=1", "GEMM wait0=1",
    ]  # fmt: skip


def test_vector_waits_for_itself() -> None:
    """A VECTOR may start before the one before has written."""
    assert text(("VECTOR", [], act(0)), ("VECTOR", act(0), act(1))) == ["VECTOR signal0=1", "VECTOR wait0=1"]
    assert text(("VECTOR", act(1), act(0)), ("VECTOR", [], act(0, 2))) == ["VECTOR", "VECTOR"]


def test_third_wait_goes_to_a_sync() -> None:
    runs: list[Run] = [("GEMM", act(0), acc(0)), ("VECTOR", acc(8), act(1)), ("STORE", act(2), [])]
    assert text(*runs, ("LOAD", [], act(0, 3))) == [
        "GEMM signal0=3", "VECTOR signal0=2", "STORE signal0=1", "LOAD_SYNC wait0=1", "LOAD wait0=2 wait1=3",
    ]  # fmt: skip


def test_third_signal_goes_to_a_sync() -> None:
    """One that is given later, when LOAD has ended that far."""
    params = [Access("prm", 0, 1)]
    runs: list[Run] = [("LOAD", [], [*act(0), *params]), ("GEMM", act(0), []), ("VECTOR", params, act(4))]
    assert text(*runs, ("STORE", act(0), [])) == [
        "LOAD signal0=1 signal1=2", "GEMM wait0=1", "VECTOR wait0=2", "LOAD_SYNC signal0=3", "STORE wait0=3",
    ]  # fmt: skip


def test_memory_is_tracked_in_grains() -> None:
    assert text(("STORE", act(0), memory(0, 8)), ("LOAD", memory(MEMORY_GRAIN - 1), act(8))) == [
        "STORE signal0=1", "LOAD wait0=1",
    ]  # fmt: skip
    assert text(("STORE", act(0), memory(0, 8)), ("LOAD", memory(MEMORY_GRAIN), act(8))) == ["STORE", "LOAD"]


def test_a_new_step_knows_nothing_of_the_one_before() -> None:
    sync = Synchroniser(ROWS, MACHINE)
    sync.run(op("LOAD"), [], act(0))
    sync.forget()
    placed = sync.run(op("GEMM"), act(0), acc(0))
    assert placed.waits == [] and placed.index == 0


def test_too_few_semaphores() -> None:
    """No machine has fewer than any program needs; a hazard that is new would need more."""
    sync = Synchroniser(ROWS, MACHINE)
    sync._semaphores = 1
    sync.run(op("LOAD"), [], act(0))
    sync.run(op("GEMM"), act(0), acc(0))
    with pytest.raises(ValueError, match="needs 2 semaphores, the machine has 1"):
        sync.run(op("VECTOR"), acc(0), [])


def random_access(rng: random.Random, space: str) -> Access:
    start, length = rng.randrange(12), rng.randint(1, 4)
    if space == "memory":
        return Access(space, start * MEMORY_GRAIN, length * MEMORY_GRAIN)
    return Access(space, start, length, rng.randint(1, 3), rng.randint(1, 9))


def random_program(rng: random.Random) -> list[Run]:
    names = {Engine.LOAD: "LOAD", Engine.GEMM: "GEMM", Engine.VECTOR: "VECTOR", Engine.STORE: "STORE"}
    runs = []
    for _ in range(60):
        engine, name = rng.choice(list(names.items()))
        sides: list[Accesses] = []
        for table in (READERS, WRITERS):
            spaces = [space for space, engines in table.items() if engine in engines]
            chosen = rng.sample(spaces, rng.randint(0, len(spaces)))
            sides.append([random_access(rng, space) for space in chosen])
        runs.append((name, *sides))
    return runs  # type: ignore[return-value]


def meet(a: Accesses, b: Accesses) -> bool:
    return any(x.space == y.space and rows_of(x) & rows_of(y) for x in a for y in b)


def test_rows_between_those_of_an_access_are_free() -> None:
    columns = [Access("act", 0, 5, times=3, stride=7)]
    border = [Access("act", 5, 2, times=3, stride=7)]
    assert text(("VECTOR", [], columns), ("LOAD", [], border)) == ["VECTOR", "LOAD"]
    assert text(("VECTOR", [], columns), ("LOAD", [], act(6, 2))) == ["VECTOR signal0=1", "LOAD wait0=1"]


@pytest.mark.parametrize("seed", range(64))
def test_random_programs_are_ordered(seed: int) -> None:
    """Whatever order the semaphores allow, an instruction starts after all that it conflicts with have ended; and it
    waits for nothing that has surely ended when the one before it of its engine starts.

    Engines start and end their instructions in order; the n-th wait of a semaphore takes its n-th signal.
    """
    runs = random_program(random.Random(seed))
    ops = synchronised(*runs)
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
                conflict = name == "VECTOR" and meet(reads, other_writes)
            else:
                conflict = meet(reads, other_writes) or meet(writes, other_reads) or meet(writes, other_writes)
            if conflict:
                assert numbers[earlier] in before_start[numbers[later]], (earlier, later)
