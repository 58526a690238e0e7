"""Assembles runs with the accesses they declare; derives accesses of a program without the code that is tested."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tilewright.compiler.npu.emit import assembler, structs
from tilewright.compiler.npu.emit.spaces import SPACES
from tilewright.compiler.npu.emit.tile_program import Operation
from tilewright.isa.config import SEMAPHORE_LIMIT, NpuConfig
from tilewright.isa.encoding import Op, from_bytes
from tilewright.isa.timing import DEFAULT_MEMORY


class Access(NamedTuple):
    """Rows start..start+length-1 of a scratchpad, `times` times at a stride; or bytes of the arena (space "memory"),
    once."""

    space: str
    start: int
    length: int
    times: int = 1
    stride: int = 0


class Run(NamedTuple):
    """An instruction that keeps its engine busy for so many cycles, and the rows it touches."""

    operation: Op
    reads: Sequence[Access]
    writes: Sequence[Access]
    work: int = 0

    def numbers(self) -> list[int]:
        """Returns the run as an operation of a tile program."""
        word = self.operation.encode()
        halves = [(half ^ 1 << 63) - (1 << 63) for half in (word & (1 << 64) - 1, word >> 64)]
        movable = self.operation.name in ("LOAD", "VECTOR")
        found = [Operation.RUN, self.operation.instruction.engine, *halves, movable, self.work]
        found += len(self.reads), len(self.writes)
        for access in (*self.reads, *self.writes):
            found += SPACES.index(access.space), *access[1:]
        return found


def rows_of(access: Access) -> set[int]:
    """Returns the rows (of memory: bytes) that an access touches."""
    return {access.start + turn * access.stride + row for turn in range(access.times) for row in range(access.length)}


def assembled(
    runs: Iterable[Run],
    config: NpuConfig,
    rows: Mapping[str, int],
    limit: int = SEMAPHORE_LIMIT,
    ahead: bool = True,
) -> tuple[list[Op], list[int]]:
    """Returns the finished instructions of a program with END, and where each run begins.

    Args:
        rows: entries of every space.
        limit: to which semaphores count.
        ahead: whether runs may be written ahead of their place.
    """
    machine = structs.assembler(config, rows, DEFAULT_MEMORY, limit, ahead)
    tape = [number for run in runs for number in run.numbers()]
    image, begins = assembler.assemble(machine, np.array(tape, np.int64))
    return from_bytes(image), begins


def accesses_of(machine: structs.Assembler, tape: np.ndarray) -> list[tuple[list[Access], list[Access]]]:
    """Returns the accesses of each run of a tile program, reads and writes, those of ACC in elements."""
    numbers = iter(assembler.list_accesses(machine, tape))
    found = []
    for reads in numbers:
        writes = next(numbers)
        grain = machine.acc_grain
        found.append((list(_accesses(numbers, reads, grain)), list(_accesses(numbers, writes, grain))))
    return found


def _accesses(numbers: Iterator[int], count: int, acc_grain: int) -> Iterator[Access]:
    for _ in range(count):
        space, start, length, times, stride = itertools.islice(numbers, len(Access._fields))
        unit = acc_grain if SPACES[space] == "acc" else 1
        yield Access(SPACES[space], start * unit, length * unit, times, stride * unit)
