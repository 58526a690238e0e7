"""The parts the engines share: scratchpads, memory, counts, and the checks of addresses."""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from tilewright.isa.config import NpuConfig
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import Engine
from tilewright.simulator.state import ExternalMemory, Fault, RunCounts, Scratchpads, bus_beats


class Chip(Struct):
    """The state a run works on.

    Attributes:
        config: the NPU.
        pads: its scratchpads, read and written in place.
        memory: external memory through its regions.
        timeout: steps any engine may make, 0 = no limit.
        counts: counts of the run.
        steps: those of every engine.
    """

    config: NpuConfig
    pads: Scratchpads
    memory: ExternalMemory
    timeout: int = 0
    counts: RunCounts = field(default_factory=RunCounts)
    steps: dict[Engine, int] = field(default_factory=lambda: dict.fromkeys(Engine, 0))

    def spend(self, engine: Engine, steps: int) -> None:
        """Counts steps (a lower bound of cycles) before they are made."""
        self.steps[engine] += steps
        if self.timeout and self.steps[engine] > self.timeout:
            raise Fault(ErrorCode.TIMEOUT)

    def row(self, memory: str, address: int, rows: int) -> int:
        """A row address, wrapped around, and checked against the rows of the memory (in this engine's view)."""
        row = address % (1 << self.config.address_bits)
        if row >= rows:
            raise Fault(ErrorCode.SCRATCHPAD_RANGE, row, memory)
        return row

    def act_row(self, address: int) -> int:
        return self.row("ACT", address, self.config.act_rows)

    def offset(self, total: int) -> int:
        """The offset in a region, from a sum by wrapping."""
        return total % (1 << self.config.offset_bits)

    def read(self, region: int, start: int, nbytes: int) -> np.ndarray:
        """The bytes of a region that may be read, uint8. Raises `Fault`."""
        data = self.memory.span(region, start, nbytes, False)
        self.counts.bytes_read += bus_beats(start, nbytes, self.config) * self.config.bus_bytes
        return data

    def write(self, region: int, start: int, nbytes: int) -> np.ndarray:
        """The bytes of a region that may be written, a uint8 view to write to. Raises `Fault`."""
        data = self.memory.span(region, start, nbytes, True)
        self.counts.bytes_written += bus_beats(start, nbytes, self.config) * self.config.bus_bytes
        return data
