"""A program with the memory it runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Device, Region
from tilewright.isa.encoding import Op

PROGRAM_BYTES = 1 << 15
DATA_BYTES = 1 << 15
ARENA_BYTES = 1 << 15
#: The read-only data starts with PRM rows of ordinary scales, so that not every result saturates.
PRM_BYTES = 1 << 13
#: Scales of the four passes that make ACC visible at the end.
DUMP_SCALES = (1.0, 2.0**-8, 2.0**-16, 2.0**-24)


@dataclass
class GeneratedProgram:
    """A program and the memory it runs on.

    Attributes:
        seed: what it was made from.
        config: the NPU it is legal for.
        ops: the instructions, END included.
        memory: uint8, program, data and arena as they are before the run.
        windows: regions with bases relative to the start of `memory`.
    """

    seed: int
    config: NpuConfig
    ops: list[Op]
    memory: np.ndarray
    windows: tuple[Region, ...]

    def install(self, device: Device) -> tuple[int, list[Region]]:
        """Copies the memory to a device; returns its address and the regions."""
        base = device.allocate(self.memory.size)
        device.write(base, self.memory)
        return base, [Region(base + w.base, w.size, w.read, w.write) for w in self.windows]

    def run(self, device: Device, **options: Any) -> np.ndarray:
        """Runs on a device and returns the memory afterwards (uint8)."""
        base, regions = self.install(device)
        device.run(regions, 0, 0, len(self.ops), **options)
        return device.read(base, self.memory.size)
