"""What is run on a machine that may be faulty, and what is looked at: as the tests of `tests/cosim` do."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator

import numpy as np

from hw.sim.device import RtlDevice
from isa.config import NpuConfig
from isa.device import DeviceError
from isa.encoding import op, to_bytes
from isa.timing import MemoryTiming
from simulator.cycle import CycleDevice
from simulator.functional import FunctionalDevice
from tests.common.equality import WATCHDOG, Outcome, case, clock_differences, of_events, of_trace
from tests.common.error_cases import CASES, outcome
from tests.common.program_generator import GeneratedProgram, generate

#: Cycles that a run may take: a fault may keep a machine from ever ending, and its watchdog too.
LIMIT = 60_000
#: A trial runs on a machine that is made for it, and says how that differs from the simulators: "" = not at all.
Make = Callable[[], RtlDevice]
Trial = Callable[[Make], str]


def trials(config: NpuConfig, programs: int, errors: int) -> Iterator[tuple[str, Trial]]:
    """The trials, cheap ones first: random programs, short ones before long ones, then programs with an error.

    Args:
        programs: random programs.
        errors: programs with an error, at most as many as there are.
    """
    sizes = [(6, 15), (20, 60), (40, 120), (60, 500)]
    for n in range(programs):
        instructions, steps = sizes[min(n // max(1, programs // len(sizes)), len(sizes) - 1)]
        yield f"program {n}", _program(config, n, instructions, steps)
    for n in random.Random(0).sample(range(len(CASES)), min(errors, len(CASES))):
        yield f"error {n}", _error(config, n)


def _program(config: NpuConfig, seed: int, instructions: int, steps: int) -> Trial:
    @functools.cache
    def expected() -> tuple[GeneratedProgram, MemoryTiming, Outcome, np.ndarray]:
        _, timing = case(seed, config)
        program = generate(seed, config, instructions=instructions, max_steps=steps)
        cycle = CycleDevice(config, timing)
        base, regions = program.install(cycle)
        counters = cycle.run(regions, 0, 0, len(program.ops), watchdog=WATCHDOG, trace=True)
        found = Outcome(counters, None, cycle.read(base, program.memory.size), of_trace(cycle.trace, program.ops))
        return program, timing, found, program.run(FunctionalDevice(config))

    def trial(make: Make) -> str:
        program, timing, wanted, memory = expected()
        device = make()
        device.timing = timing
        base, regions = program.install(device)
        counters = error = None
        try:
            counters = device.run(regions, 0, 0, len(program.ops), watchdog=WATCHDOG, log="events")
        except DeviceError as stopped:
            error = stopped
        found = Outcome(counters, error, device.read(base, program.memory.size), of_events(device.events))
        if lines := clock_differences(found, wanted, program.ops):
            return lines[0]
        return "" if np.array_equal(found.memory, memory) else "bytes"

    return trial


def _error(config: NpuConfig, number: int) -> Trial:
    words = to_bytes([*CASES[number], op("END")])

    @functools.cache
    def expected() -> object:
        return outcome(FunctionalDevice(config, "reference"), words)

    def trial(make: Make) -> str:
        wanted = expected()
        device = make()
        found = outcome(device, words, watchdog=2000)
        return "" if found == wanted else f"{found}, not {wanted}"

    return trial
