"""`CycleDevice`: the cycle-level simulator. The bytes of the functional simulator, the clock of the RTL."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from tilewright.common.native import BuildError, Library, shared_library
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, DeviceError, EngineCounters, HostMemory, Launch, Region
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import Engine
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.simulator import native
from tilewright.simulator.interruption import Interruptible
from tilewright.simulator.state import Explainer, ExternalMemory, Fault, Scratchpads, check_call
from tilewright.simulator.structs import CycleRun, InstructionTimes, check_size, cycle_config, pointer, prepare

_SOURCES = Path(__file__).resolve().parent / "native"
_INCLUDE = Path(__file__).resolve().parent.parent / "isa" / "include"
_FLAGS = ("-O3", "-march=native", "-Wall")
#: Steps of the functional simulator that take about as long as a cycle which is not skipped, and a second of them.
_STEPS_PER_CYCLE, _STEPS_AT_LEAST = 16, 1 << 24


def _build() -> Path:
    """Builds the shared library if it is not there; one serves every configuration. Raises `BuildError`."""
    return shared_library(source())


def source() -> Library:
    """The library of this simulator."""
    return Library(
        _SOURCES / "cycle.cpp",
        [*_FLAGS, f"-I{_INCLUDE}"],
        [*_SOURCES.glob("cycle*"), _SOURCES / "structs.h", *_INCLUDE.glob("*.h")],
        group="simulator",
        name="cycle",
        title="the cycle simulator",
    )


@functools.cache
def library() -> ctypes.CDLL:
    """Loads the library. Raises `BuildError`."""
    path = _build()
    loaded = ctypes.CDLL(str(path))
    loaded.tw_cycle_run_program.argtypes = [ctypes.POINTER(CycleRun)]
    loaded.tw_cycle_run_program.restype = None
    if not check_size(loaded, "tw_cycle_size", CycleRun):
        raise BuildError(f"{path} and simulator/structs.py disagree: run python -m tilewright.simulator.generate")
    return loaded


class Trace(Struct):
    """Times of the instructions of a run, in cycles from 1, the first cycle after START; 0 = never.

    Attributes:
        times: uint64 [instructions, 4]: dispatched by FETCH, first held back by a semaphore, taken by its engine (its
            first step is made a cycle later), completed (its signals can be taken a cycle later).
        cycles: cycles of the whole run.
        first: index in the program's region of the instruction `times` begins with.
    """

    times: np.ndarray
    cycles: int
    first: int = 0

    @property
    def dispatched(self) -> np.ndarray:
        return self.times[:, 0]

    @property
    def waited(self) -> np.ndarray:
        return self.times[:, 1]

    @property
    def started(self) -> np.ndarray:
        return self.times[:, 2]

    @property
    def ended(self) -> np.ndarray:
        return self.times[:, 3]


class Clock(Struct):
    """Cycles and counters of a run, without its data."""

    counters: Counters
    error: Fault | None
    engine: Engine
    pc: int
    trace: Trace | None
    evaluated: int


def simulate(
    config: NpuConfig,
    timing: MemoryTiming,
    data: np.ndarray,
    regions: Sequence[Region],
    program: tuple[int, int, int],
    *,
    watchdog: int = 0,
    timeout: int = 0,
    trace: bool = False,
    stop: ctypes.c_uint8 | None = None,
) -> Clock:
    """Simulates the clock of a program (region, offset, length); memory and scratchpads are not touched.

    Args:
        stop: another thread sets it to end the run with TIMEOUT.

    Raises:
        BuildError: no C++ compiler.
    """
    call = CycleRun(config=cycle_config(config, timing), watchdog=watchdog, timeout=timeout)
    prepare(call, config, data, regions, program, stop)
    times = None
    if trace:
        # Nothing of a program is dispatched where it does not fit into its region: its length is then no size.
        fits = INSTRUCTION_BYTES * program[2] <= regions[program[0]].size if program[0] < len(regions) else False
        times = np.zeros((program[2] if fits else 0, len(InstructionTimes._fields_)), np.uint64)
    if times is not None:
        call.times = pointer(times, InstructionTimes)
    library().tw_cycle_run_program(ctypes.byref(call))
    counters = Counters(
        cycles=call.cycles,
        macs=call.macs * config.macs_per_cycle,
        bytes_read=call.bytes_read,
        bytes_written=call.bytes_written,
        instructions=call.instructions,
        engines={
            e.name: EngineCounters(call.engines[e].busy, call.engines[e].wait_semaphore, call.engines[e].wait_memory)
            for e in list(Engine)[1:]
        },
    )
    error = Fault(ErrorCode(call.code), call.address) if call.code else None
    recorded = Trace(times, call.cycles, program[1] // INSTRUCTION_BYTES) if times is not None else None
    return Clock(counters, error, Engine(call.engine), call.pc, recorded, call.evaluated)


class CycleDevice(Interruptible):
    """The cycle-level simulator: for any program and memory timing the cycles and counters of the RTL, and the memory
    images of the functional simulator.

    Args:
        config: the NPU.
        timing: timing of the external memory.
        functional: False leaves out the data: outputs are not computed, only the clock runs.

    Attributes:
        memory: external memory.
        scratchpads: the on-chip memories.
        trace: of the last run with `trace=True`.
        traces: traces of all such runs since the caller emptied it.
    """

    name = "cycle"

    def __init__(self, config: NpuConfig, timing: MemoryTiming | None = None, *, functional: bool = True) -> None:
        super().__init__()
        self.config, self.timing, self.functional = config, timing or DEFAULT_MEMORY, functional
        self.memory = HostMemory()
        self.scratchpads = Scratchpads(config)
        self._machine: native.Machine | None = None
        self.trace: Trace | None = None
        self.traces: list[Trace] = []
        library()

    def execute(self, launch: Launch, *, trace: bool = False, **options: Any) -> Counters:
        """See `tilewright.isa.device.Device.run`.

        Args:
            watchdog: cycles without progress before WATCHDOG; with 0 a run that can make none ends with it at once.
            timeout: cycles of the run before TIMEOUT, 0 = none.
            trace: keep the times of every instruction in `self.trace`.
        """
        check_call(self.config, launch)
        data = self.memory.data
        self.stop.value = 0
        clock = simulate(
            self.config, self.timing, data, launch.regions, launch.program,
            watchdog=launch.watchdog, timeout=launch.timeout, trace=trace, stop=self.stop,
        )  # fmt: skip
        self.trace = clock.trace
        if clock.trace is not None:
            self.traces.append(clock.trace)
        if clock.error is not None:
            raise self.interrupted(self._error(clock, launch.regions, launch.program))
        if self.functional:
            try:
                self._functional(launch.regions, launch.program, (1 << 64) - 1)
            except DeviceError as error:
                raise self.interrupted(error) from None
        return clock.counters

    def _functional(self, regions: Sequence[Region], program: tuple[int, int, int], steps: int) -> None:
        if self._machine is None or self._machine.scratchpads is not self.scratchpads:
            self._machine = native.Machine(self.config, self.scratchpads)
        self._machine.run(self.memory.data, regions, program, steps, self.stop)

    def _error(self, clock: Clock, regions: Sequence[Region], program: tuple[int, int, int]) -> DeviceError:
        """The error of the clock; with the functional simulator's message where that one stops at the same place."""
        assert clock.error is not None
        fault = clock.error
        if self.functional:
            try:
                # No engine makes more than one step a cycle. But the clock skips cycles, and the functional simulator
                # no steps: it gets as many as take about as long as the run did.
                steps = min(clock.counters.cycles or 1, _STEPS_AT_LEAST + _STEPS_PER_CYCLE * clock.evaluated)
                self._functional(regions, program, steps)
            except DeviceError as reported:
                if (reported.code, reported.engine, reported.pc) == (fault.code, clock.engine, clock.pc):
                    return DeviceError(str(reported), fault.code, clock.engine, clock.pc, fault.address)
        explain = Explainer(ExternalMemory(self.memory.data, regions), program[0], program[1], self.scratchpads)
        text = f"{fault.code.name}: {clock.engine.name} at {explain._at(clock.pc)} in cycle {clock.counters.cycles}"
        if fault.code == ErrorCode.WATCHDOG and fault.address:
            text += f", waiting for semaphore {fault.address}"
        elif fault.address:
            text += f", {'row' if fault.code == ErrorCode.SCRATCHPAD_RANGE else 'address'} {fault.address}"
        return DeviceError(text, fault.code, clock.engine, clock.pc, fault.address)
