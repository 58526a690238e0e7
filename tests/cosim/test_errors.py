"""Errors of the RTL: the same code, engine, instruction and address as in the functional simulator, nothing written
outside the windows, and a machine that runs the next program."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import preset
from tilewright.isa.device import DeviceError
from tilewright.isa.encoding import op, to_bytes
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import INSTRUCTIONS, Engine, Source
from tilewright.isa.timing import MemoryTiming
from tilewright.simulator.cycle import CycleDevice
from tilewright.simulator.functional import FunctionalDevice
from verification.programs.equality import VARIANTS
from verification.programs.error_cases import CASES, SIZE, outcome, prepare

pytestmark = [pytest.mark.cosim, pytest.mark.slow]

TINY = preset("tiny")


@pytest.fixture(scope="module", params=[TINY, VARIANTS["wide_bus"]], ids=lambda c: c.name)
def rtl(request: pytest.FixtureRequest) -> RtlDevice:
    """`wide_bus` has the memories of `tiny` behind a bus of four rows."""
    return RtlDevice(request.param)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_same_error(rtl: RtlDevice, case: int) -> None:
    words = to_bytes([*CASES[case], op("END")])
    expected = outcome(FunctionalDevice(rtl.config, "reference"), words)
    assert expected is not None
    cycle = CycleDevice(rtl.config)
    for timing in (MemoryTiming(), MemoryTiming(read_latency=1, write_latency=1)):
        rtl.timing = cycle.timing = timing
        assert outcome(rtl, words) == expected
        assert outcome(cycle, words) == expected
    still_works(rtl)


def still_works(rtl: RtlDevice) -> None:
    """The next program, after the soft reset, runs as if nothing had happened."""
    regions = prepare(rtl)
    data = np.random.default_rng(3).integers(0, 256, 64, np.uint8)
    rtl.write(regions[1].base, data)
    ops = [
        op("LOAD", region=1, row=10, count=16, signal0=1),
        op("VECTOR_LOOP", level=0, count=16, a_stride=1, dst_stride=1),
        op("VECTOR", source=Source.ACT, a=10, dst=50, wait0=1, signal0=2),
        op("STORE", region=2, offset=3, row=50, count=16, wait0=2),
        op("END"),
    ]
    rtl.write(regions[0].base, to_bytes(ops))
    rtl.run(regions, 0, 0, len(ops))
    assert (rtl.read(regions[2].base + 3, 64) == data).all()


def test_no_end_and_window_of_the_program(rtl: RtlDevice) -> None:
    words = to_bytes([op("GEMM")])
    assert outcome(rtl, words) == (ErrorCode.NO_END, Engine.FETCH, 1, 64 + 16)
    regions = prepare(rtl)
    with pytest.raises(DeviceError) as info:
        rtl.run(regions, 0, SIZE - 16, 2)
    error = info.value
    assert (error.code, error.engine, error.pc, error.address) == (ErrorCode.WINDOW, Engine.FETCH, 0, 64 + SIZE - 16)


def test_deadlock_and_timeout(rtl: RtlDevice) -> None:
    words = to_bytes([op("LOAD_SYNC", wait0=1), op("GEMM", wait0=2, wait1=3), op("END")])
    found = outcome(rtl, words, watchdog=500)
    assert found is not None and found[:3] == (ErrorCode.WATCHDOG, Engine.LOAD, 0)
    slow = [op("GEMM_LOOP", level=k, count=60) for k in range(3)] + [op("GEMM"), op("END")]
    found = outcome(rtl, to_bytes(slow), timeout=3000)
    assert found is not None and found[0] == ErrorCode.TIMEOUT
    still_works(rtl)


def test_random_bits_stay_inside_the_windows(rtl: RtlDevice) -> None:
    """Random bits never change memory outside the writable region; the run ends, and the next one works."""
    rng = random.Random(11)
    codes = set()
    for trial in range(150):
        rtl.timing = MemoryTiming(read_latency=rng.choice((1, 9)), write_latency=rng.choice((1, 9)))
        words = []
        for _ in range(40):
            instruction = rng.choice(INSTRUCTIONS[1:])
            word = rng.getrandbits(128) & ~0xFF | instruction.opcode
            if instruction.configures or rng.random() < 0.8:
                word &= ~0xFFFFFF00  # no semaphores
            for f in instruction.fields:
                small = rng.getrandbits(min(f.bits, rng.choice((1, 3, 8))))
                if rng.random() < 0.85:
                    word = word & ~(((1 << f.bits) - 1) << f.low) | max(small, f.at_least) << f.low
            words.append(word if trial % 3 else rng.getrandbits(128))
        image = b"".join(w.to_bytes(16, "little") for w in words) + to_bytes([op("END")])
        regions = prepare(rtl)
        before = np.frombuffer(rng.randbytes(3 * SIZE), np.uint8).copy()
        before[: len(image)] = np.frombuffer(image, np.uint8)
        rtl.write(regions[0].base, before)
        try:
            rtl.run(regions, 0, 0, len(image) // 16, watchdog=2000, timeout=100_000)
        except DeviceError as error:
            codes.add(error.code)
        after = rtl.read(regions[0].base, 3 * SIZE)
        assert (after[: 2 * SIZE] == before[: 2 * SIZE]).all(), f"trial {trial} wrote outside the window"
    assert {ErrorCode.ILLEGAL_OPERAND, ErrorCode.WINDOW, ErrorCode.SCRATCHPAD_RANGE} <= codes, codes
    still_works(rtl)
