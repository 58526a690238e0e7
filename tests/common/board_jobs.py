"""Short programs for boards: one with a result, one without an end, some that fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.driver.board import BoardDevice
from tilewright.isa.device import Counters, Device, Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.host import mask, state_of
from tilewright.isa.instructions import Memory
from tilewright.isa.registers import REGISTER

SIZE = 256  # bytes that are copied


class Job:
    """A program, its input (region 1) and its output (region 2) in the memory of a device."""

    def __init__(self, device: Device, ops: list[Op], size: int = SIZE) -> None:
        self.device, self.count = device, len(ops)
        self.places = [device.allocate(16 * len(ops)), device.allocate(size), device.allocate(size)]
        self.regions = [
            Region(self.places[0], 16 * len(ops), read=True),
            Region(self.places[1], size, read=True),
            Region(self.places[2], size, read=True, write=True),
        ]
        device.write(self.places[0], to_bytes(ops))

    def run(self, data: bytes = b"", **options: float) -> bytes:
        """Runs the program on these bytes; returns its output."""
        if data:
            self.device.write(self.places[1], data)
        self.counters: Counters = self.device.run(self.regions, 0, 0, self.count, **options)  # type: ignore[arg-type]
        return self.device.read(self.places[2], self.regions[2].size).tobytes()


def copy_job(device: Device) -> Job:
    """Copies its input through ACT."""
    rows = SIZE // device.config.block_in
    ops = [
        op("LOAD_DIM", level=0, count=1),
        op("LOAD", region=1, offset=0, target=Memory.ACT, row=0, count=rows, signal0=1),
        op("STORE", region=2, offset=0, row=0, count=rows, wait0=1),
        op("END"),
    ]
    return Job(device, ops)


def endless_job(device: Device) -> Job:
    """Multiplies for days."""
    loops = [op("GEMM_LOOP", level=level, count=0xFFFF) for level in range(4)]
    return Job(device, [*loops, op("GEMM"), op("END")])


def waiting_job(device: Device) -> Job:
    """Waits for a semaphore nobody signals."""
    return Job(device, [op("LOAD_SYNC", wait0=3), op("END")])


def in_mid_run(device: BoardDevice, action: Callable[[], object], looks: int = 5) -> None:
    """Does something once, while the driver waits for a run, when it has looked for its end so many times."""
    wait, counted = device.transport.wait, itertools.count(1)

    def watched(seconds: float) -> bool:
        if next(counted) == looks:
            action()
        return wait(seconds)

    device.transport.wait = watched  # type: ignore[method-assign]


def at_command(device: BoardDevice, name: str, then: Callable[[Callable[[], None]], None]) -> None:
    """Hands the writing of a command into CONTROL to `then`, which may do it, or not, or more."""
    write = device.transport.write_registers

    def watched(offset: int, values: Sequence[int]) -> None:
        if (offset, list(values)) == (REGISTER["CONTROL"].offset, [mask("CONTROL", name)]):
            then(lambda: write(offset, values))
        else:
            write(offset, values)

    device.transport.write_registers = watched  # type: ignore[method-assign]


def state(device: BoardDevice) -> str:
    """The state of a board, from its register STATUS."""
    return state_of(device.transport.read_registers(REGISTER["STATUS"].offset, 1)[0])


def check_copy(device: Device, seed: int = 0) -> None:
    """The device does what it should."""
    data = np.random.default_rng(seed).integers(0, 256, SIZE, np.uint8).tobytes()
    assert copy_job(device).run(data) == data
