"""`Transport`: the interface of `BoardDevice` to a board."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from tilewright.driver.errors import TransportError
from tilewright.driver.mapped import Interrupt, RegisterFile


class Transport(Protocol):
    """Registers, memory and interrupt of one NPU. Not thread-safe.

    Attributes:
        name: address for messages: "serial:/dev/ttyUSB0".
        base: address of the first byte of memory, as the NPU sees it.
        size: bytes of memory.
        details: facts for people, by name.
    """

    name: str
    base: int
    size: int
    details: dict[str, str]

    def lock_file(self) -> int:
        """A file descriptor to lock the board by; it stays open until `close`."""
        ...

    def connect(self) -> None:
        """Connects to the board; the lock is held. Called again after an exchange was interrupted.

        Raises:
            TransportError: the board does not answer.
        """
        ...

    def read_registers(self, offset: int, count: int) -> list[int]:
        """Reads `count` 32-bit registers from byte `offset` on."""
        ...

    def write_registers(self, offset: int, values: Sequence[int]) -> None:
        """Writes 32-bit registers from byte `offset` on, in order."""
        ...

    def read(self, address: int, nbytes: int) -> np.ndarray:
        """Reads bytes of memory as a fresh uint8 array."""
        ...

    def write(self, address: int, data: np.ndarray) -> None:
        """Writes uint8 values to memory."""
        ...

    def view(self, address: int, nbytes: int) -> np.ndarray | None:
        """The memory itself, if it is mapped; see `to_device` and `from_device`."""
        ...

    def to_device(self, start: int, end: int) -> None:
        """Makes the host's writes to addresses start..end-1 visible to the NPU."""
        ...

    def from_device(self, start: int, end: int) -> None:
        """Makes the NPU's writes to addresses start..end-1 visible to the host, which has not written there."""
        ...

    def wait(self, seconds: float) -> bool:
        """Sleeps until the interrupt line is high, at most `seconds`. Returns True if the NPU may have finished.
        Transports without an interrupt return early and let the caller poll.
        """
        ...

    def hard_reset(self) -> bool:
        """Resets the NPU and its bus by other means than its registers. Returns False if there are none."""
        ...

    def close(self) -> None:
        """Releases everything. May be called twice."""
        ...


class Mapped:
    """A base of transports whose registers are mapped from a device file, which the lock is on."""

    name: str
    _lock_path: Path
    _lock = -1
    _registers: RegisterFile | None = None
    _interrupt: Interrupt | None = None

    def _open(self, path: Path, flags: int) -> int:
        try:
            return os.open(path, flags)
        except OSError as error:
            raise TransportError(f"{self.name}: cannot open {path}: {error.strerror}") from None

    def lock_file(self) -> int:
        if self._lock < 0:
            self._lock = self._open(self._lock_path, os.O_RDWR)
        return self._lock

    def read_registers(self, offset: int, count: int) -> list[int]:
        assert self._registers is not None
        return [self._registers.read(offset + 4 * i) for i in range(count)]

    def write_registers(self, offset: int, values: Sequence[int]) -> None:
        assert self._registers is not None
        for i, value in enumerate(values):
            self._registers.write(offset + 4 * i, value)

    def _disconnect(self) -> None:
        for part in (self._registers, self._interrupt):
            if part is not None:
                part.close()
        self._registers = self._interrupt = None

    def close(self) -> None:
        self._disconnect()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class Linked:
    """A base of transports whose memory is at the other end of a link: nothing is mapped, no cache in between."""

    def view(self, address: int, nbytes: int) -> np.ndarray | None:
        return None

    def to_device(self, start: int, end: int) -> None:
        pass

    def from_device(self, start: int, end: int) -> None:
        pass

    def hard_reset(self) -> bool:
        return False
