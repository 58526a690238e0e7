"""The fast path: C++ in `native/`, compiled on first use for one pair of block sizes, called on whole programs."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.common.native import BuildError, Library, shared_library
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Region
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import Engine
from tilewright.simulator.state import MEMORIES, Blocked, Explainer, ExternalMemory, Fault, RunCounts, Scratchpads
from tilewright.simulator.structs import (
    FunctionalConfig,
    FunctionalRun,
    check_size,
    functional_config,
    limits,
    point,
    pointer,
)

_SOURCES = Path(__file__).resolve().parent / "native"
_INCLUDE = Path(__file__).resolve().parent.parent / "isa" / "include"
#: No contraction: a fused multiply-add would round once where the machine rounds twice.
_FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-fopenmp-simd")


def build(block_in: int, block_out: int, extra_flags: Sequence[str] = ()) -> Path:
    """The shared library for one pair of block sizes, built if it is not there.

    Args:
        block_in, block_out: as in `NpuConfig`.
        extra_flags: appended to the compiler's command (tests select instruction sets with them).

    Raises:
        BuildError: no compiler, or it failed.
    """
    return shared_library(source(block_in, block_out, extra_flags))


def source(block_in: int, block_out: int, extra_flags: Sequence[str] = ()) -> Library:
    """The library that `build` builds, with the same arguments."""
    return Library(
        _SOURCES / "machine.cpp",
        [*_FLAGS, f"-DTW_BLOCK_IN={block_in}", f"-DTW_BLOCK_OUT={block_out}", f"-I{_INCLUDE}", *extra_flags],
        [*_SOURCES.glob("*.h"), *_SOURCES.glob("*.cpp"), *_INCLUDE.glob("*.h")],
        group="simulator",
        name=f"functional-{block_in}x{block_out}",
        title="the simulator",
    )


@functools.cache
def _load(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    library.tw_run_program.argtypes = [ctypes.POINTER(FunctionalRun)]
    library.tw_run_program.restype = None
    library.tw_operand_bytes.argtypes = [ctypes.POINTER(FunctionalConfig)]
    library.tw_operand_bytes.restype = ctypes.c_uint64
    if not check_size(library, "tw_run_size", FunctionalRun):
        raise BuildError(f"{path} and simulator/structs.py disagree: run python -m tilewright.simulator.generate")
    return library


#: Environment variables that decide how a library is built and where it is kept.
_SURROUNDINGS = ("CXX", "PATH", "TILEWRIGHT_CACHE", "XDG_CACHE_HOME", "HOME")


def library(config: NpuConfig, extra_flags: Sequence[str] = ()) -> ctypes.CDLL:
    """The loaded library for a configuration, looked for once in a process. Raises `BuildError`."""
    surroundings = tuple(os.environ.get(name) for name in _SURROUNDINGS)
    packed = ["-DTW_PACKED_PRODUCTS"] * config.packed_products
    return _library(config.block_in, config.block_out, (*packed, *extra_flags), surroundings)


@functools.cache
def _library(
    block_in: int, block_out: int, extra_flags: tuple[str, ...], surroundings: tuple[str | None, ...]
) -> ctypes.CDLL:
    return _load(str(build(block_in, block_out, extra_flags)))


class Machine:
    """The fast path on one set of scratchpads. What does not change from run to run is made once.

    Args:
        config: the NPU.
        scratchpads: changed in place by every run.
        extra_flags: see `build`.

    Raises:
        BuildError: the library cannot be built.
    """

    def __init__(self, config: NpuConfig, scratchpads: Scratchpads, extra_flags: Sequence[str] = ()) -> None:
        loaded = library(config, extra_flags)
        self.scratchpads = scratchpads
        self._run = loaded.tw_run_program
        self._call = call = FunctionalRun(config=functional_config(config), limits=limits(config))
        self._address = ctypes.byref(call)
        self._where: tuple[Any, ...] = ()
        self._operands = _aligned(loaded.tw_operand_bytes(ctypes.byref(call.config)))
        call.act, call.wgt = pointer(scratchpads.act, ctypes.c_int8), pointer(scratchpads.wgt, ctypes.c_int8)
        call.prm, call.lut = pointer(scratchpads.prm, ctypes.c_uint32), pointer(scratchpads.lut, ctypes.c_uint8)
        call.acc = pointer(scratchpads.acc, ctypes.c_int32)
        call.maxima, call.norms = pointer(scratchpads.maxima, ctypes.c_int8), pointer(scratchpads.norms, ctypes.c_int32)
        call.operands = pointer(self._operands, ctypes.c_uint8)

    def run(
        self,
        data: np.ndarray,
        regions: Sequence[Region],
        program: tuple[int, int, int],
        step_limit: int,
        stop: ctypes.c_uint8 | None = None,
    ) -> RunCounts:
        """Runs the program (region, offset, length) on the scratchpads and memory `data`.

        Args:
            stop: another thread sets it to end the run with TIMEOUT.

        Raises:
            DeviceError: as the reference path does.
        """
        call = self._call
        if self._where != (id(data), stop, tuple(regions)):
            point(call, data, regions, stop)
            self._data = data  # so that no other array gets its id
            self._where = id(data), stop, tuple(regions)
        call.program_region, call.program_offset, call.program_length = program
        call.step_limit = step_limit
        self._run(self._address)
        if call.code != ErrorCode.NONE:
            raise _error(call, self.scratchpads, ExternalMemory(data, regions), program)
        return RunCounts(call.instructions, call.macs, call.bytes_read, call.bytes_written)


def run(
    config: NpuConfig,
    scratchpads: Scratchpads,
    data: np.ndarray,
    regions: Sequence[Region],
    program: tuple[int, int, int],
    step_limit: int,
    extra_flags: Sequence[str] = (),
) -> RunCounts:
    """Runs a program once; see `Machine`."""
    return Machine(config, scratchpads, extra_flags).run(data, regions, program, step_limit)


def _aligned(nbytes: int) -> np.ndarray:
    """Room for operands, uint8, at a multiple of a cache line."""
    raw = np.empty(nbytes + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][:nbytes]


def _error(
    call: FunctionalRun, scratchpads: Scratchpads, memory: ExternalMemory, program: tuple[int, int, int]
) -> Exception:
    explain = Explainer(memory, program[0], program[1], scratchpads)
    if call.code == ErrorCode.WATCHDOG:
        blocked = Blocked({e: call.heads[e] for e in Engine if e != Engine.FETCH and call.heads[e] >= 0})
        if call.fetch_blocked_on >= 0:
            blocked.fetch = (Engine(call.fetch_blocked_on), call.pc)
        return explain.deadlock(blocked, list(call.semaphores))
    fault = Fault(ErrorCode(call.code), call.address, MEMORIES[call.memory_id], call.region, call.offset, call.nbytes)
    return explain.error(fault, Engine(call.engine), call.pc)
