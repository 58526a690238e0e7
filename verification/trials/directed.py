"""Directed trials: every class of values the instruction table has is in an instruction that a machine starts.

They are made of the tables: a field or an instruction more gets its trials by itself.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, DeviceError
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.fields import HEADER, INSTRUCTION_BYTES
from tilewright.isa.instructions import Engine, Instruction
from tilewright.isa.timing import MemoryTiming
from tilewright.simulator.cycle import CycleDevice
from verification.coverage.functional import classes, instructions_on
from verification.programs.error_cases import SIZE, prepare
from verification.trials.trial import Make, Trial

#: A plain instruction of each engine, for which those that configure do so, and what others need to be legal.
_PLAIN = {
    Engine.LOAD: op("LOAD", region=1, count=1),
    Engine.GEMM: op("GEMM"),
    Engine.VECTOR: op("VECTOR"),
    Engine.STORE: op("STORE", region=2, count=1),
}
_GIVEN = {"LOAD": _PLAIN[Engine.LOAD].values, "STORE": _PLAIN[Engine.STORE].values}


@dataclass(frozen=True)
class Run:
    """A program, where it lies in its region, in bytes, and the limits in cycles that it has.

    Attributes:
        data: the first bytes of what it can read; the others are random.
        timing: of the memory; None = as it is.
    """

    ops: Sequence[Op]
    offset: int = 0
    watchdog: int = 2000
    timeout: int = 3000
    data: bytes = b""
    timing: MemoryTiming | None = None

    def on(self, device: RtlDevice | CycleDevice) -> tuple[Counters | tuple[object, ...], bytes]:
        """Counters or the error, and what the writable region holds then."""
        regions = prepare(device)
        image = np.random.default_rng(len(self.ops) + self.offset).integers(0, 256, 3 * SIZE, np.uint8)
        words = np.frombuffer(to_bytes(self.ops), np.uint8)[: SIZE - self.offset]
        image[self.offset : self.offset + words.size] = words
        image[SIZE : SIZE + len(self.data)] = np.frombuffer(self.data, np.uint8)
        device.timing = self.timing or device.timing
        device.write(regions[0].base, image)
        found: Counters | tuple[object, ...]
        try:
            found = device.run(regions, 0, self.offset, len(self.ops), watchdog=self.watchdog, timeout=self.timeout)
        except DeviceError as error:
            found = error.code, error.engine, error.pc, error.address
        return found, device.read(regions[2].base, SIZE).tobytes()


def directed(config: NpuConfig) -> Iterator[Trial]:
    """The trials: fields by instruction, semaphores by engine, and runs that end early."""
    for number, instruction in enumerate(instructions_on(config)):
        yield trial("fields", number, config, [Run(ops) for ops in _fields(instruction, config)])
    for engine in _PLAIN:
        yield trial("semaphores", engine, config, [Run(ops) for ops in _semaphores(engine, config)])
    last = SIZE - INSTRUCTION_BYTES  # of the region, with room for one instruction
    given: tuple[dict[str, Any], ...] = ({"offset": last}, {"offset": last - INSTRUCTION_BYTES}, {"watchdog": 1})
    yield trial("runs", 0, config, [Run([op("VECTOR_SYNC"), op("END")], **values) for values in given])


def _fields(instruction: Instruction, config: NpuConfig) -> Iterator[list[Op]]:
    """Programs in which each field has values of each class, by itself: the ends, and one between them; and those
    beyond its limits, the nearest and the farthest."""
    plain = {f.name: f.at_least for f in instruction.fields} | dict(_GIVEN.get(instruction.name, {}))
    for field in (*HEADER[1:], *instruction.fields):
        low, high = field.limits(config)
        chosen = []
        if high < field.maximum:
            chosen += [high + 1, field.maximum]
        if low > field.minimum:
            chosen += [low - 1, field.minimum]
        if field in instruction.fields:
            chosen += [v[i] for v in classes(field, config).values() for i in (len(v) // 2, 0, -1)]
        elif not instruction.takes_semaphores:
            chosen.append(high)
        for value in dict.fromkeys(chosen):
            one = op(instruction.name, **plain | {field.name: value})
            yield [one, *([_PLAIN[instruction.engine]] if instruction.configures else []), op("END")]


def _semaphores(engine: Engine, config: NpuConfig) -> Iterator[list[Op]]:
    """An engine gives one or two counts and takes them; another one does, for it or from it. And it names one twice,
    which is an error."""
    last, plain = config.semaphores, _PLAIN[engine]
    for what, semaphore in itertools.product(("wait", "signal"), (1, last)):
        yield [op(plain.name, **plain.values, **{f"{what}0": semaphore, f"{what}1": semaphore}), op("END")]
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


def scale_rows(config: NpuConfig, *scales: float) -> bytes:
    """Rows of PRM without a bias, each with one scale."""
    data = np.zeros((len(scales), config.block_in), np.dtype([("bias", "<i4"), ("scale", "<f4")]))
    data["scale"] = np.array(scales)[:, None]
    return data.tobytes()


def trial(kind: str, number: int, config: NpuConfig, runs: Sequence[Run]) -> Trial:
    """Runs on one machine, one after the other; the cycle-level simulator says what must come of them."""
    expected = functools.cache(lambda: [run.on(device) for device in [CycleDevice(config)] for run in runs])

    def compared(make: Make) -> str:
        device, bytes_known = make(0), True
        for run, (wanted, memory) in zip(runs, expected(), strict=True):
            found, there = run.on(device)
            if found != wanted:
                return f"{found}, not {wanted}"
            bytes_known &= isinstance(wanted, Counters)  # what a run that stops leaves in memories is not specified
            if bytes_known and there != memory:
                return "bytes"
        return ""

    return Trial(kind, number, compared)
