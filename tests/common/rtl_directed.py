"""Directed trials: every class of values the instruction table has is in an instruction that a machine starts.

They are made of the tables: a field or an instruction more gets its trials by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hw.sim.device import RtlDevice
from isa.config import NpuConfig
from isa.device import Device, DeviceError
from isa.encoding import Op, op, to_bytes
from isa.instructions import INSTRUCTION_BYTES, INSTRUCTIONS, Engine, Instruction
from simulator.cycle import CycleDevice
from tests.common.error_cases import SIZE, prepare
from tests.common.rtl_trials import Make, Trial
from tests.coverage.functional import classes

#: A plain instruction of each engine, for which those that configure do so, and what others need to be legal.
_PLAIN = {
    Engine.LOAD: op("LOAD", region=1, count=1),
    Engine.GEMM: op("GEMM"),
    Engine.VECTOR: op("VECTOR"),
    Engine.STORE: op("STORE", region=2, count=1),
}
_GIVEN = {"LOAD": _PLAIN[Engine.LOAD].values, "STORE": _PLAIN[Engine.STORE].values}
#: Enough for what ends; loops of 65,535 steps do not.
_LIMITS = {"watchdog": 2000, "timeout": 3000}


def directed(config: NpuConfig) -> Iterator[Trial]:
    """The trials, by instruction, then those of semaphores and of runs that end early."""
    known = [i for i in INSTRUCTIONS if i.requires is None or getattr(config, i.requires)]
    programs: list[tuple[str, dict[str, int], list[Op]]] = []
    for instruction in known:
        programs += [("fields", {}, ops) for ops in _fields(instruction, config)]
    for engine in _PLAIN:
        programs += [("semaphores", {}, ops) for ops in _semaphores(engine, config)]
    last = SIZE - INSTRUCTION_BYTES  # of the region, with room for one instruction
    for given in ({"offset": last}, {"offset": last - INSTRUCTION_BYTES}, {"watchdog": 1}):
        programs.append(("runs", given, [op("VECTOR_SYNC"), op("END")]))
    for number, (kind, given, ops) in enumerate(programs):
        yield Trial(kind, number, compared(config, ops, **given), ops)


def _fields(instruction: Instruction, config: NpuConfig) -> Iterator[list[Op]]:
    """Programs in which each field has a value of each class, by itself."""
    for field in instruction.fields:
        for values in classes(field, config).values():
            plain = {f.name: f.at_least for f in instruction.fields} | dict(_GIVEN.get(instruction.name, {}))
            one = op(instruction.name, **plain | {field.name: values[len(values) // 2]})
            yield [one, *([_PLAIN[instruction.engine]] if instruction.configures else []), op("END")]


def _semaphores(engine: Engine, config: NpuConfig) -> Iterator[list[Op]]:
    """An engine gives one or two counts and takes them; another one does, for it or from it."""
    last, plain = config.semaphores, _PLAIN[engine]
    for other in _PLAIN:
        sync = f"{other.name}_SYNC"
        for waits, signals in (
            ({"wait0": last}, {"signal1": 1}),
            ({"wait0": last, "wait1": 1}, {"signal0": 1, "signal1": last}),
        ):
            yield [
                op(sync, signal0=1, signal1=last),
                op(plain.name, **plain.values, **waits, **signals),
                op(sync, **{f"wait{n}": semaphore for n, semaphore in enumerate(signals.values())}),
                op("END"),
            ]


def compared(config: NpuConfig, ops: list[Op], *, offset: int = 0, **limits: int) -> Callable[[Make], str]:
    """Runs a program; the cycle-level simulator says what must come of it.

    Args:
        offset: of the program in its region, in bytes.
        limits: watchdog and timeout, where they are not as usual here.
    """
    words = np.frombuffer(to_bytes(ops), np.uint8)

    def found(device: Device) -> tuple[Any, bytes]:
        """Counters or the error, and what the writable region holds."""
        regions = prepare(device)
        rng = np.random.default_rng(len(ops) + offset)
        device.write(regions[0].base, rng.integers(0, 256, 3 * SIZE, np.uint8))
        device.write(regions[0].base + offset, words[: SIZE - offset])
        try:
            outcome: Any = device.run(regions, 0, offset, len(ops), **_LIMITS | limits)
        except DeviceError as error:
            outcome = error.code, error.engine, error.pc, error.address
        return outcome, device.read(regions[2].base, SIZE).tobytes()

    expected = functools.cache(lambda: found(CycleDevice(config)))

    def run(make: Make) -> str:
        device: RtlDevice = make(0)
        (ours, bytes_here), (theirs, bytes_there) = found(device), expected()
        if ours != theirs:
            return f"{ours}, not {theirs}"
        return "" if bytes_here == bytes_there or isinstance(theirs, tuple) else "bytes"

    return run
