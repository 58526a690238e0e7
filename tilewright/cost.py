"""The cycle-level simulator as a cost function for the compiler's schedule search."""

from __future__ import annotations

from isa.config import NpuConfig
from isa.device import HostMemory, Region
from isa.instructions import INSTRUCTION_BYTES
from isa.program import PROGRAM_REGION, NpuStep, Program
from isa.timing import MemoryTiming
from simulator.cycle import simulate


def measure(config: NpuConfig, image: bytes, arena_bytes: int) -> int:
    """Cycles of an instruction image with the default memory timing; constants may lie anywhere in their region.

    Raises:
        BuildError: no C++ compiler for the simulator.
    """
    constants = max(1 << 20, config.wgt_tiles * config.tile_bytes, config.prm_rows * config.prm_row_bytes)
    return _simulate(config, image, constants, arena_bytes, [NpuStep(0, len(image) // INSTRUCTION_BYTES)])


def program_cycles(program: Program) -> int:
    """Cycles of all NPU steps of a program with the default memory timing.

    Raises:
        BuildError: no C++ compiler for the simulator.
    """
    steps = [step for step in program.steps if isinstance(step, NpuStep)]
    return _simulate(program.config, program.instructions, len(program.constants), program.arena_bytes, steps)


def _simulate(config: NpuConfig, image: bytes, constant_bytes: int, arena_bytes: int, steps: list[NpuStep]) -> int:
    """Cycles of some steps of an image, with memory placed as the runtime places it."""
    # Zeroed pages that nobody touches cost nothing: the clock reads the program only.
    memory = HostMemory(len(image) + constant_bytes + arena_bytes + 4096)
    bases = [memory.allocate(max(size, 64)) for size in (len(image), constant_bytes, arena_bytes)]
    memory.write(bases[0], image)
    regions = [
        Region(bases[0], len(image), read=True),
        Region(bases[1], max(constant_bytes, 64), read=True),
        Region(bases[2], max(arena_bytes, 64), read=True, write=True),
    ]
    total = 0
    for step in steps:
        run = PROGRAM_REGION, step.first * INSTRUCTION_BYTES, step.count
        clock = simulate(config, MemoryTiming(), memory.data, regions, run)
        assert clock.counters.cycles is not None and clock.error is None, clock.error
        total += clock.counters.cycles
    return total
