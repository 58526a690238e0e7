"""Spaces: memories in which instructions of several engines can conflict, and the engines that access each."""

from __future__ import annotations

import math

from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Engine, Memory

#: Bytes of external memory that share one hazard entry.
MEMORY_GRAIN = 256

#: Engines that write each space. Scratchpads come first, by their number in the ISA.
WRITERS = {
    "act": (Engine.LOAD, Engine.VECTOR),
    "wgt": (Engine.LOAD,),
    "prm": (Engine.LOAD, Engine.VECTOR),
    "lut": (Engine.LOAD,),
    "acc": (Engine.GEMM,),
    "memory": (Engine.STORE,),
}
#: Engines that read each space.
READERS = {
    "act": (Engine.GEMM, Engine.VECTOR, Engine.STORE),
    "wgt": (Engine.GEMM,),
    "prm": (Engine.VECTOR,),
    "lut": (Engine.VECTOR,),
    "acc": (Engine.VECTOR,),
    "memory": (Engine.LOAD,),
}
#: Names of the spaces, by their number in native code.
SPACES = tuple(WRITERS)
assert SPACES[: len(Memory)] == tuple(memory.name.lower() for memory in Memory)


def acc_grain(config: NpuConfig) -> int:
    """Returns the elements of ACC that share one hazard entry: rows of GEMM, DEPTHWISE and VECTOR differ in width."""
    return math.gcd(config.block_in, config.block_out, config.dw_lanes)


def sizes(config: NpuConfig, arena_bytes: int) -> dict[str, int]:
    """Returns the entries of every space: rows of scratchpads, grains of ACC and of memory."""
    return {memory.name.lower(): memory.rows(config) for memory in Memory} | {
        "acc": config.acc_rows * config.block_out // acc_grain(config),
        "memory": -(-arena_bytes // MEMORY_GRAIN) + 1,
    }
