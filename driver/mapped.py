"""Kernel interfaces mapped into this process, registers and interrupts. The lowest layer of the driver."""

from __future__ import annotations

import mmap
import os
import select
import struct
from pathlib import Path
from typing import Protocol

import numpy as np

from tilewright.driver.errors import TransportError
from tilewright.isa.registers import REGISTER_SPACE


class RegisterFile(Protocol):
    """32-bit registers by byte offset; each access is one bus transfer."""

    def read(self, offset: int) -> int: ...

    def write(self, offset: int, value: int) -> None: ...

    def close(self) -> None: ...


class Interrupt(Protocol):
    """An interrupt line that the kernel forwards."""

    def wait(self, seconds: float) -> bool:
        """Sleeps until an interrupt came since the last call, at most `seconds`. Returns True if one came."""
        ...

    def close(self) -> None: ...


class MappedRegisters:
    """Registers in a file that can be mapped: /dev/uioN, or a PCIe BAR.

    Args:
        path: the file.
        start: byte offset of the mapping, a multiple of the page size; registers begin `inside` bytes into it.
        inside: see `start`.

    Raises:
        TransportError: the file cannot be opened or mapped.
    """

    def __init__(self, path: Path, start: int = 0, inside: int = 0) -> None:
        length = -(-(inside + REGISTER_SPACE) // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_SYNC)
            try:
                self._map = mmap.mmap(descriptor, length, offset=start)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise TransportError(f"cannot map the registers in {path}: {_reason(error)}") from None
        self._words: np.ndarray | None = np.frombuffer(self._map, "<u4", REGISTER_SPACE // 4, inside)

    def read(self, offset: int) -> int:
        assert self._words is not None
        return int(self._words[offset >> 2])

    def write(self, offset: int, value: int) -> None:
        assert self._words is not None
        self._words[offset >> 2] = value

    def close(self) -> None:
        if self._words is not None:
            self._words = None
            self._map.close()


class ReadableInterrupt:
    """A device file that becomes readable, by four bytes, when the interrupt came: /dev/uioN, /dev/xdmaN_events_M.

    Args:
        path: the file.
        rearm: written before waiting; UIO masks its interrupt until a 1 is written.
    """

    def __init__(self, path: Path, rearm: bytes = b"") -> None:
        self._path, self._rearm = path, rearm
        try:
            self._descriptor = os.open(path, os.O_RDWR)
        except OSError as error:
            raise TransportError(f"cannot open {path}: {_reason(error)}") from None

    def wait(self, seconds: float) -> bool:
        try:
            if self._rearm:
                os.write(self._descriptor, self._rearm)
            if not select.select([self._descriptor], [], [], seconds)[0]:
                return False
            os.read(self._descriptor, 4)
        except OSError as error:
            raise TransportError(f"{self._path}: the interrupt failed: {_reason(error)}") from None
        return True

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


#: Bytes that `ReadableInterrupt` writes to a UIO file to unmask the interrupt.
UIO_REARM = struct.pack("=I", 1)


def read_attribute(path: Path) -> str:
    """Reads the text of a sysfs file. Raises `TransportError`."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise TransportError(f"cannot read {path}: {_reason(error)}") from None


def read_number(path: Path) -> int:
    """Reads a sysfs file with a decimal or 0x number. Raises `TransportError`."""
    text = read_attribute(path)
    try:
        return int(text, 0)
    except ValueError:
        raise TransportError(f"{path} holds {text!r}, not a number") from None


def write_attribute(path: Path, text: str) -> None:
    """Writes a sysfs file. Raises `TransportError`."""
    try:
        path.write_text(text, encoding="ascii")
    except OSError as error:
        raise TransportError(f"cannot write {path}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
