"""`FunctionalDevice`: the instruction set without a clock, as a device with its own memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tilewright.common.native import BuildError
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, DeviceError, HostMemory, Launch, Region
from tilewright.isa.encoding import Op
from tilewright.simulator import native, reference
from tilewright.simulator.interruption import Interruptible
from tilewright.simulator.state import RunCounts, Scratchpads, check_call

PATHS = ("fast", "reference")
#: Launches known to fit: about as many as programs have turns on the NPU.
_CHECKED = 16
#: Steps an engine may make in a run without `timeout`: minutes of work, so that no program hangs the host.
STEP_LIMIT = 10**11


class FunctionalDevice(Interruptible):
    """The functional simulator. Both paths give the same memory images and the same errors.

    Args:
        config: the NPU.
        path: "fast" runs whole programs in native code, built on first use (without a compiler it falls back to the
            reference with a warning); "reference" runs `tilewright.simulator.reference`.

    Attributes:
        scratchpads: the on-chip memories; tests may look at them and change them between runs.

    Raises:
        ValueError: unknown path.
    """

    name = "functional"

    def __init__(self, config: NpuConfig, path: str = "fast") -> None:
        if path not in PATHS:
            raise ValueError(f"path must be one of {', '.join(PATHS)}, not {path!r}")
        super().__init__()
        self.config, self.path = config, path
        self.memory = HostMemory()
        self.scratchpads = Scratchpads(config)
        self._machine: native.Machine | None = None
        self._checked: list[tuple[tuple[Region, ...], tuple[int, int, int], int, int]] = []
        if path == "fast":
            try:
                self._machine = native.Machine(config, self.scratchpads)
            except BuildError as error:
                warnings.warn(f"{error}; using the slow reference path", RuntimeWarning, stacklevel=2)
                self.path = "reference"

    def execute(self, launch: Launch, *, trace: Callable[[int, Op], None] | None = None, **options: Any) -> Counters:
        """See `tilewright.isa.device.Device.run`.

        Args:
            watchdog: ignored; a run that can make no progress always ends with WATCHDOG and a diagnosis.
            timeout: steps any one engine may make (a run of so many cycles makes no more), 0 = `STEP_LIMIT`.
            trace: called with index and instruction after each one; runs on the reference path.

        Returns:
            instructions fetched (END included), macs, bytes_read and bytes_written in whole bus beats; no cycles.
        """
        self._check(launch)
        limit = launch.timeout or STEP_LIMIT
        self.stop.value = 0
        counts: RunCounts
        if self._machine is not None and self.path == "fast" and trace is None:
            try:
                counts = self._machine.run(self.memory.data, launch.regions, launch.program, limit, self.stop)
            except DeviceError as error:
                raise self.interrupted(error) from None
        else:
            counts = reference.run_reference(
                self.config, self.scratchpads, self.memory.data, launch.regions, launch.program, limit, trace
            )
        return Counters(
            macs=counts.macs,
            bytes_read=counts.bytes_read,
            bytes_written=counts.bytes_written,
            instructions=counts.instructions,
        )

    def _check(self, launch: Launch) -> None:
        """Raises `DeviceError` or ValueError for a launch that does not fit. One that repeats another does."""
        key = tuple(launch.regions), launch.program, launch.watchdog, launch.timeout
        if key in self._checked:
            return
        check_call(self.config, launch)
        if not 0 <= launch.program_region < len(launch.regions):
            raise ValueError(
                f"program_region must be below the {len(launch.regions)} regions given, not {launch.program_region}"
            )
        self._checked = [*self._checked[-_CHECKED:], key]
