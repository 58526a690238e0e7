"""`BoardDevice`: a real NPU as `tilewright.isa.device.Device`, over any transport."""

from __future__ import annotations

import contextlib
import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.common.allocator import ALIGNMENT, Allocator
from tilewright.driver.errors import BoardReset, BusyError, ProbeError, TransportError
from tilewright.driver.transport.base import Transport
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, DeviceError, Launch, Region, TakesLaunches
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.host import (
    blocks,
    check_run,
    counters_of,
    error_of,
    fields,
    fingerprint_of,
    identity_problem,
    mask,
    preset_of,
    readable,
    run_values,
    state_of,
)
from tilewright.isa.registers import REGISTER

#: Seconds a soft reset may take: the bus has long answered everything by then.
RESET_SECONDS = 2.0
#: Seconds between two looks at the lock of another process.
_LOCK_PAUSE = 0.05


@dataclass(frozen=True)
class BoardInfo:
    """The identity and state of a board.

    Attributes:
        name: name of the transport.
        problem: the reason why it cannot be used, empty if it can.
        identity, version, fingerprint: register values.
        config: name of the preset with this fingerprint, None for another configuration.
        state: idle, busy, done, error or resetting.
        error: the recorded error, empty if there is none.
        base, size: memory, as the NPU sees it, in bytes.
        details: further facts of the transport.
    """

    name: str
    problem: str
    identity: int
    version: int
    fingerprint: str
    config: str | None
    state: str
    error: str
    base: int
    size: int
    details: dict[str, str] = field(default_factory=dict)


def probe(transport: Transport, *, wait: float = 10.0) -> BoardInfo:
    """Reads the state of a board without changing it, and closes the transport.

    Raises:
        TransportError: the board does not answer. BusyError: another process holds it.
    """
    with contextlib.closing(transport):
        _take(transport, wait)
        transport.connect()
        return _info(transport, _read_all(transport))


def _info(transport: Transport, values: dict[str, int]) -> BoardInfo:
    fingerprint = fingerprint_of(values)
    preset = preset_of(fingerprint)
    state = state_of(values["STATUS"])
    return BoardInfo(
        transport.name,
        identity_problem(values),
        values["IDENTITY"],
        values["VERSION"],
        fingerprint,
        preset.name if preset else None,
        state,
        str(error_of(values)) if state == "error" else "",
        transport.base,
        transport.size,
        transport.details,
    )


