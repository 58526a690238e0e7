"""Trials of LOAD and STORE: counts of boxes, bursts that end with an error, runs that leave the address space, what an
instruction does behind its error, writes that are refused, resets of one cycle."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, DeviceError, Launch, Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.host import counters_of, mask, readable, run_values
from tilewright.isa.instructions import BY_NAME, Engine
from tilewright.isa.timing import MemoryTiming
from tilewright.simulator.cycle import CycleDevice
from verification.programs.equality import of_events, of_trace
from verification.programs.error_cases import CASES, SIZE, prepare
from verification.trials import limits as far
from verification.trials.directed import Run, trial
from verification.trials.trial import ENGINES, Make, Trial

_FAST = MemoryTiming(read_latency=1, write_latency=1)
#: A window for the longest run, where no memory is.
_OPEN = Region(0x4000_0000, 0x3FFF_FFFF, read=True, write=True)
#: Bits of the counts of a box.
_COUNT_BITS = 16
#: Bytes of a device's memory at first.
_MEMORY = 1 << 20


def transfer(config: NpuConfig) -> Iterator[Trial]:
    """Yields the trials, cheapest first."""
    yield far.compared("runs_of_rows", 0, config, [far.Run(ops, {3: _OPEN}) for ops in _rows()])
    for number, name in enumerate(("LOAD", "STORE")):
        yield _carried(config, number, name)
        yield trial("named", number, config, [Run(ops) for ops in _named(name, config)])
    for number, timing in enumerate((_FAST, MemoryTiming(read_latency=9, read_interval=2))):
        yield Trial("cut", number, functools.partial(_cut, config, timing))
    yield Trial("refused_boxes", 0, functools.partial(_refused_boxes, config))
    for number, timing in enumerate((_FAST, MemoryTiming(read_latency=20, write_latency=30, write_interval=3))):
        yield _ended(config, number, timing)
    yield trial("crossing", 0, config, [Run(ops, timing=_FAST) for ops in _crossing(config)])
    for number in range(2):
        yield _at_once(config, number)
    for name, level in itertools.product(("LOAD", "STORE"), range(2)):
        boxes = [far.Run(ops, timing=_FAST) for ops in _boxes(name, level, config)]
        yield far.compared("boxed", 2 * (name == "STORE") + level, config, boxes, fresh=True)


def _rows() -> Iterator[list[Op]]:
    """Runs of as many rows as a bit of the count says, or a few more, where no memory is."""
    for bit, more in itertools.product(range(_COUNT_BITS), range(3)):
        for name in ("LOAD", "STORE"):
            yield [op(name, region=3, count=(1 << bit) + more), op("END")]


def _boxes(name: str, level: int, config: NpuConfig) -> Iterator[list[Op]]:
    """Boxes walked to the end whose count at a level has one bit, or that and the lowest, with one or two at the other
    level. Behind each comes another one."""
    region = {"LOAD": 1, "STORE": 2}[name]
    for bit, more, other in itertools.product(range(1, _COUNT_BITS), range(2), (1, 2)):
        count = (1 << bit) + more
        step = {"row_stride": 1 if count < config.act_rows // 2 else 0, "mem_stride": 4 if count < 500 else 0}
        yield [
            op(f"{name}_DIM", level=level, count=count, **step),
            op(f"{name}_DIM", level=1 - level, count=other, row_stride=7, mem_stride=8),
            *[op(name, region=region, count=1)] * 2,
            op("END"),
        ]


def _named(name: str, config: NpuConfig) -> Iterator[list[Op]]:
    """An instruction with one bit in a field, or in one of those that configure it, that goes beyond its memory: the
    error names it, whatever else it has."""
    beyond = {"row": config.act_rows, "region": 2, "count": 1}
    parts = [i for i in ("LOAD_DIM", "LOAD_PAD", "STORE_DIM") if i.startswith(name)]
    for kind in parts:
        plain = {f.name: f.at_least for f in BY_NAME[kind].fields} | ({"count": 1} if kind.endswith("DIM") else {})
        for field in BY_NAME[kind].fields:
            for bit in range(field.bits - field.signed):
                for level in range(2) if "level" in plain and field.name != "level" else (0,):
                    given = plain | ({"level": level} if "level" in plain else {}) | {field.name: 1 << bit}
                    yield [op(kind, **given), op(name, **beyond), op("END")]
    for side in (f"{what}{n}" for what in ("wait", "signal") for n in range(2)):
        for semaphore in range(1, config.semaphores + 1):
            given_before = op("VECTOR_SYNC", signal0=semaphore)
            yield [given_before, op(name, **beyond, **{side: semaphore}), op("END")]


def _carried(config: NpuConfig, number: int, name: str) -> Trial:
    """Boxes at the end of all addresses: the first run lies in the window, the next does not, the one behind that lies
    on the other side of 2^32, or of whatever the addresses of the machine end with."""
    base, size = _MEMORY - 4096, 0xF00
    below, above = 0xF80, 0x1100  # offsets behind the window, before and behind the end
    boxes = [
        [op(f"{name}_DIM", level=0, count=3, mem_stride=below)],
        [op(f"{name}_DIM", level=0, count=2, mem_stride=above), op(f"{name}_DIM", level=1, count=2, mem_stride=below)],
        [op(f"{name}_DIM", level=0, count=2, mem_stride=below), op(f"{name}_DIM", level=1, count=2, mem_stride=above)],
        [op(f"{name}_DIM", level=1, count=3, mem_stride=above)],
    ]
    latencies = (_FAST, MemoryTiming(read_latency=40, write_latency=40))

    def run(make: Make) -> str:
        simulated = CycleDevice(config)
        device = make((1 << config.axi_address_bits) - _MEMORY)
        for ops, count, timing in itertools.product(boxes, (1, 9), latencies):
            wanted, found = (
                _stop(d, [*ops, op(name, region=3, count=count), op("END")], timing, {3: (base, size)})
                for d in (simulated, device)
            )
            if found != wanted:
                return f"{found}, not {wanted}"
        return ""

    return Trial("carried", number, run)


def _stop(
    device: RtlDevice | CycleDevice, ops: Sequence[Op], timing: MemoryTiming, regions: dict[int, tuple[int, int]]
) -> tuple[object, ...] | None:
    """The error a program stops with: code, engine, instruction, address in the device's memory; None = it ends.

    Args:
        regions: besides those of `prepare`: from which byte of the memory on, and how many.
    """
    origin = device.memory.origin
    given = prepare(device)[:3]
    given += [Region(origin + first, size, read=True, write=True) for _, (first, size) in sorted(regions.items())]
    device.write(given[0].base, to_bytes(ops))
    device.timing = timing
    try:
        device.run(given, 0, 0, len(ops), watchdog=2000, timeout=3000)
    except DeviceError as error:
        return error.code, error.engine, error.pc, error.address - origin
    return None


def _cut(config: NpuConfig, timing: MemoryTiming, make: Make) -> str:
    """The memory ends within a burst of LOAD, at many of its beats: the error names the first that is not there."""
    simulated, device = CycleDevice(config), make(0)
    end = 2 * _MEMORY + 4096 + 192  # of a burst of 256 bytes it has all but the last 64
    for each in (simulated, device):
        each.free_all()
        each.allocate(end - 64)
        assert each.memory.data.size == end
    first = end // 256 * 256
    for offset in range(first - 256, end, config.bus_bytes):
        ops = [op("LOAD", region=3, count=200, offset=offset - first + 256), op("END")]
        wanted, found = (_stop(d, ops, timing, {3: (first - 256, 2048)}) for d in (simulated, device))
        if found != wanted or found is None:
            return f"{found}, not {wanted}"
    return ""


def _ended(config: NpuConfig, number: int, timing: MemoryTiming) -> Trial:
    """Programs whose LOAD or STORE stops them: all instructions start and end when they should until then, and the one
    that has failed does not end."""
    programs = [
        [op("VECTOR_SYNC"), *ops, *[op(f"{name}_SYNC") for name in ENGINES] * 3, op("END")]
        for ops in CASES
        if ops[-1].name in ("LOAD", "STORE")
    ]

    @functools.cache
    def expected() -> list[_Moments]:
        return [_moments(CycleDevice(config, timing), ops) for ops in programs]

    def run(make: Make) -> str:
        device = make(0)
        for ops, (stop, moments, last) in zip(programs, expected(), strict=True):
            device.timing = timing
            found, there, _ = _moments(device, ops)
            if found != stop:
                return f"{found}, not {stop}"
            early = {key: cycle for key, cycle in there.items() if cycle <= last}
            if early != moments:
                return f"events {sorted(early.items() ^ moments.items())}"
            # What LOAD has of a beat with an error is written nevertheless.
            if stop is not None and stop[0] != ErrorCode.BUS_READ and (stop[1], "end", stop[2]) in there:
                return f"instruction {stop[2]} ends, with {stop}"
        return ""

    return Trial("ended", number, run)


#: An error; starts and ends of instructions; the last cycle, where it is known.
_Moments = tuple[tuple[object, ...] | None, dict[tuple[Engine, str, int], int], int]


def _moments(device: RtlDevice | CycleDevice, ops: Sequence[Op]) -> _Moments:
    """Why a program stops, when its instructions started and ended, and the cycle of the error (of the simulator)."""
    regions, stop = prepare(device), None
    device.write(regions[0].base, to_bytes(ops))
    given = {"trace": True} if isinstance(device, CycleDevice) else {"log": "events"}
    try:
        device.run(regions, 0, 0, len(ops), watchdog=2000, timeout=3000, **given)
    except DeviceError as error:
        stop = error.code, error.engine, error.pc, error.address
    if isinstance(device, RtlDevice):
        return stop, of_events(device.events), 0
    assert device.trace is not None
    return stop, of_trace(device.trace, ops), device.trace.cycles


def _refused_boxes(config: NpuConfig, make: Make) -> str:
    """A box without rows takes no time: what is behind it starts as if it were behind LOAD_SYNC."""
    late = [op("VECTOR_LOOP", level=0, count=60), op("VECTOR", signal0=1)]  # until then all is in the queue
    for dims in (
        [op("LOAD_DIM", level=0, count=0)],
        [op("LOAD_DIM", level=1, count=0)],
        [op("LOAD_DIM", level=1, count=0), op("LOAD_DIM", level=0, count=5)],
    ):
        pc = len(late) + len(dims)
        for plain, count in itertools.product((op("LOAD", region=1, count=1), op("LOAD_SYNC")), (0, 3)):
            behind = [*[plain] * 3, op("END")]
            refused = [*late, *dims, op("LOAD", region=1, count=count, wait0=1), *behind]
            _, wanted, _ = _moments(CycleDevice(config), [*late, *dims, op("LOAD_SYNC", wait0=1), *behind])
            stop, found, _ = _moments(make(0), refused)
            if stop is None or stop[:3] != (ErrorCode.ILLEGAL_OPERAND, Engine.LOAD, pc):
                return f"{stop}, not ILLEGAL_OPERAND"
            until = found[Engine.LOAD, "start", pc] + 2  # from the third cycle on nothing starts
            for pc_behind in range(pc, pc + 4):
                key = Engine.LOAD, "start", pc_behind
                starts = [moments.get(key, until + 1) for moments in (found, wanted)]
                if min(starts) <= until and starts[0] != starts[1]:
                    return f"instruction {pc_behind} starts in cycle {starts[0]}, not {starts[1]}"
    return ""


def _crossing(config: NpuConfig) -> Iterator[list[Op]]:
    """LOADs of few rows while VECTOR writes to one bank: chunks wait, in each place of their instruction; each signals
    two semaphores, which another engine takes."""
    many = config.queue_depth - 2
    hold = config.semaphores
    for semaphore, count in itertools.product(range(1, config.semaphores), range(2, 6)):
        other = semaphore % (config.semaphores - 1) + 1
        both = {"signal0": semaphore, "signal1": other}
        taken = {"wait0": semaphore, "wait1": other}
        yield [
            op("LOAD_SYNC", wait0=hold),
            *[op("LOAD", region=1, count=count, row=config.act_banks * n, **both) for n in range(many)],
            op("VECTOR_LOOP", level=0, count=100, dst_stride=config.act_banks),
            op("VECTOR_SYNC", signal0=hold),
            op("VECTOR", dst=1 << 10),
            *[op("STORE_SYNC", **taken)] * many,
            op("END"),
        ]


#: What runs before a reset, and behind it: all engines at work, every byte that is used is loaded before.
_BUSY = [
    op("STORE", region=2, count=60, offset=1),
    op("LOAD", region=1, count=60, row=100, offset=3),
    op("STORE", region=2, count=3, offset=6),
    op("VECTOR_LOOP", level=0, count=30, dst_stride=1),
    op("VECTOR", dst=200),
    op("GEMM_LOOP", level=0, count=50),
    op("GEMM"),
    op("STORE", region=2, count=60, offset=5),
    op("LOAD_PAD", left=9, right=3),
    op("LOAD", region=1, count=60, row=300, offset=2),
    op("STORE_SYNC"),
    op("END"),
]
_AFTER = [
    op("LOAD", region=1, count=40, offset=1, signal0=1),
    op("STORE", region=2, count=40, offset=2, wait0=1, signal0=2),
    op("STORE", region=2, count=7, row=10, offset=200, signal0=3),
    op("STORE_SYNC", wait0=2, wait1=3),
    op("END"),
]


def _at_once(config: NpuConfig, number: int) -> Trial:
    """A program is ended by the timeout, wherever that is; the soft reset and the next start follow at once, so that
    the core is reset for a cycle. The next run is as any other."""
    timing = (MemoryTiming(read_latency=5, write_interval=4), MemoryTiming(write_latency=40, read_interval=2))[number]

    @functools.cache
    def expected() -> tuple[tuple[object, ...], range]:
        device = CycleDevice(config, timing)
        regions = _laid_out(device)
        cycles = device.run(regions, 0, 0, len(_BUSY)).cycles or 0
        regions = _laid_out(device)
        outcome = _plain(device.run(regions, 0, SIZE // 2, len(_AFTER)), device, regions)
        return outcome, range(20 + number, cycles - 5, max(1, cycles // 60))

    def run(make: Make) -> str:
        device = make(0)
        device.timing = timing
        wanted, timeouts = expected()
        for timeout in timeouts:
            regions = _laid_out(device)
            if not device.start(run_values(Launch(regions, 0, 0, len(_BUSY), timeout=timeout))):
                return f"no interrupt for a timeout of {timeout}"
            if not device.read_register("STATUS") & mask("STATUS", "ERROR"):
                return f"no error for a timeout of {timeout}"
            stored = device.view(regions[2].base, SIZE)
            assert stored is not None
            stored[:] = 0
            for name, value in run_values(Launch(regions, 0, SIZE // 2, len(_AFTER))).items():
                device.write_register(name, value)
            device.write_register("CONTROL", mask("CONTROL", "SOFT_RESET"))
            ended = device.start({})
            values = {r.name: device.read_register(r.name) for r in readable()}
            if not ended or values["STATUS"] != mask("STATUS", "DONE"):
                return f"STATUS 0x{values['STATUS']:x} behind a timeout of {timeout}"
            found = _plain(counters_of(values, config, len(_AFTER)), device, regions)
            if found != wanted:
                return f"{found[:3]}, not {wanted[:3]}, or bytes, behind a timeout of {timeout}"
        return ""

    return Trial("at_once", number, run)


def _plain(counters: Counters, device: RtlDevice | CycleDevice, regions: Sequence[Region]) -> tuple[object, ...]:
    """Cycles, bytes moved and memory of a run. Counters of busy engines are left out: the first cycle, in which the
    core is still in reset, may be counted for one that was about to make a step."""
    bytes_moved = counters.bytes_read, counters.bytes_written
    return counters.cycles, *bytes_moved, device.read(regions[2].base, SIZE).tobytes()


def _laid_out(device: RtlDevice | CycleDevice) -> list[Region]:
    """Regions with both programs and with what they read."""
    regions = prepare(device)
    device.write(regions[0].base, to_bytes(_BUSY))
    device.write(regions[0].base + SIZE // 2, to_bytes(_AFTER))
    device.write(regions[1].base, np.random.default_rng(0).integers(0, 256, SIZE, np.uint8))
    return regions
