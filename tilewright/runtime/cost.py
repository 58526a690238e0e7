"""Exact cycles without values: the cycle-level simulator as a cost function."""

from __future__ import annotations

from typing import Any

from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, Device, DeviceError, HostMemory, Region
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import REGIONS
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION, PROGRAM_REGION, WINDOW_REGION, NpuStep, Program
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.runtime.counters import add_counters
from tilewright.simulator.cycle import CycleDevice, simulate


def measure(config: NpuConfig, image: bytes, arena_bytes: int, timing: MemoryTiming = DEFAULT_MEMORY) -> int:
    """Cycles of an instruction image on a memory; constants may lie anywhere in their region.

    Raises:
        DeviceError: the machine stops the program.
        BuildError: no C++ compiler for the simulator.
    """
    constants = max(1 << 20, config.wgt_tiles * config.tile_bytes, config.prm_rows * config.prm_row_bytes)
    # Zeroed pages that nobody touches cost nothing: the clock reads the program only.
    memory = HostMemory(len(image) + constants + arena_bytes + 4096)
    bases = [memory.allocate(max(size, 64)) for size in (len(image), constants, arena_bytes)]
    memory.write(bases[0], image)
    regions = [
        Region(bases[0], len(image), read=True),
        Region(bases[1], constants, read=True),
        *[Region(bases[2], max(arena_bytes, 64), read=True, write=True)] * 2,  # the arena, and a window on it
        *[Region(bases[1], 1 << 32, read=True)] * (REGIONS - WINDOW_REGION - 1),  # windows on tables of any size
    ]
    clock = simulate(config, timing, memory.data, regions, (PROGRAM_REGION, 0, len(image) // INSTRUCTION_BYTES))
    if (fault := clock.error) is not None:
        text = f"{fault.code.name}: {clock.engine.name} at instruction {clock.pc}"
        raise DeviceError(text, fault.code, clock.engine, clock.pc, fault.address)
    assert clock.counters.cycles is not None
    return clock.counters.cycles


def program_cycles(program: Program, timing: MemoryTiming = DEFAULT_MEMORY) -> int:
    """Cycles of all NPU steps of a program on a memory.

    Raises:
        BuildError: no C++ compiler for the simulator.
    """
    return run_npu_steps(program, CycleDevice(program.config, timing, functional=False)).cycles or 0


def run_npu_steps(program: Program, device: Device, **options: Any) -> Counters:
    """Counters of a program's NPU steps, memory laid out as `tilewright.runtime` does, inputs zero.

    No instruction depends on activations, so the cycles are those of any input; CPU steps take none.

    Args:
        options: handed to the device.
    """
    sizes = {PROGRAM_REGION: len(program.instructions), CONSTANT_REGION: len(program.constants),
             ARENA_REGION: program.arena_bytes}  # fmt: skip
    regions = [Region()] * (1 + max(sizes))
    for region, size in sizes.items():
        base = device.allocate(max(size, 64))
        regions[region] = Region(base, size, read=True, write=region == ARENA_REGION)
    regions += [Region()] * (max((w.region for w in program.windows), default=ARENA_REGION) - ARENA_REGION)
    for window in program.windows:  # at its first row
        regions[window.region] = regions[ARENA_REGION if window.space == "arena" else CONSTANT_REGION]
    if program.instructions:
        device.write(regions[PROGRAM_REGION].base, program.instructions)
    if program.config.weight_codes and program.constants:  # how long weights take to decode depends on what they are
        device.write(regions[CONSTANT_REGION].base, program.constants)
    return add_counters(
        [
            device.run(regions, PROGRAM_REGION, step.first * INSTRUCTION_BYTES, step.count, **options)
            for step in program.steps
            if isinstance(step, NpuStep)
        ]
    )
