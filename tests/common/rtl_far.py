"""Trials at the ends of what is wide: late instructions of long programs, high addresses, lengths and limits."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from isa.config import NpuConfig
from isa.device import Counters, Device, DeviceError, Region
from isa.encoding import Op, op, to_bytes
from isa.instructions import INSTRUCTION_BYTES, REGIONS, Engine, Memory
from simulator.cycle import CycleDevice
from tests.common.rtl_trials import Make, Trial

#: The last instruction of a long program has this number: all bits are 1.
LATE = (1 << 14) - 1
#: Addresses without memory whose bits are all 1, and ones and zeros in turn, down to those of a bus beat.
HIGH = (0xFFFF_FF00, 0xAAAA_AA00, 0x5555_5500)
#: Room for the longest program, and for what it reads and writes.
_PROGRAM, _DATA = INSTRUCTION_BYTES * (LATE + 300), 4096
_ENGINES = [e.name for e in Engine if e != Engine.FETCH]


def far(config: NpuConfig) -> Iterator[Trial]:
    """The trials, short ones first."""
    few = [_high(config, address, ops) for address in HIGH for ops in _outside(config)]
    few += [
        Run([op("LOAD", region=6, count=1), op("END")], length=length)
        for length in (0xFFF_FFFF, 0xAAA_AAAA, 0x555_5555)
    ]
    few += [Run([op("VECTOR_SYNC"), op("END")], watchdog=w, timeout=t) for w, t in _LIMITS]
    few += [Run([op("VECTOR_SYNC"), op("END")], program=region) for region in range(REGIONS)]
    for n in range(0, len(few), 8):
        yield _trial("far", n // 8, config, few[n : n + 8])
    for n, ops in enumerate(_stops(config)):
        yield _trial("late", n, config, [Run(_late(ops))])


#: Watchdog and timeout: every bit 1 in one and 0 in the next.
_LIMITS = ((0xFFFF_FFFF, 0xFFFF_FFFF), (0xAAAA_AAAA, 0x5555_5555), (0x5555_5555, 0xAAAA_AAAA))


def _stops(config: NpuConfig) -> Iterator[list[Op]]:
    """Instructions of which the last stops, each in another way, or waits for ever; and none that does."""
    yield [op("END")]
    yield [op("LOAD_DIM", level=0, count=0), op("LOAD", region=1, count=1)]
    yield [op("LOAD", region=6, count=1)]
    yield [op("LOAD", region=3, count=1)]
    yield [op("LOAD", region=1, target=Memory.PRM, row=config.prm_rows, count=1)]
    yield [op("GEMM", acc=config.acc_rows)]
    yield [op("VECTOR", dst=config.act_rows)]
    yield [op("STORE", region=1, count=1)]
    yield [op("STORE", region=2, row=config.act_rows, count=1)]
    yield [op("STORE", region=3, count=1)]
    yield [op("GEMM", reduce=15)]
    for engine in _ENGINES:
        yield [op(f"{engine}_SYNC", wait0=1)]
        yield [op(f"{engine}_SYNC", signal0=9)] * 256


def _late(ops: Sequence[Op]) -> list[Op]:
    """A program whose instruction LATE is the last one given, after instructions of all engines in turn."""
    before = LATE + 1 - len(ops)
    return [*[op(f"{_ENGINES[n % len(_ENGINES)]}_SYNC") for n in range(before)], *ops, op("END")]


def _outside(config: NpuConfig) -> Iterator[list[Op]]:
    """Instructions that reach what is outside memory (region 3), or a closed region (4)."""
    far_away = config.bus_bytes * 5
    for region in (3, 4):
        yield [op("LOAD", region=region, count=1, offset=far_away), op("END")]
        yield [op("STORE", region=region, count=1, offset=far_away), op("END")]
    yield [op("LOAD", region=4, count=1, offset=0xFFFF_FFFF), op("END")]
    yield [op("STORE", region=4, count=1, offset=0xFFFF_FFFF), op("END")]


def _high(config: NpuConfig, address: int, ops: list[Op]) -> Run:
    return Run(ops, {3: Region(address, 0xFF, read=True, write=True), 4: Region(address, 0)})


@dataclass(frozen=True)
class Run:
    """A program with what is unusual about its run.

    Attributes:
        ops: the program.
        program: the region it lies in; region 3 is outside of memory.
        regions: besides those of the program (0), of what is read (1) and written (2), by number.
        length: of the program as the registers say it, in instructions; 0 = as it is.
        watchdog, timeout: in cycles.
    """

    ops: Sequence[Op]
    regions: dict[int, Region] = field(default_factory=dict)
    length: int = 0
    watchdog: int = 2000
    timeout: int = 0
    program: int = 0

    def on(self, device: Device, *, plain: bool = False) -> tuple[object, bytes]:
        """Counters or the error, and what the writable region holds then; `plain` leaves the length as it is."""
        device.free_all()
        base = device.allocate(_PROGRAM + 2 * _DATA)
        device.write(base, np.frombuffer(to_bytes(self.ops), np.uint8))
        data = np.random.default_rng(0).integers(0, 256, 2 * _DATA, np.uint8)
        device.write(base + _PROGRAM, data)
        length = len(self.ops) if plain or not self.length else self.length
        given = {
            0: Region(base, max(_PROGRAM, INSTRUCTION_BYTES * length), read=True),
            1: Region(base + _PROGRAM, _DATA, read=True),
            2: Region(base + _PROGRAM + _DATA, _DATA, read=True, write=True),
            3: Region(1 << 30, _DATA, read=True, write=True),
        } | self.regions
        given.setdefault(self.program, given[0])
        regions = [given.get(n, Region()) for n in range(max(given) + 1)]
        found: object
        try:
            found = device.run(regions, self.program, 0, length, watchdog=self.watchdog, timeout=self.timeout)
        except DeviceError as error:
            found = error.code, error.engine, error.pc, error.address
        return found, device.read(base + _PROGRAM + _DATA, _DATA).tobytes()


def _trial(kind: str, number: int, config: NpuConfig, runs: Sequence[Run]) -> Trial:
    """Runs on a machine, one after the other; the cycle-level simulator says what must come of them."""
    expected = functools.cache(lambda: [r.on(device, plain=True) for device in [CycleDevice(config)] for r in runs])

    def compared(make: Make) -> str:
        device, known = make(0), True
        for run, (wanted, memory) in zip(runs, expected(), strict=True):
            found, there = run.on(device)
            known &= isinstance(wanted, Counters)  # what a run that stops leaves in memories is not specified
            if found != wanted or (known and there != memory):
                return f"{found}, not {wanted}" if found != wanted else "bytes"
        return ""

    return Trial(kind, number, compared, fresh=False)
