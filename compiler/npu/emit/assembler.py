"""The assembler: turns a tile program into instructions, with C++ that is built on first use."""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tilewright.common.native import BuildError, Library, shared_library
from tilewright.compiler.npu.emit.structs import Assembler, Assembly
from tilewright.isa.instructions import Engine

_SOURCES = Path(__file__).resolve().parent / "native"
_INCLUDE = Path(__file__).resolve().parents[3] / "isa" / "include"
_ENGINES = tuple(Engine)
_NUMBERS = ctypes.POINTER(ctypes.c_int64)


class AssemblyError(ValueError):
    """A tile program does not fit the instruction set, which is a fault of the compiler."""


@functools.cache
def library() -> ctypes.CDLL:
    """Loads the shared library of `native/`, built on first use.

    Raises:
        BuildError: there is no C++ compiler, or the library does not match `structs.py`.
    """
    path = shared_library(source())
    loaded = ctypes.CDLL(str(path))
    loaded.tw_assembly_size.restype = ctypes.c_uint64
    if loaded.tw_assembly_size() != ctypes.sizeof(Assembly):
        raise BuildError(f"{path} and structs.py disagree: run python -m tilewright.compiler.npu.emit.generate")
    for function in (loaded.tw_count_work, loaded.tw_assemble, loaded.tw_list_accesses, loaded.tw_free_assembly):
        function.argtypes = [ctypes.POINTER(Assembly)]
        function.restype = ctypes.c_bool
    return loaded


def source() -> Library:
    """The library of the assembler."""
    return Library(
        _SOURCES / "assembler.cpp",
        ["-O2", "-Wall", f"-I{_INCLUDE}"],
        [*_SOURCES.glob("*.h"), *_SOURCES.glob("*.cpp"), *_INCLUDE.glob("*.h")],
        group="compiler",
        name="assembler",
        title="the assembler of the compiler",
    )


def assemble(machine: Assembler, tape: np.ndarray) -> tuple[bytes, list[int]]:
    """Returns the instructions of a tile program, the last one END, and the number of those before each operation.

    Instructions that the assembler moved ahead of an operation count as before it.

    Args:
        machine: the machine.
        tape: the tile program, int64 [numbers].

    Raises:
        AssemblyError: a value fits no instruction field, or the program needs more semaphores than the machine has.
        BuildError: there is no C++ compiler.
    """
    with _assembly("tw_assemble", machine, tape) as call:
        return ctypes.string_at(call.image, call.image_bytes), call.begins[: call.operations]


def count_work(machine: Assembler, tape: array[int]) -> dict[Engine, int]:
    """Returns the work of a tile program by engine: steps of GEMM and VECTOR, bus cycles of LOAD and STORE.

    The estimated cycles between instructions are included. A search calls this thousands of times.

    Raises:
        AssemblyError: a value fits no instruction field.
    """
    address, length = tape.buffer_info()
    call = Assembly(machine=machine, tape_length=length, tape=ctypes.cast(address, _NUMBERS))
    if not library().tw_count_work(call):
        raise AssemblyError(call.error.decode())
    return dict(zip(_ENGINES, call.work))


def list_accesses(machine: Assembler, tape: np.ndarray) -> list[int]:
    """Returns the memory accesses of a tile program's runs as one list of numbers.

    For each run these are its number of reads, its number of writes, and of each access the space, first row, length,
    times and stride. It raises the errors of `assemble`.
    """
    with _assembly("tw_list_accesses", machine, tape) as call:
        return list(call.begins[: call.operations])


@contextmanager
def _assembly(function: str, machine: Assembler, tape: np.ndarray) -> Iterator[Assembly]:
    """Calls a function of the library, and yields its outputs, which are freed on exit.

    Raises:
        AssemblyError: the library reports an error.
    """
    numbers = np.ascontiguousarray(tape, np.int64)
    call = Assembly(machine=machine, tape_length=len(numbers))
    call.tape = ctypes.cast(numbers.ctypes.data, _NUMBERS)
    if not getattr(library(), function)(call):
        raise AssemblyError(call.error.decode())
    try:
        yield call
    finally:
        library().tw_free_assembly(call)
