"""Trials of FETCH, of the end of a run and of what is said of it: illegal fields, programs of any length at any place,
limits of regions and of time, the cycle in which a run stops.

Runs differ in few registers, so only these are written; of a run that ends its cycles are looked at, of one that stops
its report. The cycle-level simulator says what must come of them.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.hw.interfaces import LENGTH_BITS
from tilewright.hw.sim.device import RtlDevice
from tilewright.hw.sizes import pc_bits
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Device, Launch, Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import HEADER, INSTRUCTION_BYTES, Field
from tilewright.isa.host import error_of, mask, run_values
from tilewright.isa.instructions import REGIONS, Instruction
from tilewright.isa.registers import REGISTERS
from tilewright.isa.timing import FETCH_BURST_BYTES, MemoryTiming
from tilewright.simulator.cycle import Clock, CycleDevice, simulate
from verification.coverage.functional import instructions_on
from verification.programs.error_cases import CASES
from verification.trials.limits import syncs
from verification.trials.trial import ENGINES, Make, Trial

#: Bytes that can be read, and so many that can be written; the program lies behind them.
_DATA = 4096
#: The program's region, the one that is read, the one that is written, and one that is open where no memory is.
PROGRAM, READ, WRITE, NOWHERE = 0, 1, 2, 3
#: Two more, like the one that is written; one that goes on behind it.
OTHER, LARGE = 4, 7
#: Registers that report an error.
_REPORT = [r.name for r in REGISTERS if r.name.startswith("ERROR_")]
_NEAR = MemoryTiming(read_latency=5, write_latency=3)


@dataclass(frozen=True)
class Run:
    """A run: the program, and what is unusual about it.

    Attributes:
        words: the program as the memory holds it.
        length: of the program as the registers say it, in instructions; None = of `words`.
        size: of the program's region in bytes; None = so that the program fits.
        shift: bytes from a multiple of FETCH_BURST_BYTES to the program.
        flags: whether regions can be read and written, where that is not as usual.
    """

    words: bytes
    watchdog: int = 500
    timeout: int = 3000
    length: int | None = None
    size: int | None = None
    shift: int = 0
    flags: dict[int, tuple[bool, bool]] = field(default_factory=dict)
    timing: MemoryTiming = _NEAR

    def launch(self, device: Device) -> Launch:
        """Writes program and data to a device's memory, and returns the launch."""
        device.free_all()
        base = device.allocate(2 * _DATA + 2 * FETCH_BURST_BYTES + len(self.words) + 64)
        data = np.random.default_rng(0).integers(0, 256, 2 * _DATA, np.uint8)
        program = -(-(base + data.size) // FETCH_BURST_BYTES) * FETCH_BURST_BYTES + self.shift
        device.write(base, data)
        device.write(program, self.words + bytes(64))
        length = len(self.words) // INSTRUCTION_BYTES if self.length is None else self.length
        given = {
            PROGRAM: Region(program, INSTRUCTION_BYTES * length if self.size is None else self.size, read=True),
            READ: Region(base, _DATA, read=True),
            WRITE: Region(base + _DATA, _DATA, read=True, write=True),
            NOWHERE: Region(1 << 30, _DATA, read=True, write=True),
            OTHER: Region(base + _DATA, _DATA, read=True, write=True),
            OTHER + 1: Region(base + _DATA, _DATA, read=True, write=True),
            LARGE: Region(base, 1 << 19, read=True, write=True),
        }
        for number, (read, write) in self.flags.items():
            given[number] = replace(given[number], read=read, write=write)
        regions = [given.get(n, Region()) for n in range(REGIONS)]
        return Launch(regions, PROGRAM, 0, length, self.watchdog, self.timeout)

    def expected(self, config: NpuConfig) -> tuple[object, ...]:
        """The simulator's result: the cycles, or code, engine, instruction and address of an error."""
        clock = self._clock(config, self.timeout)
        if clock.error is None:
            return ("cycles", clock.counters.cycles)
        return clock.error.code, clock.engine, clock.pc, clock.error.address

    def stops(self, config: NpuConfig) -> tuple[ErrorCode | None, int]:
        """The error with which the simulator stops the run if there is no timeout, and the cycle of that or of the
        end."""
        clock = self._clock(config, 0)
        return clock.error.code if clock.error else None, clock.counters.cycles or 0

    def _clock(self, config: NpuConfig, timeout: int) -> Clock:
        device = CycleDevice(config, self.timing)
        asked, memory = self.launch(device), device.memory.data
        return simulate(
            config, self.timing, memory, asked.regions, asked.program, watchdog=self.watchdog, timeout=timeout
        )


class Host:
    """Runs on one machine, which writes only those registers that change."""

    def __init__(self, device: RtlDevice) -> None:
        self.device = device
        self._values: dict[str, int] = {}

    def found(self, run: Run) -> tuple[object, ...]:
        """The RTL's result, in the form of `Run.expected`."""
        device = self.device
        device.timing = run.timing
        values = run_values(run.launch(device))
        changed = {name: value for name, value in values.items() if self._values.get(name) != value}
        self._values = values
        if not device.start(changed | {"IRQ_STATUS": values["IRQ_STATUS"]}):
            return ("no interrupt",)
        if not device.read_register("STATUS") & mask("STATUS", "ERROR"):
            return ("cycles", device.read_register("CYCLES_LO"))
        error = error_of({name: device.read_register(name) for name in _REPORT})
        device.reset()
        return error.code, error.engine, error.pc, error.address


def compared(kind: str, number: int, config: NpuConfig, runs: Sequence[Run]) -> Trial:
    """Runs on one machine, one after the other."""
    expected = functools.cache(lambda: [run.expected(config) for run in runs])

    def run_all(make: Make) -> str:
        host = Host(make(0))
        for run, wanted in zip(runs, expected(), strict=True):
            if (found := host.found(run)) != wanted:
                return f"{found}, not {wanted}"
        return ""

    return Trial(kind, number, run_all, fresh=False)


def fetch(config: NpuConfig) -> Iterator[Trial]:
    """Yields the trials, cheapest first."""
    yield compared("reports", 0, config, list(_reports(config)))
    yield compared("permissions", 0, config, list(_permissions()))
    yield compared("times", 0, config, list(_times()))
    yield compared("sizes", 0, config, list(_sizes(config)))
    yield compared("beyond", 0, config, list(_long_runs(config)))
    yield compared("unended", 0, config, [_without_end(n) for n in _LENGTHS])
    yield compared("places", 0, config, list(_places(config)))
    yield compared("illegal", 0, config, list(_illegal(config)))
    stops = list(_stops(config))
    for number in range(4):
        yield _moments(config, number, stops[number::4])
    for number, runs in enumerate(_patience()):
        yield _moments(config, 4 + number, runs)


def _with_payload(ops: Sequence[Op], payload: int) -> bytes:
    """Instructions without fields, with something in the bits where others have them."""
    header = (1 << HEADER[-1].low + HEADER[-1].bits) - 1
    words = (int.from_bytes(to_bytes([o]), "little") & header | payload & ~header for o in ops)
    return b"".join(word.to_bytes(INSTRUCTION_BYTES, "little") for word in words)


def _reports(config: NpuConfig) -> Iterator[Run]:
    """Engines that wait for ever: for either semaphore or both, while the other one is there or is not; anything in
    bits that mean nothing. And two that do."""
    rng = random.Random("reports")
    payloads = [int(digit * 32, 16) for digit in "0fa5"] + [rng.getrandbits(128) for _ in range(4)]
    end = to_bytes([op("END")])
    for engine, payload in itertools.product(ENGINES, payloads):
        for waits, there in itertools.product(("wait0", "wait1", "both"), (0, 1, 2)):
            one, other = rng.sample(range(1, config.semaphores + 1), 2)
            names = {"wait0": one, "wait1": other} if waits == "both" else {waits: one}
            give = [op("LOAD_SYNC", signal0=(one, other)[there - 1])] if there and waits == "both" else []
            yield Run(_with_payload([*give, op(f"{engine}_SYNC", **names)], payload) + end, watchdog=40)
    for pair in itertools.permutations(ENGINES, 2):
        one, other = rng.sample(range(1, config.semaphores + 1), 2)
        waiting = zip(pair, ("wait0", "wait1"), (one, other), strict=True)
        ops = [op(f"{engine}_SYNC", **{name: semaphore}) for engine, name, semaphore in waiting]
        yield Run(to_bytes([*ops, op("END")]), watchdog=40)


def _permissions() -> Iterator[Run]:
    """A region is read, written, or the program in it fetched, with all permissions it can have."""
    for number, read, write in itertools.product((OTHER, OTHER + 1), (False, True), (False, True)):
        for name, plain in (("LOAD", READ), ("STORE", WRITE)):
            ops = [op(name, region=region, count=2) for region in (plain, number, plain)]
            yield Run(to_bytes([*ops, op("END")]), flags={number: (read, write)})
    for read, write in itertools.product((False, True), (False, True)):
        yield Run(to_bytes([op("VECTOR_SYNC"), op("END")]), flags={PROGRAM: (read, write)})


def _times() -> Iterator[Run]:
    """Timeouts and watchdogs of a program that waits for ever: short ones, those about a power of two, and long ones,
    with which the other one ends the run, that differ from a short one in one bit."""
    words = to_bytes([op("VECTOR_SYNC", wait0=1), op("END")])
    near = [n + d for k in range(5, 11) for n in [1 << k] for d in (-1, 0, 1)]
    for limit in [*range(1, 31), *near]:
        yield Run(words, timeout=limit, watchdog=0xFFFF_FFFF)
        yield Run(words, watchdog=limit, timeout=0)
    for bit, short in itertools.product(range(6, 32), (11, 20, 37)):
        yield Run(words, timeout=short | 1 << bit, watchdog=50)
        yield Run(words, watchdog=short | 1 << bit, timeout=90)


def _sizes(config: NpuConfig) -> Iterator[Run]:
    """The program fills its region, or has an instruction more, or many."""
    rng, words = random.Random("sizes"), to_bytes([op("VECTOR_SYNC"), op("END")])
    bits = pc_bits(config)
    wholes = [(1 << bit) - d for bit in range(2, bits) for d in (0, 1)]
    wholes += [rng.getrandbits(bits - 1) | top << bits - 1 for top in (0, 1) for _ in range(24)]
    for whole in wholes:
        whole = min(max(2, whole), (1 << bits) - _DATA)  # it must end where addresses do
        size = whole * INSTRUCTION_BYTES + rng.randrange(INSTRUCTION_BYTES)
        many = whole | 1 << rng.randrange(bits, LENGTH_BITS)
        yield from (Run(words, length=length, size=size) for length in (whole, whole + 1, many))


def _long_runs(config: NpuConfig) -> Iterator[Run]:
    """Runs of bytes that go on beyond ACT, by one bit of their number of rows."""
    for bit, extra, name in itertools.product(range(config.act_rows.bit_length() - 1, 16), (1, 200), ("LOAD", "STORE")):
        ops = [op(name, region=LARGE, count=(1 << bit) + extra), op("END")]
        yield Run(to_bytes(ops), timeout=12_000)


#: Of programs without END: all short ones, and those about powers of two.
_LENGTHS = [*range(40), *((1 << bit) + d for bit in range(6, 13) for d in (-1, 0, 1))]


def _without_end(length: int) -> Run:
    """A program of this length, whose END lies behind it."""
    near = MemoryTiming(read_latency=1, write_latency=1)
    return Run(to_bytes([*syncs(length), op("END")]), length=length, timeout=0, timing=near)


def _places(config: NpuConfig) -> Iterator[Run]:
    """A program of several bursts at every place of one, on a memory that answers so late that its bursts wait."""
    for shift in range(0, FETCH_BURST_BYTES, config.bus_bytes):
        yield Run(to_bytes([*syncs(99), op("END")]), shift=shift, timing=MemoryTiming(read_latency=200))


def _illegal(config: NpuConfig) -> Iterator[Run]:
    """Every field with what is beyond its limits: all of it, or where that is much each bit and each but one; where no
    semaphore may be named, each bit of its number."""
    for instruction in instructions_on(config):
        plain = {f.name: f.at_least for f in instruction.fields} | (
            {"count": 1} if "count" in instruction.by_name else {}
        )
        for f in (*HEADER[1:], *instruction.fields):
            for value in _beyond(instruction, f, config):
                yield Run(to_bytes([op(instruction.name, **plain | {f.name: value}), op("END")]))


def _beyond(instruction: Instruction, f: Field, config: NpuConfig) -> list[int]:
    """Illegal values of a field."""
    low, high = f.limits(config)
    if f in HEADER and not instruction.takes_semaphores:
        low, high = 0, 0
    values = [1 << bit for bit in range(f.bits - f.signed)]
    values += [f.maximum ^ value for value in values] + [high + 1, f.maximum, f.minimum, low - 1]
    if f.maximum - high < 16:
        values += range(high + 1, f.maximum + 1)
    return sorted({v for v in values if f.minimum <= v <= f.maximum and not low <= v <= high})


def _stops(config: NpuConfig) -> Iterator[Run]:
    """Programs that stop, with an END and without; errors that FETCH finds while engines are still to make theirs."""
    timings = itertools.cycle((_NEAR, MemoryTiming(), MemoryTiming(read_latency=30, read_interval=2.5)))
    bad = op("GEMM", reduce=15)
    for ops in (ops for ops in CASES if len(ops) < 20):
        for end in ([op("END")], [], [bad]):
            yield Run(to_bytes([*ops, *end]), timing=next(timings))
    wrong = {
        "LOAD": ("LOAD_DIM", op("LOAD", region=READ, row=config.act_rows, count=1)),
        "GEMM": ("GEMM_LOOP", op("GEMM", acc=config.acc_rows)),
        "VECTOR": ("VECTOR_LOOP", op("VECTOR", dst=config.act_rows)),
        "STORE": ("STORE_DIM", op("STORE", region=WRITE, row=config.act_rows, count=1)),
    }
    for engine, (configures, fails) in wrong.items():
        other = "STORE" if engine != "STORE" else "LOAD"
        for count in range(config.queue_depth - 1):
            late = op(other, region=WRITE, count=300, signal0=1)
            held = [op(f"{engine}_SYNC", wait0=1), *[op(configures, count=1)] * count, fails]
            yield Run(to_bytes([late, *held, bad]))
    for length, size in ((0, None), (2, 0), (2, INSTRUCTION_BYTES)):  # FETCH has nothing to wait for
        yield Run(to_bytes([op("END"), op("END")]), length=length, size=size)
    for count in range(1, 5):
        yield Run(to_bytes([*syncs(count), bad]))
        yield Run(to_bytes(syncs(count)), watchdog=60)


def _patience() -> Iterator[list[Run]]:
    """Programs with watchdogs of few cycles, on memories that let engines wait."""
    end = op("END")
    scattered = [op("STORE_DIM", level=0, count=9, mem_stride=12, row_stride=1), op("STORE", region=WRITE, count=1)]
    programs = (
        [*scattered, end],
        [*scattered, op("STORE", region=WRITE, count=9), op("LOAD", region=READ, count=70), end],
        [op("LOAD_DIM", level=0, count=9, mem_stride=12, row_stride=1), op("LOAD", region=READ, count=1), end],
        [
            op("GEMM_LOOP", count=20),
            op("GEMM", signal0=1),
            op("VECTOR", wait0=1, signal0=2),
            op("STORE_SYNC", wait0=2),
            end,
        ],
    )
    timings = (
        MemoryTiming(read_latency=1, write_latency=3, write_interval=25),
        MemoryTiming(read_latency=1, write_latency=20, write_interval=25),
        MemoryTiming(read_latency=20, write_latency=40, read_interval=9),
    )
    for ops, timing in itertools.product(programs, timings):
        yield [Run(to_bytes(ops), watchdog=limit, timing=timing) for limit in range(4, 48)]


#: Cycles from an error to the one in which control hears of it (`tilewright.hw.issue.faults`). A timeout is seen in the
#: cycle behind it, goes before an end and behind errors and the watchdog: the least one that lets them happen, from
#: their cycle.
_TOLD = 2
_ENOUGH: dict[ErrorCode | None, int] = {None: 0, ErrorCode.WATCHDOG: -1}


def _moments(config: NpuConfig, number: int, runs: Sequence[Run]) -> Trial:
    """Runs that stop, or end, in the cycle in which they should: a timeout comes first if it is a cycle earlier."""

    @functools.cache
    def expected() -> list[tuple[Run, ErrorCode | None]]:
        found: dict[object, list[tuple[Run, ErrorCode | None]]] = {}
        for run in runs:
            code, cycle = run.stops(config)
            enough = cycle + _ENOUGH.get(code, _TOLD - 1)
            found[cycle, code] = [
                (replace(run, timeout=enough - 1), ErrorCode.TIMEOUT),
                (replace(run, timeout=enough), code),
            ]
        return list(itertools.chain(*found.values()))

    def run_all(make: Make) -> str:
        host = Host(make(0))
        for run, wanted in expected():
            found = host.found(run)
            if found[0] != (wanted or "cycles"):
                return f"{found}, not {wanted}, with timeout {run.timeout}"
        return ""

    return Trial("moments", number, run_all, fresh=False)
