"""`Device`: the one protocol of simulators, RTL and boards."""

from __future__ import annotations

import contextlib
import functools
import mmap
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tilewright.common.allocator import Allocator, MemoryFull
from tilewright.common.errors import TilewrightError
from tilewright.isa.config import NpuConfig
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import Engine


@dataclass(frozen=True)
class Region:
    """A window of external memory an instruction can name. Addresses and sizes in bytes."""

    base: int = 0
    size: int = 0
    read: bool = False
    write: bool = False


@dataclass
class EngineCounters:
    """Cycles of one engine: `busy` with a step, `wait_semaphore`, `wait_memory` (bus or bank)."""

    busy: int = 0
    wait_semaphore: int = 0
    wait_memory: int = 0


@dataclass
class Counters:
    """Counters of a run. `cycles` is None on a device without a clock (the functional simulator)."""

    cycles: int | None = None
    macs: int = 0  # GEMM and DEPTHWISE steps times MACs per cycle
    bytes_read: int = 0
    bytes_written: int = 0
    instructions: int = 0
    engines: dict[str, EngineCounters] = field(default_factory=dict)


class DeviceError(TilewrightError):
    """An error that stopped a run: code, engine, and instruction.

    Attributes:
        code: reason.
        engine: the engine that stopped.
        pc: index of the instruction in the program, None where no single one is to blame.
        address: memory address or scratchpad row, where one is to blame.
    """

    def __init__(
        self, message: str, code: ErrorCode, engine: Engine = Engine.FETCH, pc: int | None = None, address: int = 0
    ) -> None:
        super().__init__(message)
        self.code, self.engine, self.pc, self.address = code, engine, pc, address


@dataclass(frozen=True)
class Launch:
    """A run requested of a device: a program in its memory, and limits.

    Attributes:
        regions: regions of memory, by number.
        program_region, program_offset, program_length: the program: number of its region, bytes from the region's base,
            instructions with END.
        watchdog: cycles without progress before the run is stopped, 0 for the device's default.
        timeout: cycles before the run is stopped, 0 for no limit.
    """

    regions: Sequence[Region]
    program_region: int
    program_offset: int
    program_length: int
    watchdog: int = 0
    timeout: int = 0

    @property
    def program(self) -> tuple[int, int, int]:
        """Region, offset (bytes) and length (instructions) of the program."""
        return self.program_region, self.program_offset, self.program_length

    @property
    def region(self) -> Region:
        """The region that holds the program; an empty one if there is none of that number."""
        return self.regions[self.program_region] if self.program_region < len(self.regions) else Region()

    def run_on(self, device: Device, **options: Any) -> Counters:
        """Runs the launch on any device; see `Device.run`."""
        return device.run(self.regions, *self.program, watchdog=self.watchdog, timeout=self.timeout, **options)


@runtime_checkable
class Device(Protocol):
    """An NPU with memory. Not thread-safe; callers serialise."""

    name: str
    config: NpuConfig

    def allocate(self, nbytes: int) -> int:
        """Reserves device memory (64-byte aligned, zeroed) and returns its address."""
        ...

    def free(self, address: int) -> None:
        """Frees the allocation at this address."""
        ...

    def free_all(self) -> None:
        """Frees everything `allocate` returned."""
        ...

    def write(self, address: int, data: bytes | np.ndarray) -> None:
        """Copies host bytes to device memory."""
        ...

    def read(self, address: int, nbytes: int) -> np.ndarray:
        """Copies device memory to a fresh uint8 array."""
        ...

    def view(self, address: int, nbytes: int) -> np.ndarray | None:
        """The memory itself as a uint8 array where the host shares it, else None."""
        ...

    def run(
        self,
        regions: Sequence[Region],
        program_region: int,
        program_offset: int,
        program_length: int,
        *,
        watchdog: int = 0,
        timeout: int = 0,
        **options: Any,
    ) -> Counters:
        """Runs `program_length` instructions (END included) to completion. Scratchpads keep their contents between
        runs; registers and semaphores start from reset.

        Raises:
            DeviceError: the machine stopped.
        """
        ...


#: Pages that this process alone sees; only on Linux does DONTNEED make such pages zeros.
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
_GIVES_BACK = sys.platform == "linux"


