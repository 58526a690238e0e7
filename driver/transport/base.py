"""`Transport`: the interface of `BoardDevice` to a board."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


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
