"""The cycle-level simulator as a cost function for the compiler's schedule search."""

from __future__ import annotations

import numpy as np

from isa.config import NpuConfig
from isa.device import Region
from isa.instructions import INSTRUCTION_BYTES
from isa.timing import MemoryTiming
from simulator.cycle import simulate


def measure(config: NpuConfig, image: bytes, arena_bytes: int) -> int:
    """Cycles of an instruction image with the default memory timing; constants may lie anywhere in their region.

    Raises:
        BuildError: no C++ compiler for the simulator.
    """
    # Zeroed pages that nobody touches cost nothing: the clock reads the program only.
    constants = max(1 << 20, config.wgt_tiles * config.tile_bytes, config.prm_rows * config.prm_row_bytes)
    base = -(-len(image) // 4096) * 4096
    data = np.zeros(base + constants + arena_bytes + 4096, np.uint8)
    data[: len(image)] = np.frombuffer(image, np.uint8)
    regions = [
        Region(0, len(image), read=True),
        Region(base, constants, read=True),
        Region(base + constants, max(arena_bytes, 64), read=True, write=True),
    ]
    clock = simulate(config, MemoryTiming(), data, regions, (0, 0, len(image) // INSTRUCTION_BYTES))
    cycles = clock.counters.cycles
    assert cycles is not None and clock.error is None, clock.error
    return cycles