class TakesLaunches:
    """A base of devices that turns the arguments of `Device.run` into a `Launch`.

    Attributes:
        launches: runs so far, by which a program knows whether its weights are still in the NPU; None where others may
            run theirs in between.
    """

    launches: int | None = 0

    @functools.cached_property
    def turn(self) -> threading.RLock:
        """Held while a launch runs, and by whoever looks at `launches` before one."""
        return threading.RLock()

    def run(
        self,
        regions: Sequence[Region],
        program_region: int,
        program_offset: int,
        program_length: int,
        *,
        watchdog: int = 0,
        timeout: int = 0,
        **options: Any,
    ) -> Counters:
        """See `Device.run`; the options are those of `execute`."""
        launch = Launch(regions, program_region, program_offset, program_length, watchdog, timeout)
        if self.launches is None:
            return self.execute(launch, **options)
        with self.turn:
            self.launches += 1
            return self.execute(launch, **options)

    def execute(self, launch: Launch, **options: Any) -> Counters:
        """Runs a launch to completion; raises `DeviceError` if the machine stops."""
        raise NotImplementedError


class HostMemory:
    """Device memory inside this process: a growing, aligned uint8 array.

    Freed pages return to the operating system where it can take single pages (Linux).

    Args:
        nbytes: initial size.
        origin: address of the first byte, for machines whose memory does not start at 0.
    """

    def __init__(self, nbytes: int = 1 << 20, *, origin: int = 0) -> None:
        self.origin = origin
        self._pages, self._data = self._fresh(nbytes)
        self._places = Allocator(1)  # address 0 stays unused, so that a stray zero is seen

    @staticmethod
    def _fresh(nbytes: int) -> tuple[mmap.mmap, np.ndarray]:
        """Maps zeroed pages. Raises MemoryError."""
        try:
            pages = mmap.mmap(-1, nbytes, **_PRIVATE)
        except (OSError, OverflowError):
            raise MemoryError(f"{nbytes} bytes") from None
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them
                pages.madvise(mmap.MADV_HUGEPAGE)
        return pages, np.frombuffer(pages, np.uint8)

    def allocate(self, nbytes: int) -> int:
        """See `Device.allocate`. Raises `MemoryFull` where this machine has no memory left."""
        top = self._places.top
        place = self._places.allocate(nbytes)
        if self._places.top > self._data.size:
            try:
                pages, grown = self._fresh(max(self._places.top, 2 * self._data.size))
            except MemoryError as error:
                self._places.free(place)
                self._places.top = top
                raise MemoryFull(f"this machine has no memory for {nbytes} bytes of device memory: {error}") from None
            grown[: self._data.size] = self._data
            self._pages, self._data = pages, grown
        return self.origin + place

    def free(self, address: int) -> None:
        place = address - self.origin
        size = self._places.free(place)
        self._clear(place, size)

    def free_all(self) -> None:
        self._clear(0, min(self._places.top, self._data.size))
        self._places.free_all()

    def _clear(self, place: int, size: int) -> None:
        """Zeros these bytes; whole pages are returned to the system and come back as zeros."""
        end = place + size
        first, last = -(-place // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if _GIVES_BACK and last > first:
            self._pages.madvise(mmap.MADV_DONTNEED, first, last - first)
            self._data[place:first] = 0
            self._data[last:end] = 0
        else:
            self._data[place:end] = 0

    def holds(self, address: int, nbytes: int) -> bool:
        """True if all these bytes are memory."""
        return self.origin <= address <= self.origin + self._data.size - nbytes

    def _place(self, address: int, nbytes: int) -> int:
        if not self.holds(address, nbytes):
            raise ValueError(f"bytes {address}..{address + nbytes} lie outside the {self._data.size} of device memory")
        return address - self.origin

    def write(self, address: int, data: bytes | np.ndarray) -> None:
        flat = np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data.reshape(-1).view(np.uint8)
        place = self._place(address, flat.size)
        self._data[place : place + flat.size] = flat

    def read(self, address: int, nbytes: int) -> np.ndarray:
        return self.view(address, nbytes).copy()

    def view(self, address: int, nbytes: int) -> np.ndarray:
        place = self._place(address, nbytes)
        return self._data[place : place + nbytes]

    @property
    def data(self) -> np.ndarray:
        return self._data


class InProcess(TakesLaunches):
    """A base of devices whose memory is a `HostMemory` of this process."""

    memory: HostMemory

    def allocate(self, nbytes: int) -> int:
        return self.memory.allocate(nbytes)

    def free(self, address: int) -> None:
        self.memory.free(address)

    def free_all(self) -> None:
        self.memory.free_all()

    def write(self, address: int, data: bytes | np.ndarray) -> None:
        self.memory.write(address, data)

    def read(self, address: int, nbytes: int) -> np.ndarray:
        return self.memory.read(address, nbytes)

    def view(self, address: int, nbytes: int) -> np.ndarray | None:
        return self.memory.view(address, nbytes)
