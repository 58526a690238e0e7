"""Semaphores derived from the reads and writes of instructions: they order every conflict, and nothing else."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.npu.emit import assembler, structs
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.spaces import MEMORY_GRAIN
from tilewright.compiler.npu.emit.tile_program import Place
from tilewright.isa.assembler import disassemble_one
from tilewright.isa.encoding import from_bytes, op
from tilewright.isa.instructions import Memory
from tilewright.isa.program import CONSTANT_REGION
from tilewright.isa.timing import DEFAULT_MEMORY
from verification.programs import accesses
from verification.programs.accesses import Access
from verification.programs.hazards import MACHINE, ROWS, Accesses, Run, check_order, random_program, synchronised


def text(*runs: Run) -> list[str]:
    """Returns the names and semaphores of the finished instructions."""
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
    """VECTOR reads rows that LOAD wrote, but it waits only for GEMM, which waited for LOAD."""
    assert text(("LOAD", [], act(0, 2)), ("GEMM", act(0), acc(0)), ("VECTOR", [*act(1), *acc(0)], act(8))) == [
        "LOAD signal0=1", "GEMM wait0=1 signal0=2", "VECTOR wait0=2",
    ]  # fmt: skip


def test_one_wait_covers_all_before() -> None:
    """LOADs end in order, so that a wait for the second covers the first."""
    assert text(("LOAD", [], act(0)), ("LOAD", [], act(1)), ("GEMM", act(0, 2), acc(0))) == [
        "LOAD", "LOAD signal0=1", "GEMM wait0=1",
    ]  # fmt: skip


def test_vector_waits_for_itself() -> None:
    """A VECTOR may start before the one before has written, so it waits for that one's signal."""
    assert text(("VECTOR", [], act(0)), ("VECTOR", act(0), act(1))) == ["VECTOR signal0=1", "VECTOR wait0=1"]
    assert text(("VECTOR", act(1), act(0)), ("VECTOR", [], act(0, 2))) == ["VECTOR", "VECTOR"]


def test_third_wait_goes_to_a_sync() -> None:
    runs: list[Run] = [("GEMM", act(0), acc(0)), ("VECTOR", acc(8), act(1)), ("STORE", act(2), [])]
    assert text(*runs, ("LOAD", [], act(0, 3))) == [
        "GEMM signal0=3", "VECTOR signal0=2", "STORE signal0=1", "LOAD_SYNC wait0=1", "LOAD wait0=2 wait1=3",
    ]  # fmt: skip


def test_third_signal_goes_to_a_sync() -> None:
    """A LOAD has two signals: LOAD_SYNC gives the third, later, after LOAD has ended."""
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
    emitter = Emitter(MACHINE, 0)
    emitter.load(Place(CONSTANT_REGION, 0), Memory.ACT, 0, 1)
    emitter.end_step()
    emitter.gemm(0, 0, 0, [], [])
    emitter.end_step()
    assert [o.name for o in from_bytes(bytes(emitter.image))] == ["LOAD", "END", "GEMM", "END"]
    assert not any(o.waits or o.signals for o in from_bytes(bytes(emitter.image)))


def test_too_few_semaphores() -> None:
    """The assembler refuses a program that needs more semaphores than the machine has; no valid machine has too few."""
    machine = structs.assembler(MACHINE, ROWS, DEFAULT_MEMORY)
    machine.semaphores = 1
    runs = (("LOAD", [], act(0)), ("GEMM", act(0), acc(0)), ("VECTOR", acc(0), []))
    tapes = [np.array(accesses.Run(op(name), reads, writes).numbers()) for name, reads, writes in runs]
    assembler.assemble(machine, np.concatenate(tapes[:2]))
    with pytest.raises(ValueError, match="needs 2 semaphores, the machine has 1"):
        assembler.assemble(machine, np.concatenate(tapes))


def test_rows_between_those_of_an_access_are_free() -> None:
    columns = [Access("act", 0, 5, times=3, stride=7)]
    border = [Access("act", 5, 2, times=3, stride=7)]
    assert text(("VECTOR", [], columns), ("LOAD", [], border)) == ["VECTOR", "LOAD"]
    assert text(("VECTOR", [], columns), ("LOAD", [], act(6, 2))) == ["VECTOR signal0=1", "LOAD wait0=1"]


@pytest.mark.medium
@settings(max_examples=64)
@given(seed=st.integers(0, 1 << 32))
def test_random_programs_are_ordered(seed: int) -> None:
    runs = random_program(random.Random(seed))
    check_order(runs, synchronised(*runs))
