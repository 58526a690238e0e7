"""The fast path: C++ in `native/`, compiled on first use for one pair of block sizes, called on whole programs."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from common.native import BuildError, shared_library
from isa.config import NpuConfig
from isa.device import Region
from isa.instructions import REGIONS, Engine, ErrorCode
from simulator.state import MEMORIES, Blocked, Explainer, ExternalMemory, Fault, RunCounts, Scratchpads

_SOURCES = Path(__file__).resolve().parent / "native"
_INCLUDE = Path(__file__).resolve().parent.parent / "isa" / "include"
#: No contraction: a fused multiply-add would round once where the machine rounds twice.
_FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-fopenmp-simd")
#: Attributes of `NpuConfig` the library is told at run time.
_CONFIG = (
    "act_rows", "wgt_tiles", "acc_rows", "prm_rows", "lut_tables", "gemm_loops", "vector_loops", "semaphores",
    "queue_depth", "bus_bytes", "last_table", "table_lookup", "depthwise", "vector_queue",
)  # fmt: skip


class _Config(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in _CONFIG]


class _Region(ctypes.Structure):
    _fields_ = [("base", ctypes.c_uint64), ("size", ctypes.c_uint64), ("flags", ctypes.c_uint64)]


class _Run(ctypes.Structure):
    """One call: memories and program in, counters and status out. Mirrors `tw_run` in machine.h."""

    _fields_ = [
        ("config", _Config),
        *((name, ctypes.c_void_p) for name in ("act", "wgt", "prm", "lut", "acc", "memory")),
        ("memory_bytes", ctypes.c_uint64),
        ("regions", _Region * REGIONS),
        *((name, ctypes.c_uint64) for name in ("program_region", "program_offset", "program_length", "step_limit")),
        *((name, ctypes.c_uint64) for name in ("instructions", "macs", "bytes_read", "bytes_written")),
        *((name, ctypes.c_uint64) for name in ("code", "engine", "pc", "address", "memory_id")),
        *((name, ctypes.c_uint64) for name in ("region", "offset", "nbytes")),
        ("steps", ctypes.c_uint64 * len(Engine)),
        ("heads", ctypes.c_int64 * len(Engine)),
        ("fetch_blocked_on", ctypes.c_int64),
        ("semaphores", ctypes.c_uint64 * 64),
    ]


def build(block_in: int, block_out: int, extra_flags: Sequence[str] = ()) -> Path:
    """The shared library for one pair of block sizes, built if it is not there.

    Args:
        block_in, block_out: as in `NpuConfig`.
        extra_flags: appended to the compiler's command (tests select instruction sets with them).

    Raises:
        BuildError: no compiler, or it failed.
    """
    return shared_library(
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
    library.tw_run_program.argtypes = [ctypes.POINTER(_Run)]
    library.tw_run_program.restype = None
    library.tw_run_size.restype = ctypes.c_uint64
    if library.tw_run_size() != ctypes.sizeof(_Run):
        raise BuildError(f"{path} and simulator/native.py disagree about tw_run")
    return library


def library(config: NpuConfig, extra_flags: Sequence[str] = ()) -> ctypes.CDLL:
    """The loaded library for a configuration. Raises `BuildError`."""
    return _load(str(build(config.block_in, config.block_out, tuple(extra_flags))))


def run(
    config: NpuConfig,
    scratchpads: Scratchpads,
    data: np.ndarray,
    regions: Sequence[Region],
    program: tuple[int, int, int],
    step_limit: int,
    extra_flags: Sequence[str] = (),
) -> RunCounts:
    """Runs the program (region, offset, length) on `scratchpads` and memory `data`, both changed in place.

    Raises:
        DeviceError: as the reference path does.
        BuildError: the library cannot be built.
    """
    call = _Run()
    for name in _CONFIG:
        setattr(call.config, name, getattr(config, name))
    for name, array in scratchpads.arrays().items():
        setattr(call, name.lower(), array.ctypes.data)
    call.memory, call.memory_bytes = data.ctypes.data, data.size
    for i, r in enumerate(regions):
        call.regions[i] = _Region(r.base, r.size, r.read | r.write << 1)
    call.program_region, call.program_offset, call.program_length = program
    call.step_limit = step_limit
    library(config, extra_flags).tw_run_program(ctypes.byref(call))
    if call.code != ErrorCode.NONE:
        raise _error(call, scratchpads, ExternalMemory(data, regions), program)
    steps = {engine: call.steps[engine] for engine in Engine}
    return RunCounts(call.instructions, call.macs, call.bytes_read, call.bytes_written, steps)


def _error(call: _Run, scratchpads: Scratchpads, memory: ExternalMemory, program: tuple[int, int, int]) -> Exception:
    explain = Explainer(memory, program[0], program[1], scratchpads)
    if call.code == ErrorCode.WATCHDOG:
        blocked = Blocked({e: call.heads[e] for e in Engine if e != Engine.FETCH and call.heads[e] >= 0})
        if call.fetch_blocked_on >= 0:
            blocked.fetch = (Engine(call.fetch_blocked_on), call.pc)
        return explain.deadlock(blocked, list(call.semaphores))
    fault = Fault(ErrorCode(call.code), call.address, MEMORIES[call.memory_id], call.region, call.offset, call.nbytes)
    return explain.error(fault, Engine(call.engine), call.pc)
