"""Trials that make bits of registers and counters 1 and 0 which programs leave alone: patterns in all registers, and
counters of semaphores up to their limit and beyond."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilewright.isa.config import SEMAPHORE_LIMIT, NpuConfig
from tilewright.isa.encoding import Op, op
from tilewright.isa.instructions import BY_NAME
from tilewright.isa.registers import REGISTERS
from verification.trials.directed import Run, trial
from verification.trials.trial import ENGINES, SEMAPHORES, Make, Trial

#: Each bit is 1 in one and 0 in the next, whatever was there before.
PATTERNS = (0, 0xFFFF_FFFF, 0, 0xAAAA_AAAA, 0x5555_5555, 0xAAAA_AAAA)


def register_bits(config: NpuConfig) -> Iterator[Trial]:
    """Yields the trials, cheapest first."""
    yield Trial("patterns", 0, _patterns, fresh=False)
    yield trial("refused", 0, config, [Run(ops) for ops in _refused()])
    for number in range(len(ENGINES)):
        yield trial("overflows", number, config, [Run(ops) for ops in _overflows(number, config)])
    for number in range(len(ENGINES)):
        yield trial("counts", number, config, [Run(ops) for ops in _counts(number, config)])


def _patterns(make: Make) -> str:
    """All registers that can be written keep the same pattern, in an order and in the other one."""
    device = make(0)
    names = [r.name for r in REGISTERS if r.access == "RW"]
    for pattern in PATTERNS:
        for name in names:
            device.write_register(name, pattern)
        for name in reversed(names):
            if (found := device.read_register(name)) != pattern:
                return f"{name}: 0x{found:x}, not 0x{pattern:x}"
    return ""


def _refused() -> Iterator[list[Op]]:
    """Numbers of semaphores with all their bits, which no machine has."""
    for engine, field in itertools.product(ENGINES, SEMAPHORES):
        number = BY_NAME[f"{engine}_SYNC"].by_name[field].maximum
        yield [op(f"{engine}_SYNC"), op(f"{engine}_SYNC", **{field: number}), op("END")]


def _pairs(number: int, config: NpuConfig) -> Iterator[tuple[int, int]]:
    """Each semaphore with another one, others for each number."""
    last = config.semaphores
    for first in range(1, last + 1, 2):
        yield first, (first + 2 * number) % last + 1


def _counts(number: int, config: NpuConfig) -> Iterator[list[Op]]:
    """An engine counts two semaphores up to the limit, the next one down again, in turn in either order."""
    giver, taker = (f"{ENGINES[(number + n) % len(ENGINES)]}_SYNC" for n in (0, 1))
    for pair in _pairs(number, config):
        turns = [pair[:: 1 - n % 2 * 2] for n in range(SEMAPHORE_LIMIT)]
        up = [op(giver, signal0=one, signal1=other) for one, other in turns]
        yield [*up, *[op(taker, wait0=one, wait1=other) for one, other in turns], op("END")]


def _overflows(number: int, config: NpuConfig) -> Iterator[list[Op]]:
    """An engine counts a semaphore beyond the limit, by the first and by the second of what it gives."""
    giver = f"{ENGINES[number]}_SYNC"
    for pair in _pairs(number, config):
        for one, other in (pair, pair[::-1]):
            full = [op(giver, signal0=one, signal1=other)] * SEMAPHORE_LIMIT
            yield [*full, op(giver, signal0=one), op("END")]
            yield [*full, op(giver, signal1=other), op("END")]
