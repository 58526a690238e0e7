"""Arguments of the C++ in `native/`; `python -m tilewright.simulator.generate` makes `native/structs.h` of them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_double, c_int8, c_int32, c_int64, c_uint8, c_uint32, c_uint64
from typing import Any

import numpy as np

from tilewright.isa.config import MAX_SEMAPHORES, NpuConfig
from tilewright.isa.device import Region
from tilewright.isa.generate.c_structs import Struct
from tilewright.isa.instructions import LIMITS, REGIONS, Engine
from tilewright.isa.timing import (
    ACCUMULATE_STAGES,
    ACT_READ_CYCLES,
    FETCH_BUFFER_BYTES,
    FETCH_SETUP,
    LOAD_DESCRIPTORS,
    OUT_BURSTS,
    QUEUE_CYCLES,
    QUIET_CYCLES,
    ROW_DIVIDE_CYCLES,
    STORE_ROWS,
    VECTOR_DEPTH,
    VECTOR_SIGNAL,
    MemoryTiming,
    fetch_burst_bytes,
    gemm_depth,
    gemm_signal,
    row_norm_write,
    row_scale_cycles,
    row_scale_write,
    table_chunk_cycles,
)

#: Attributes of `NpuConfig` passed to the functional simulator; block sizes are constants of its build.
_FUNCTIONAL = (
    "act_rows", "wgt_tiles", "acc_rows", "prm_rows", "lut_tables", "gemm_loops", "vector_loops", "queue_depth",
    "bus_bytes", "vector_queue", "vector_lanes", "address_bits", "offset_bits", "weight_codes", "window_segment",
    "window_pairs", "act_banks",
)  # fmt: skip
#: Attributes of `NpuConfig` passed to the cycle-level simulator.
_CYCLE = (
    "block_in", "block_out", "act_rows", "act_banks", "wgt_tiles", "acc_rows", "prm_rows", "lut_tables", "gemm_loops",
    "vector_loops", "queue_depth", "bus_bytes", "burst_beats", "read_outstanding", "write_outstanding", "vector_queue",
    "vector_passes", "address_bits", "offset_bits", "weight_codes", "window_pairs", "dw_lanes",
)  # fmt: skip


def _latencies(config: NpuConfig) -> dict[str, int]:
    """The latencies of `tilewright.isa.timing` passed to the cycle-level simulator."""
    return {
        "gemm_depth": gemm_depth(config),
        "gemm_signal": gemm_signal(config),
        "accumulate_stages": ACCUMULATE_STAGES,
        "vector_depth": VECTOR_DEPTH,
        "vector_signal": VECTOR_SIGNAL,
        "row_divide_cycles": ROW_DIVIDE_CYCLES,
        "row_scale_write": row_scale_write(config),
        "row_scale_cycles": row_scale_cycles(config),
        "row_norm_write": row_norm_write(config),
        "load_descriptors": LOAD_DESCRIPTORS,
        "act_read_cycles": ACT_READ_CYCLES,
        "store_rows": STORE_ROWS,
        "out_bursts": OUT_BURSTS,
        "queue_cycles": QUEUE_CYCLES,
        "quiet_cycles": QUIET_CYCLES,
        "fetch_setup": FETCH_SETUP,
        "fetch_burst_bytes": fetch_burst_bytes(config),
        "fetch_buffer_bytes": FETCH_BUFFER_BYTES,
        "table_chunk_cycles": table_chunk_cycles(config),
    }


_TIMING, _INTERVALS = ("read_latency", "write_latency"), ("read_interval", "write_interval")


def _fields(kind: Any, *names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


class Limits(Struct):
    """The limits of operands: declared in tilewright_isa.h."""

    c_name = "tw_limits"
    _fields_ = _fields(c_uint32, *LIMITS)


class MemoryRegion(Struct):
    """A region of external memory."""

    c_name = "tw_region"
    c_comments = {"flags": "bit 0: read, bit 1: write"}
    _fields_ = _fields(c_uint64, "base", "size", "flags")


class FunctionalConfig(Struct):
    """The machine, in attributes of NpuConfig."""

    c_name = "tw_config"
    _fields_ = _fields(c_uint32, *_FUNCTIONAL)


_STOP = "null, or what another thread sets to end the run with TIMEOUT"


class FunctionalRun(Struct):
    """One call of the functional simulator: memories and program in, counters and status out."""

    c_name = "tw_run"
    c_comments = {
        "operands": "tw_operand_bytes of room at a multiple of 64, which a run may leave anything in",
        "steps": "by engine",
        "heads": "by engine, the instruction at the head of a blocked queue; -1 = none, or one of another engine",
        "fetch_blocked_on": "the engine whose queue is full, -1 = none",
        "stop": _STOP,
    }
    _fields_ = [
        ("config", FunctionalConfig),
        ("limits", Limits),
        ("act", POINTER(c_int8)),
        ("wgt", POINTER(c_int8)),
        ("prm", POINTER(c_uint32)),
        ("lut", POINTER(c_uint8)),
        ("acc", POINTER(c_int32)),
        ("maxima", POINTER(c_int8)),
        ("norms", POINTER(c_int32)),
        ("operands", POINTER(c_uint8)),
        ("memory", POINTER(c_uint8)),
        ("memory_bytes", c_uint64),
        ("regions", MemoryRegion * REGIONS),
        *_fields(c_uint64, "program_region", "program_offset", "program_length", "step_limit"),
        ("stop", POINTER(c_uint8)),
        *_fields(c_uint64, "instructions", "macs", "bytes_read", "bytes_written"),
        *_fields(c_uint64, "code", "engine", "pc", "address", "memory_id", "region", "offset", "nbytes"),
        ("steps", c_uint64 * len(Engine)),
        ("heads", c_int64 * len(Engine)),
        ("fetch_blocked_on", c_int64),
        ("semaphores", c_uint64 * (MAX_SEMAPHORES + 1)),
    ]


class CycleConfig(Struct):
    """The machine, in attributes of NpuConfig, latencies and sizes of tilewright.isa.timing, and the timing of its
    memory."""

    c_name = "tw_cycle_config"
    _fields_ = [
        *_fields(c_uint32, *_CYCLE, *_latencies(NpuConfig()), *_TIMING),
        *_fields(c_double, *_INTERVALS),
    ]


class InstructionTimes(Struct):
    """The cycle an instruction was dispatched in, first held back by a semaphore, taken by its engine (its first step
    follows a cycle later) and completed; 0 = never."""

    c_name = "tw_cycle_times"
    _fields_ = _fields(c_uint64, "dispatched", "waited", "started", "ended")


class EngineCycles(Struct):
    """Cycles of an engine, as tilewright.isa.device.EngineCounters."""

    c_name = "tw_cycle_engine"
    _fields_ = _fields(c_uint64, "busy", "wait_semaphore", "wait_memory")


class CycleRun(Struct):
    """One call of the cycle-level simulator: program in, clock and counters out."""

    c_name = "tw_cycle_run"
    c_comments = {
        "times": "one for each instruction, or null",
        "evaluated": "cycles that were not skipped",
        "stop": _STOP,
    }
    _fields_ = [
        ("config", CycleConfig),
        ("limits", Limits),
        ("memory", POINTER(c_uint8)),
        ("memory_bytes", c_uint64),
        ("regions", MemoryRegion * REGIONS),
        *_fields(c_uint64, "program_region", "program_offset", "program_length", "watchdog", "timeout"),
        ("stop", POINTER(c_uint8)),
        ("times", POINTER(InstructionTimes)),
        *_fields(c_uint64, "cycles", "macs", "bytes_read", "bytes_written", "instructions"),
        ("engines", EngineCycles * len(Engine)),
        *_fields(c_uint64, "code", "engine", "pc", "address", "evaluated"),
    ]


#: Structures that the header declares, in this order.
DECLARED: tuple[type[Struct], ...] = (
    MemoryRegion, FunctionalConfig, FunctionalRun, CycleConfig, InstructionTimes, EngineCycles, CycleRun,
)  # fmt: skip


def _attributes(source: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def functional_config(config: NpuConfig) -> FunctionalConfig:
    return FunctionalConfig(**_attributes(config, _FUNCTIONAL))


def cycle_config(config: NpuConfig, timing: MemoryTiming) -> CycleConfig:
    return CycleConfig(
        **_attributes(config, _CYCLE), **_latencies(config), **_attributes(timing, (*_TIMING, *_INTERVALS))
    )


def prepare(
    call: FunctionalRun | CycleRun,
    config: NpuConfig,
    data: np.ndarray,
    regions: Sequence[Region],
    program: tuple[int, int, int],
    stop: c_uint8 | None = None,
) -> None:
    """Fills in the arguments of both simulators: limits of operands, external memory, the program to run.

    Args:
        data: uint8, the external memory.
        program: region, offset in it in bytes, instructions.
        stop: ends the run once another thread sets it.
    """
    call.limits = limits(config)
    point(call, data, regions, stop)
    call.program_region, call.program_offset, call.program_length = program


def limits(config: NpuConfig) -> Limits:
    return Limits(**_attributes(config, LIMITS))


def point(
    call: FunctionalRun | CycleRun, data: np.ndarray, regions: Sequence[Region], stop: c_uint8 | None = None
) -> None:
    """Fills in external memory, its regions (those not given are closed) and the flag to stop."""
    call.stop = ctypes.pointer(stop) if stop is not None else POINTER(c_uint8)()
    call.memory, call.memory_bytes = pointer(data, c_uint8), data.size
    given = [(r.base, r.size, r.read | r.write << 1) for r in regions]
    call.regions[:] = [MemoryRegion(*r) for r in given] + [MemoryRegion()] * (REGIONS - len(given))


def pointer(array: np.ndarray, kind: Any) -> Any:
    """A ctypes pointer to the first element of an array."""
    return array.ctypes.data_as(POINTER(kind))


def check_size(library: ctypes.CDLL, function: str, structure: type[Struct]) -> bool:
    """True if a library was built with the same structure; its `function` returns the size in bytes."""
    size = getattr(library, function)
    size.restype = c_uint64
    return bool(size() == ctypes.sizeof(structure))
