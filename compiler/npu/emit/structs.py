"""Arguments of the C++ in `native/`, of which `tilewright.compiler.npu.emit.generate` makes `native/structs.h`."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import POINTER, c_char, c_double, c_int64, c_uint8, c_uint32, c_uint64

from tilewright.compiler.npu.emit.spaces import MEMORY_GRAIN, READERS, SPACES, WRITERS, acc_grain
from tilewright.isa.config import SEMAPHORE_LIMIT, WIDE_TABLE, NpuConfig
from tilewright.isa.generate.c_structs import Struct
from tilewright.isa.instructions import ROW_WRITES, Engine, Memory
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION
from tilewright.isa.timing import (
    ROW_DIVIDE_CYCLES,
    VECTOR_DEPTH,
    VECTOR_SIGNAL,
    MemoryTiming,
    gemm_signal,
    row_norm_write,
)

#: Attributes of `NpuConfig` that the assembler needs.
_CONFIG = (
    "block_in", "block_out", "dw_lanes", "gemm_loops", "vector_loops", "vector_passes", "bus_bytes", "queue_depth",
    "vector_queue", "semaphores",
)  # fmt: skip
#: Cycles between the last step of a GEMM or VECTOR and the first of the next, estimated.
_OVERHEAD = 8


class Assembler(Struct):
    """The machine as the assembler's C++ reads it.

    It has attributes of NpuConfig, latencies and sizes of tilewright.isa.timing, the timing of the memory, and the
    spaces of hazards.
    """

    c_name = "tw_assembler"
    c_comments = {
        "weights_stay": "1 = what would be loaded to WGT of the constants is there",
        "row_bytes": "bytes of a row of each scratchpad",
        "overhead": "cycles between two runs of an engine",
        "row_writes": "functions of ROW that write, a bit by function",
        "limit": "highest count of a semaphore",
        "ahead": "most runs that are issued ahead of their place",
        "rows": "entries of each space",
        "writers": "engines that write each space, a bit by engine",
        "readers": "engines that read each space, a bit by engine",
        "delay": "cycles from an engine's last step to its signals",
    }
    _fields_ = [
        *((name, c_uint32) for name in _CONFIG),
        ("arena_region", c_uint32),
        ("constant_region", c_uint32),
        ("weights_stay", c_uint32),
        ("row_bytes", c_uint32 * len(Memory)),
        ("overhead", c_uint32),
        ("row_divide_cycles", c_uint32),
        ("row_norm_write", c_uint32),
        ("vector_depth", c_uint32),
        ("wide_table", c_uint32),
        ("row_writes", c_uint32),
        ("memory_grain", c_uint32),
        ("acc_grain", c_uint32),
        ("limit", c_int64),
        ("ahead", c_int64),
        ("rows", c_int64 * len(SPACES)),
        ("writers", c_uint32 * len(SPACES)),
        ("readers", c_uint32 * len(SPACES)),
        ("delay", c_int64 * len(Engine)),
        ("read_interval", c_double),
        ("write_interval", c_double),
    ]


class Assembly(Struct):
    """One call of the assembler: a tile program in, instructions or counts out."""

    c_name = "tw_assembly"
    c_comments = {
        "work": "by engine, steps or cycles of the bus",
        "image": "instructions, freed by tw_free_assembly",
        "begins": "for each operation the number of instructions before it; or the numbers of the accesses",
        "error": "reason why nothing was assembled",
    }
    _fields_ = [
        ("machine", Assembler),
        ("tape", POINTER(c_int64)),
        ("tape_length", c_uint64),
        ("work", c_int64 * len(Engine)),
        ("image", POINTER(c_uint8)),
        ("image_bytes", c_uint64),
        ("begins", POINTER(c_int64)),
        ("operations", c_uint64),
        ("error", c_char * 200),
    ]


def assembler(
    config: NpuConfig, rows: Mapping[str, int], memory: MemoryTiming, limit: int = SEMAPHORE_LIMIT, ahead: bool = True
) -> Assembler:
    """Returns the machine as the assembler's C++ reads it.

    Args:
        config: the machine.
        rows: entries of every space, see `tilewright.compiler.npu.emit.spaces.sizes`.
        memory: timing of the memory that the program will run with.
        limit: highest count of a semaphore.
        ahead: True if runs may be issued before runs written earlier. Each of those may have signalled without a wait
            so far, so half of a semaphore's range is left to them.
    """
    machine = Assembler(
        **{name: getattr(config, name) for name in _CONFIG}, arena_region=ARENA_REGION,
        constant_region=CONSTANT_REGION, overhead=_OVERHEAD, row_divide_cycles=ROW_DIVIDE_CYCLES,
        row_norm_write=row_norm_write(config), vector_depth=VECTOR_DEPTH, wide_table=WIDE_TABLE,
        row_writes=sum(1 << function for function in ROW_WRITES), memory_grain=MEMORY_GRAIN,
        acc_grain=acc_grain(config), limit=limit, ahead=SEMAPHORE_LIMIT // 2 if ahead else 0,
        read_interval=memory.read_interval, write_interval=memory.write_interval,
    )  # fmt: skip
    machine.row_bytes[:] = [scratchpad.row_bytes(config) for scratchpad in Memory]
    machine.rows[:] = [rows[space] for space in SPACES]
    for found, table in ((machine.writers, WRITERS), (machine.readers, READERS)):
        found[:] = [sum(1 << engine for engine in table[space]) for space in SPACES]
    delays = {
        Engine.LOAD: memory.read_latency, Engine.STORE: memory.write_latency, Engine.GEMM: gemm_signal(config),
        Engine.VECTOR: VECTOR_SIGNAL,
    }  # fmt: skip
    machine.delay[:] = [delays.get(engine, 0) for engine in Engine]
    return machine
