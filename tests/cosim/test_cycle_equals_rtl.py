"""The clock of the cycle-level simulator is that of the RTL: difference 0, for every program and memory timing."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest

from tilewright.hw.gemm.accumulate import ACCUMULATE_STAGES
from tilewright.isa import timing as isa_timing
from tilewright.isa.device import Counters, Device, DeviceError, Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import INSTRUCTIONS, Engine, Memory
from tilewright.isa.timing import MemoryTiming
from verification.cosim_networks import compare
from verification.programs.equality import BARE, CONFIGS, TIMINGS, Trio, case

pytestmark = [pytest.mark.cosim, pytest.mark.slow]

MACHINES = CONFIGS | {BARE.name: BARE}
#: Configurations random programs run on; those whose RTL is built for that alone only in `make test-long`.
_BUILT = ("serial", "narrow_in", "narrow_out", "two_passes", "one_lane", "no_units", "one_queue")
RANDOM = ("tiny", "wide_bus", "bare", *(pytest.param(name, marks=pytest.mark.long) for name in _BUILT))


@functools.cache
def trio(name: str) -> Trio:
    return Trio(MACHINES[name])


def test_latencies_are_those_of_the_rtl() -> None:
    assert isa_timing.ACCUMULATE_STAGES == ACCUMULATE_STAGES


@pytest.mark.parametrize("name", RANDOM)
def test_random_programs(name: str) -> None:
    for seed in range(30):
        program, timing = case(seed, MACHINES[name])
        assert not (lines := trio(name).differences(program, timing)), (seed, timing, lines)


@pytest.mark.parametrize("timing", TIMINGS, ids=str)
def test_memory_timings(timing: MemoryTiming) -> None:
    for seed in range(100, 108):
        program, _ = case(seed, CONFIGS["tiny"])
        assert not (lines := trio("tiny").differences(program, timing)), (seed, lines)


@pytest.mark.long
def test_base() -> None:
    for seed in range(200, 210):
        program, timing = case(seed, CONFIGS["base"])
        assert not (lines := trio("base").differences(program, timing)), (seed, timing, lines)


def stop_of(device: Device, words: bytes) -> tuple[object, ...] | Counters:
    """Runs raw words; returns the error or the counters."""
    device.free_all()
    base = device.allocate(3 << 13)
    device.write(base, words)
    regions = [
        Region(base, 1 << 13, read=True),
        Region(base + (1 << 13), 1 << 13, read=True),
        Region(base + (2 << 13), 1 << 13, read=True, write=True),
    ]
    try:
        return device.run(regions, 0, 0, len(words) // 16, watchdog=3000, timeout=100_000)
    except DeviceError as error:
        return error.code, error.engine, error.pc, error.address


def random_words(rng: random.Random) -> bytes:
    """Words of known instructions, mostly with small operands, many of them wrong."""
    words = []
    for _ in range(rng.randint(1, 60)):
        instruction = rng.choice(INSTRUCTIONS)
        word = instruction.opcode
        for f in instruction.fields:
            value = rng.getrandbits(f.bits) if rng.random() < 0.1 else max(rng.randrange(4), f.at_least)
            word |= (value & ((1 << f.bits) - 1)) << f.low
        if rng.random() < 0.15 and not instruction.configures:
            word |= rng.getrandbits(24) << 8
        words.append(word)
    return b"".join(w.to_bytes(16, "little") for w in words)


@pytest.mark.parametrize("name", ["tiny", "bare", pytest.param("one_lane", marks=pytest.mark.long)])
def test_errors_are_found_at_the_same_time(name: str) -> None:
    """Random words end both devices with the same error, or with the same counters."""
    rng = random.Random(15)
    codes = set()
    for trial in range(300):
        words = random_words(rng)
        if trial % 20 == 0:  # for a semaphore that few of them signal
            words = to_bytes([op("LOAD_SYNC", wait0=3)]) + words
        devices = trio(name).rtl, trio(name).cycle
        for device in devices:
            device.timing = TIMINGS[trial % len(TIMINGS)]
        rtl, cycle = (stop_of(device, words) for device in devices)
        assert rtl == cycle, (trial, words.hex())
        codes.add(rtl[0] if isinstance(rtl, tuple) else ErrorCode.NONE)
    wanted = {ErrorCode.NONE, ErrorCode.ILLEGAL_OPERAND, ErrorCode.SCRATCHPAD_RANGE, ErrorCode.WINDOW}
    assert codes >= wanted | {ErrorCode.WATCHDOG, ErrorCode.NO_END}
    trio(name).renew()


LACKING = [
    op("DEPTHWISE", step0=1, step1=1),
    op("DEPTHWISE"),
    op("VECTOR", lut=1),
    op("VECTOR_POST", table=1),
    op("LOAD", region=1, target=Memory.LUT, count=1),
    op("LOAD_SYNC"),
]


@pytest.mark.parametrize("operation", LACKING, ids=lambda o: o.name)
def test_units_the_machine_lacks(operation: Op) -> None:
    """All three devices, without window and tables, stop at the same place with the same error, or at END."""
    devices = trio("bare")
    words = to_bytes([op("VECTOR_POST", zp=3), operation, op("END")])
    functional, cycle, rtl = (stop_of(d, words) for d in (devices.functional, devices.cycle, devices.rtl))
    assert cycle == rtl
    assert (functional if isinstance(functional, tuple) else None) == (rtl if isinstance(rtl, tuple) else None)
    assert isinstance(rtl, tuple) == (operation.name != "LOAD_SYNC")
    devices.renew()


@pytest.mark.parametrize("name", ["tiny", "bare"])
def test_a_wait_before_its_signal(name: str) -> None:
    """VECTOR waits for a GEMM behind it: both stop where that is in the same queue, in the same cycle."""
    devices = trio(name)
    words = to_bytes([op("VECTOR_SYNC", wait0=7), op("GEMM_SYNC", signal0=7), op("END")])
    rtl, cycle = (stop_of(d, words) for d in (devices.rtl, devices.cycle))
    assert rtl == cycle
    assert (rtl == (ErrorCode.WATCHDOG, Engine.VECTOR, 0, 7)) == (name == "bare")
    devices.renew()


def run_both(ops: list[Op], timing: MemoryTiming) -> list[int]:
    """Cycles of a short program on both devices of `tiny`."""
    found: list[Counters] = []
    for device in (trio("tiny").rtl, trio("tiny").cycle):
        device.timing = timing
        device.free_all()
        base = device.allocate(1 << 15)
        device.write(base, to_bytes([*ops, op("END")]))
        regions = [Region(base, 1 << 15, read=True, write=True)]
        found.append(device.run(regions, 0, 0, len(ops) + 1))
    assert found[0] == found[1]
    return [c.cycles or 0 for c in found]


def test_waits_of_many_cycles_are_skipped_exactly() -> None:
    slow = MemoryTiming(read_latency=4096, write_latency=4096, read_interval=64, write_interval=64)
    ops = [op("LOAD", offset=4096, count=60, signal0=1), op("STORE", wait0=1, offset=8192, count=60, signal0=2)]
    ops += [op("LOAD", wait0=2, offset=8192, count=3), op("GEMM_SYNC", wait0=3), op("VECTOR_SYNC", signal0=3)]
    rtl, cycle = run_both(ops, slow)
    assert rtl == cycle > 3 * 4096


@pytest.mark.parametrize("latency", [1, 40, 333, 700, 1001])
def test_long_products_are_skipped_exactly(latency: int) -> None:
    """Products nobody looks at are made at once, up to where VECTOR begins to read ACC or STORE to read ACT."""
    timing = MemoryTiming(read_latency=latency, write_latency=latency)
    ops = [
        op("GEMM_LOOP", level=k, count=n, act_stride=1, wgt_stride=1, acc_stride=1) for k, n in enumerate((5, 30, 9))
    ]
    ops += [op("VECTOR_LOOP", level=0, count=200, a_stride=1, dst_stride=1), op("LOAD", count=3, signal0=1)]
    ops += [op("VECTOR", wait0=1, signal0=2), op("STORE", wait0=2, count=100, offset=8192, signal0=3)]
    for accumulate, reduce in ((1, 0), (1, 1), (0, 1), (1, 2)):
        ops.append(op("GEMM", reduce=reduce, accumulate=accumulate))
        ops.append(op("GEMM_LOOP", level=3, count=2))
    ops += [op("LOAD", wait0=3, count=2, signal0=1), op("VECTOR", wait0=1)]
    rtl, cycle = run_both(ops, timing)
    assert rtl == cycle > 1350 * 4


def test_reset_values_and_contents_survive_runs() -> None:
    """A program that configures nothing, run twice, takes the same time on both: nothing is left of the first run."""
    ops = [op("GEMM"), op("VECTOR"), op("STORE", count=1, offset=4096), op("LOAD", count=1)]
    times = [run_both(ops, MemoryTiming()) for _ in range(2)]
    assert times[0] == times[1] and times[0][0] == times[0][1]
    assert np.all(np.asarray(times) > 0)


@pytest.mark.parametrize(
    "name",
    ["tiny", "bare", *(pytest.param(name, marks=pytest.mark.long) for name in ("base", "no_units", "one_queue"))],
)
def test_digits(name: str) -> None:
    """A trained network: the same bytes from all three devices, the same clock from two. `make cosim` runs more."""
    row = compare("digits", MACHINES[name])
    assert row.ok, row
