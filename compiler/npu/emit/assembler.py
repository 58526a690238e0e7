"""The assembler: makes instructions of a tile program, with C++ that is built on first use."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tilewright.common.native import BuildError, shared_library
from tilewright.compiler.npu.emit.structs import Assembler, Assembly
from tilewright.isa.instructions import Engine

_SOURCES = Path(__file__).resolve().parent / "native"
_INCLUDE = Path(__file__).resolve().parents[3] / "isa" / "include"


class AssemblyError(ValueError):
    """A tile program of which no instructions can be made: a fault of the compiler."""


@functools.cache
def library() -> ctypes.CDLL:
    """Loads the library, which is built on first use. Raises `BuildError`."""
    path = shared_library(
        _SOURCES / "assembler.cpp", ["-O2", "-Wall", f"-I{_INCLUDE}"],
        [*_SOURCES.glob("*.h"), *_SOURCES.glob("*.cpp"), *_INCLUDE.glob("*.h")], group="compiler", name="assembler",
        title="the assembler of the compiler",
    )  # fmt: skip
    loaded = ctypes.CDLL(str(path))
    loaded.tw_assembly_size.restype = ctypes.c_uint64
    if loaded.tw_assembly_size() != ctypes.sizeof(Assembly):
        raise BuildError(f"{path} and structs.py disagree: run python -m tilewright.compiler.npu.emit.generate")
    for function in (loaded.tw_count_work, loaded.tw_assemble, loaded.tw_list_accesses, loaded.tw_free_assembly):
        function.argtypes = [ctypes.POINTER(Assembly)]
        function.restype = ctypes.c_bool
    return loaded


def assemble(machine: Assembler, tape: np.ndarray) -> tuple[bytes, list[int]]:
    """Returns the instructions of a tile program, with END as the last; and for each operation how many instructions
    are before it, with what was written ahead at that time.

    Args:
        tape: the tile program, int64 [numbers].

    Raises:
        AssemblyError: a value that no instruction can hold, or more semaphores than the machine has.
        BuildError: no C++ compiler.
    """
    with _called("tw_assemble", machine, tape) as call:
        return ctypes.string_at(call.image, call.image_bytes), call.begins[: call.operations]


def count_work(machine: Assembler, tape: np.ndarray) -> dict[Engine, int]:
    """Returns the work of a tile program by engine: steps of GEMM and VECTOR, cycles of the bus, and what goes by
    between instructions. Raises as `assemble` does."""
    with _called("tw_count_work", machine, tape) as call:
        return {engine: call.work[engine] for engine in Engine}


def list_accesses(machine: Assembler, tape: np.ndarray) -> list[int]:
    """Returns what the runs of a tile program touch, as numbers: for each run how many accesses are reads and writes,
    and of each its space, first row, length, times and stride. Raises as `assemble` does."""
    with _called("tw_list_accesses", machine, tape) as call:
        return list(call.begins[: call.operations])


@contextmanager
def _called(function: str, machine: Assembler, tape: np.ndarray) -> Iterator[Assembly]:
    """The outputs of a function, until they are freed."""
    numbers = np.ascontiguousarray(tape, np.int64)
    call = Assembly(machine=machine, tape_length=len(numbers))
    call.tape = ctypes.cast(numbers.ctypes.data, ctypes.POINTER(ctypes.c_int64))
    if not getattr(library(), function)(call):
        raise AssemblyError(call.error.decode())
    try:
        yield call
    finally:
        library().tw_free_assembly(call)
