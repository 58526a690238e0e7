"""Runs short hand-written programs on a functional device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, DeviceError, Region
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.simulator.functional import FunctionalDevice

PROGRAM_BYTES = 1 << 14
DATA_BYTES = 1 << 14


class Bench:
    """A device with regions for a program (0), read-only data (1) and writable memory (2), of so many bytes.

    Attributes:
        device: scratchpads may be filled before and looked at after a run.
        data, out: views of regions 1 and 2.
    """

    def __init__(
        self,
        config: NpuConfig,
        path: str = "reference",
        program_bytes: int = PROGRAM_BYTES,
        data_bytes: int = DATA_BYTES,
    ) -> None:
        self.device = FunctionalDevice(config, path)
        assert self.device.path == path, "no compiler"
        base = self.device.allocate(program_bytes + 2 * data_bytes)
        self.regions = [
            Region(base, program_bytes, read=True),
            Region(base + program_bytes, data_bytes, read=True),
            Region(base + program_bytes + data_bytes, data_bytes, read=True, write=True),
        ]
        self.data, self.out = (self._view(r) for r in self.regions[1:])

    def _view(self, region: Region) -> np.ndarray:
        view = self.device.view(region.base, region.size)
        assert view is not None
        return view

    @property
    def pads(self) -> Any:
        return self.device.scratchpads

    def fill(self, seed: int = 0) -> None:
        """Random bytes into every scratchpad and both data regions."""
        rng = np.random.default_rng(seed)
        for array in [*self.pads.arrays().values(), self.data, self.out]:
            flat = array.reshape(-1).view(np.uint8)
            flat[:] = rng.integers(0, 256, flat.size, dtype=np.uint8)

    def run(self, ops: Iterable[Op], end: bool = True, **options: Any) -> Counters:
        """Runs the instructions, with END behind them."""
        ops = [*ops, op("END")] if end else list(ops)
        self.device.write(self.regions[0].base, to_bytes(ops))
        return self.device.run(self.regions, 0, 0, len(ops), **options)

    def words(self, words: Sequence[int], **options: Any) -> Counters:
        """Runs raw 128-bit words."""
        image = b"".join(w.to_bytes(16, "little") for w in words)
        self.device.write(self.regions[0].base, image)
        return self.device.run(self.regions, 0, 0, len(words), **options)

    def fails(self, ops: Iterable[Op], end: bool = True, **options: Any) -> DeviceError:
        """The error with which the instructions stop."""
        try:
            self.run(ops, end, **options)
        except DeviceError as error:
            return error
        raise AssertionError("the program ran to its end")
