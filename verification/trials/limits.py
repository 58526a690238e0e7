"""Trials at the ends of what is wide: late instructions of long programs, high addresses, lengths and limits."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, DeviceError, Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import REGIONS, Memory
from tilewright.isa.timing import MemoryTiming
from tilewright.simulator.cycle import CycleDevice
from verification.trials.trial import ENGINES, Make, Trial

#: The last instruction of a long program has this number: with END and what is behind it, below 2^15.
LATE = (1 << 15) - 3
#: Addresses without memory whose bits are all 1, and ones and zeros in turn.
HIGH = (0xFFFF_FF00, 0xAAAA_AA00, 0x5555_5500)
#: Offsets from them, whose bits go on like that down to those of a bus beat.
_OFFSETS = (0xA8, 0x54)
#: Room for the longest program, and for what it reads and writes.
_PROGRAM, _DATA = INSTRUCTION_BYTES * (LATE + 300), 4096


def limits(config: NpuConfig) -> Iterator[Trial]:
    """Yields the trials, shortest first."""
    few = [_high(config, address, ops) for address in HIGH for ops in _outside(config)]
    few += [
        Run([op("LOAD", region=6, count=1), op("END")], length=length)
        for length in (0xFFF_0000, 0xAAA_AAAA, 0x555_5555)  # within the addresses, wherever it lies
    ]
    few += [Run([op("VECTOR_SYNC"), op("END")], watchdog=w, timeout=t) for w, t in _LIMITS]
    few += [Run([op("VECTOR_SYNC"), op("END")], program=region) for region in range(REGIONS)]
    few += [
        Run([op("VECTOR_SYNC"), op("END")], {3: Region(address + offset, 0x80)}, program=3)
        for address, offset in zip(HIGH, (0x4C, *_OFFSETS), strict=True)
    ]
    few += [Run([*syncs(n), op("END")], shift=config.bus_bytes * n) for n in range(48)]
    for n in range(0, len(few), 8):
        yield compared("far", n // 8, config, few[n : n + 8])
    for n, ops in enumerate(stops(config)):
        # The others bring what the late instruction has left in registers back to small numbers.
        early = [*([*syncs(n), *ops, op("END")] for n in (0, 2)), *_outside(config), _copy(), _refused(config)]
        runs = [Run(_late(ops)), *(_high(config, HIGH[0], some) for some in early)]
        yield compared("late", n, config, runs)


#: Watchdog and timeout: every bit 1 in one and 0 in the next.
_LIMITS = ((0xFFFF_FFFF, 0xFFFF_FFFF), (0xAAAA_AAAA, 0x5555_5555), (0x5555_5555, 0xAAAA_AAAA))


def stops(config: NpuConfig) -> Iterator[list[Op]]:
    """Instructions of which the last stops, each in another way, or waits for ever; and none that does."""
    yield [op("END")]
    yield _copy()[:-1]
    yield [op("LOAD_DIM", level=0, count=0), op("LOAD", region=1, count=1)]
    yield [op("LOAD", region=6, count=1)]
    yield [op("LOAD", region=3, count=1)]
    yield _refused(config)[:-1]
    yield [op("GEMM", acc=config.acc_rows)]
    yield [op("VECTOR", dst=config.act_rows)]
    yield [op("STORE", region=1, count=1)]
    yield [op("STORE", region=2, row=config.act_rows, count=1)]
    yield [op("STORE", region=3, count=1)]
    yield [op("GEMM", reduce=15)]
    for engine in ENGINES:
        yield [op(f"{engine}_SYNC", wait0=1)]
        yield [op(f"{engine}_SYNC", signal0=9)] * 256


def _late(ops: Sequence[Op]) -> list[Op]:
    """A program whose instruction LATE is the last one given, after instructions of all engines in turn."""
    return [*syncs(LATE + 1 - len(ops)), *ops, op("END")]


def syncs(number: int) -> list[Op]:
    """Returns a number of SYNC instructions, of all engines in turn."""
    return [op(f"{ENGINES[n % len(ENGINES)]}_SYNC") for n in range(number)]


def _copy() -> list[Op]:
    """A program that copies its input through ACT to its output."""
    return [op("LOAD", region=1, count=9, signal0=1), op("STORE", region=2, count=9, wait0=1), op("END")]


def _refused(config: NpuConfig) -> list[Op]:
    """A row that is not there."""
    return [op("LOAD", region=1, target=Memory.PRM, row=config.prm_rows, count=1), op("END")]


def _outside(config: NpuConfig) -> Iterator[list[Op]]:
    """Instructions that reach what is outside memory (region 3), or a closed region (4)."""
    for region, offset in itertools.product((3, 4), _OFFSETS):
        yield [op("LOAD", region=region, count=1, offset=offset), op("END")]
        yield [op("STORE", region=region, count=1, offset=offset), op("END")]
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
        shift: bytes from a place that suits every bus to the program; its region ends a few bytes behind it.
        timing: of the memory; None = as it is.
    """

    ops: Sequence[Op]
    regions: dict[int, Region] = field(default_factory=dict)
    length: int = 0
    watchdog: int = 2000
    timeout: int = 0
    program: int = 0
    shift: int = 0
    timing: MemoryTiming | None = None

    def on(self, device: RtlDevice | CycleDevice, *, plain: bool = False) -> tuple[object, bytes]:
        """Counters or the error, and what the writable region holds then; `plain` leaves the length as it is."""
        device.free_all()
        device.timing = self.timing or device.timing
        base = device.allocate(_PROGRAM + 2 * _DATA)
        device.write(base + self.shift, np.frombuffer(to_bytes(self.ops), np.uint8))
        data = np.random.default_rng(0).integers(0, 256, 2 * _DATA, np.uint8)
        device.write(base + _PROGRAM, data)
        length = len(self.ops) if plain or not self.length else self.length
        given = {
            0: Region(base + self.shift, INSTRUCTION_BYTES * length + self.shift % 15, read=True),
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


def compared(kind: str, number: int, config: NpuConfig, runs: Sequence[Run], *, fresh: bool = False) -> Trial:
    """Runs on a machine, one after the other; the cycle-level simulator says what must come of them. `fresh`: they may
    write what they have not read."""
    expected = functools.cache(lambda: [r.on(device, plain=True) for device in [CycleDevice(config)] for r in runs])

    def run_all(make: Make) -> str:
        device, known = make(0), True
        for run, (wanted, memory) in zip(runs, expected(), strict=True):
            found, there = run.on(device)
            known &= isinstance(wanted, Counters)  # what a run that stops leaves in memories is not specified
            if found != wanted or (known and there != memory):
                return f"{found}, not {wanted}" if found != wanted else "bytes"
        return ""

    return Trial(kind, number, run_all, fresh=fresh)
