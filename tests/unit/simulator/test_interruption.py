"""Runs without an end: another thread can end them, and finding words for an error takes no longer than the run."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.common.waiting import HANG
from tilewright.isa.assembler import assemble
from tilewright.isa.config import preset
from tilewright.isa.device import DeviceError, Region
from tilewright.isa.encoding import to_bytes
from tilewright.isa.error_codes import ErrorCode
from tilewright.simulator import native
from tilewright.simulator.cycle import CycleDevice
from tilewright.simulator.functional import FunctionalDevice
from tilewright.simulator.interruption import Interruptible

TINY = preset("tiny")
LOOPS = "\n".join(f"{{0}}_LOOP level={level} count=65535" for level in range(3))
#: Minutes to years of work, by what is at work.
ENDLESS = {
    "gemm": LOOPS.format("GEMM") + "\nGEMM reduce=1",
    "gemm, one sum": LOOPS.format("GEMM") + "\nGEMM reduce=3",
    "depthwise": LOOPS.format("GEMM") + "\nDEPTHWISE step0=1 step1=1",
    "vector": LOOPS.format("VECTOR") + "\nVECTOR",
    "vector, one maximum": LOOPS.format("VECTOR") + "\nVECTOR source=MAX reduce=3",
    "load": "LOAD_DIM level=0 count=65535\nLOAD_DIM level=1 count=65535\nLOAD target=ACT region=1 count=256",
    "store": "STORE_DIM level=0 count=65535\nSTORE_DIM level=1 count=65535\nSTORE region=1 count=256",
}


def run(device: Interruptible, text: str, **limits: int) -> Any:
    """Runs assembly; region 1 is memory for its data."""
    ops = assemble(f"{text}\nEND")
    image = to_bytes(ops)
    program, data = device.allocate(len(image)), device.allocate(4096)
    device.write(program, image)
    regions = [Region(program, len(image), read=True), Region(data, 4096, read=True, write=True)]
    return device.run(regions, 0, 0, len(ops), **limits)


@pytest.mark.parametrize("make", [FunctionalDevice, CycleDevice])
@pytest.mark.parametrize("work", ENDLESS)
def test_another_thread_ends_a_run(work: str, make: type[Interruptible]) -> None:
    device = make(TINY)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, device, ENDLESS[work], timeout=(1 << 64) - 1)
        for _ in range(int(HANG / 0.01)):
            device.interrupt()  # again and again: a run that begins clears what came before it
            if running.done():
                break
            threading.Event().wait(0.01)
        with pytest.raises(DeviceError, match="TIMEOUT: the run was interrupted") as caught:
            running.result(HANG)
    assert caught.value.code == ErrorCode.TIMEOUT
    run(device, "GEMM_SYNC")  # the next one runs as if nothing had been


def test_words_for_an_error_take_no_longer_than_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock leaps over the steps of a GEMM; the functional simulator would make every one of them for a message."""
    limits: list[int] = []
    original = native.Machine.run

    def watched(machine: Any, data: Any, regions: Any, program: Any, limit: int, stop: Any) -> Any:
        limits.append(limit)
        return original(machine, data, regions, program, limit, stop)

    monkeypatch.setattr(native.Machine, "run", watched)
    long = "GEMM_LOOP level=0 count=65535\nGEMM_LOOP level=1 count=65000\nGEMM reduce=1\nLOAD_SYNC wait0=1"
    with pytest.raises(DeviceError, match="TIMEOUT: FETCH at instruction 5 in cycle 4294967296"):
        run(CycleDevice(TINY), long, timeout=(1 << 32) - 1)
    assert max(limits) < 1 << 25
    limits.clear()
    with pytest.raises(DeviceError, match="LOAD waits for semaphore 1"):
        run(CycleDevice(TINY), "GEMM\nLOAD_SYNC wait0=1")
    assert max(limits) < 1000