def _read_all(transport: Transport) -> dict[str, int]:
    """The value of every readable register, by name."""
    last = max(r.offset for r in readable())
    values = transport.read_registers(0, last // 4 + 1)
    return {r.name: values[r.offset // 4] for r in readable()}


def _take(transport: Transport, wait: float) -> None:
    """Locks the board for this process. The system gives the lock back if the process dies."""
    descriptor = transport.lock_file()
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise BusyError(
                    f"{transport.name} is in use by another process (waited {wait:g} s); "
                    "share a board between processes by `tilewright serve`"
                ) from None
            time.sleep(_LOCK_PAUSE)


class BoardDevice(TakesLaunches):
    """A board as a `Device`. Thread-safe: calls from several threads are put one after the other.

    The board belongs to this object until `close`; other processes wait for it. Several programs can be resident:
    memory is handed out piece by piece, and `free` gives a piece back.

    Args:
        transport: transport to the board; closed by `close`.
        config: required configuration; None takes that of the board, if it is a preset.
        seconds: wall time a run may take.
        wait: seconds to wait for another process that holds the board.
        reset_seconds: wall time a reset may take.

    Attributes:
        closed: True after `close`, or if the transport failed; open the board again.

    Raises:
        TransportError: the board does not answer. BusyError: another process keeps it.
        ProbeError: the board is no NPU, of another version, or of another configuration.
    """

    name = "board"
    #: Several programs stay in memory side by side.
    keeps_programs = True

    def __init__(
        self,
        transport: Transport,
        config: NpuConfig | None = None,
        *,
        seconds: float = 60.0,
        wait: float = 60.0,
        reset_seconds: float = RESET_SECONDS,
    ) -> None:
        self.transport, self.seconds, self.reset_seconds = transport, seconds, reset_seconds
        self._mutex = threading.RLock()
        self.closed = False
        try:
            _take(transport, wait)
            transport.connect()
            self.config = self._accept(config)
            self._places = Allocator(transport.base + ALIGNMENT, transport.base + transport.size)
            self._unzeroed: dict[int, int] = {}  # handed out and not yet cleared: address to size
            self._recover()
        except BaseException:
            transport.close()
            raise

    def _accept(self, config: NpuConfig | None) -> NpuConfig:
        values = _read_all(self.transport)
        info = _info(self.transport, values)
        if info.problem:
            raise ProbeError(f"{info.name}: {info.problem}; load a bitstream of this release")
        if config is None:
            config = preset_of(info.fingerprint)
            if config is None:
                raise ProbeError(
                    f"{info.name}: the bitstream has configuration {info.fingerprint}, which is no preset; "
                    "give its file with --config"
                )
        if config.fingerprint != info.fingerprint:
            there = f"{info.config!r}" if info.config else "no preset"
            hint = f", or compile for {info.config!r}" if info.config else ""
            raise ProbeError(
                f"{info.name}: the bitstream has another configuration: {there} ({info.fingerprint}); "
                f"{config.name!r} ({config.fingerprint}) is needed: load the bitstream of {config.name!r}{hint}"
            )
        return config

    def _recover(self) -> None:
        """Ends a run whose process died, or a reset that did not finish."""
        if self._status() & mask("STATUS", "BUSY", "ERROR", "RESETTING"):
            self.reset()

    # Memory.

    def allocate(self, nbytes: int) -> int:
        """Allocates device memory; see `Device.allocate`. Raises `MemoryFull`."""
        with self._mutex:
            address = self._places.allocate(nbytes)
            self._unzeroed[address] = max(nbytes, 1)
            return address

    def free(self, address: int) -> None:
        with self._mutex:
            self._places.free(address)
            self._unzeroed.pop(address, None)

    def free_all(self) -> None:
        with self._mutex:
            self._places.free_all()
            self._unzeroed.clear()

    def _zero(self) -> None:
        """Zeros the places handed out since the last run that were not written."""
        while self._unzeroed:
            address, size = self._unzeroed.popitem()
            self.transport.write(address, np.zeros(size, np.uint8))

    def _zero_around(self, start: int, end: int) -> None:
        """Zeros the rest of fresh places that are about to be partly written: around the bytes start..end-1."""
        for address, size in list(self._unzeroed.items()):
            if start < address + size and address < end:
                del self._unzeroed[address]
                if address < start or end < address + size:
                    self.transport.write(address, np.zeros(size, np.uint8))

    def _check(self, address: int, nbytes: int) -> None:
        start, end = self.transport.base, self.transport.base + self.transport.size
        if address < start or nbytes < 0 or address + nbytes > end:
            raise ValueError(f"bytes {address}..{address + nbytes} lie outside the device memory {start}..{end}")

    def write(self, address: int, data: bytes | np.ndarray) -> None:
        flat = np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data.reshape(-1).view(np.uint8)
        self._check(address, flat.size)
        with self._mutex, self._closing_on_failure():
            self._zero_around(address, address + flat.size)
            if flat.size:
                self.transport.write(address, flat)

    def read(self, address: int, nbytes: int) -> np.ndarray:
        self._check(address, nbytes)
        with self._mutex, self._closing_on_failure():
            self._zero()
            return self.transport.read(address, nbytes)

    def view(self, address: int, nbytes: int) -> np.ndarray | None:
        self._check(address, nbytes)
        with self._mutex:
            if self.transport.view(address, 0) is None:
                return None
            self._zero()
            return self.transport.view(address, nbytes)

    # Running.

    def execute(self, launch: Launch, *, seconds: float | None = None, **options: Any) -> Counters:
        """See `tilewright.isa.device.Device.run`. `instructions` of the counters is the program's length.

        Args:
            watchdog: cycles without progress before WATCHDOG, 0 = `tilewright.isa.host.WATCHDOG_CYCLES`.
            timeout: cycles of the run before TIMEOUT, 0 = none.
            seconds: wall time before the run is given up; by default that of the device.

        Raises:
            DeviceError: the machine stopped, or did not stop in time. The board is ready again.
            TransportError: the transport failed.
        """
        check_run(self.config, launch)
        limit = self.seconds if seconds is None else seconds
        with self._mutex, self._closing_on_failure():
            self._recover()
            self._zero()
            values = run_values(launch)
            for offset, block in blocks(values):
                self.transport.write_registers(offset, block)
            for r in launch.regions:  # no more than these: other threads may be at work on other programs
                if r.size:
                    self.transport.to_device(r.base, r.base + r.size)
            try:
                self._command("START")
                finished = self._finished(limit)
            except TransportError:
                raise
            except BaseException:  # interrupted, perhaps in the middle of an exchange; the NPU must not go on writing
                self.transport.connect()
                self.reset()
                raise
            for r in launch.regions:
                if r.size and r.write:
                    self.transport.from_device(r.base, r.base + r.size)
            values = _read_all(self.transport)
            if not finished:
                raise self._timeout_error(values, limit)
            status = fields("STATUS", self._checked_status(values["STATUS"]))
            if status["ERROR"]:
                error = self._error(values, launch.region, launch.program_offset)
                self.reset()
                raise error
            if not status["DONE"]:
                raise BoardReset(f"{self.transport.name}: the NPU was reset during the run")
            return counters_of(values, self.config, launch.program_length)

    def _command(self, name: str) -> None:
        self.transport.write_registers(REGISTER["CONTROL"].offset, [mask("CONTROL", name)])

    def _status(self) -> int:
        return self._checked_status(self.transport.read_registers(REGISTER["STATUS"].offset, 1)[0])

    def _checked_status(self, status: int) -> int:
        """Checks the value of STATUS and returns it. Raises where it is all ones, like that of a card that fell off its
        bus: it would look busy.
        """
        if status & ~mask("STATUS", *(bit.name for bit in REGISTER["STATUS"].bits)):
            raise TransportError(f"{self.transport.name}: STATUS reads 0x{status:08x}: the board is gone from its bus")
        return status

    def _finished(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            self.transport.wait(max(0.0, min(left, 1.0)))
            if not self._status() & mask("STATUS", "BUSY"):
                return True
            if left <= 0:
                return False

    def _error(self, values: dict[str, int], region: Region, offset: int) -> DeviceError:
        """The recorded error, with its instruction as still present in memory."""
        address = region.base + offset + INSTRUCTION_BYTES * values["ERROR_PC"]
        try:
            self._check(address, INSTRUCTION_BYTES)
            word = int.from_bytes(self.transport.read(address, INSTRUCTION_BYTES).tobytes(), "little")
        except ValueError:
            return error_of(values)
        return error_of(values, word)

    def _timeout_error(self, values: dict[str, int], seconds: float) -> DeviceError:
        cycles = values["CYCLES_LO"] | values["CYCLES_HI"] << 32
        text = f"TIMEOUT: the NPU is still busy after {seconds:g} s and {cycles:,} cycles"
        try:
            self.reset()
        except DeviceError as error:
            return DeviceError(f"{text}; {error}", ErrorCode.TIMEOUT)
        return DeviceError(f"{text}; a reset made it ready again", ErrorCode.TIMEOUT)

    def reset(self) -> None:
        """Soft reset; if the bus is stuck, by other means as well where the board has them.

        Raises:
            DeviceError: the NPU stays busy.
        """
        with self._mutex:
            self._command("SOFT_RESET")
            if self._wait_until_idle() or (self.transport.hard_reset() and self._wait_until_idle()):
                return
            raise DeviceError(
                f"{self.transport.name}: the reset does not end, the bus does not answer the NPU; "
                "load the bitstream anew",
                ErrorCode.WATCHDOG,
            )

    def _wait_until_idle(self) -> bool:
        return _wait_until(
            lambda: not self._status() & mask("STATUS", "BUSY", "RESETTING", "ERROR"), self.reset_seconds
        )

    @contextlib.contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        """Closes the device after a failure of the link, when the board's state is no longer known."""
        if self.closed:
            raise TransportError(f"{self.transport.name}: the device is closed")
        try:
            yield
        except TransportError:
            self.close()
            raise

    def close(self) -> None:
        """Releases the board. May be called twice."""
        if not self.closed:
            self.closed = True
            self.transport.close()

    def __enter__(self) -> BoardDevice:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.001)
    return True
