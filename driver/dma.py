"""Memory that host and NPU share on one chip: contiguous, with a known bus address, mapped into this process."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from tilewright.driver.errors import TransportError
from tilewright.driver.mapped import read_attribute, read_number, write_attribute

#: Folders of the u-dma-buf driver in sysfs, the name since version 3.0 first.
_UDMABUF_CLASSES = ("sys/class/u-dma-buf", "sys/class/udmabuf")
_BIDIRECTIONAL = "0"
# linux/dma-heap.h and linux/dma-buf.h.
_HEAP_ALLOC = 0xC0184800
_HEAP_REQUEST = struct.Struct("=QIIQ")  # length, descriptor (out), its flags, heap flags
BUF_SYNC = 0x40086200
_SYNC_RW, _SYNC_END = 3, 4
# Documentation/admin-guide/mm/pagemap.rst.
_PAGEMAP_PRESENT = 1 << 63
_PAGEMAP_FRAME = (1 << 55) - 1


class DmaMemory(Protocol):
    """Memory shared with the NPU.

    Attributes:
        base: address of the first byte as the NPU sees it.
        data: the bytes, uint8.
        coherent: True if the hardware keeps the CPU's caches up to date.
    """

    name: str
    base: int
    data: np.ndarray
    coherent: bool

    def to_device(self, start: int, nbytes: int) -> None:
        """Writes the CPU's caches back; `start` counts from `base`."""
        ...

    def from_device(self, start: int, nbytes: int) -> None:
        """Invalidates the CPU's caches; `start` counts from `base`."""
        ...

    def close(self) -> None: ...


class UDmaBuf:
    """A buffer of the u-dma-buf kernel module.

    The CPU caches stay on; `to_device` and `from_device` maintain them, unless the device tree has dma-coherent.

    Args:
        name: "udmabuf0"; "" takes the only one there is.
        root: root of the file system.
        write_attribute: writes a file of sysfs.

    Raises:
        TransportError: no such buffer.
    """

    def __init__(
        self, name: str = "", root: Path = Path("/"), write_attribute: Callable[[Path, str], None] = write_attribute
    ) -> None:
        found = {p.name: p for folder in _UDMABUF_CLASSES for p in (root / folder).glob("*")}
        if not name and len(found) == 1:
            name = next(iter(found))
        if name not in found:
            there = f"there are {', '.join(sorted(found))}" if found else "none is there; is its module loaded?"
            raise TransportError(f"no u-dma-buf {name or 'to take by itself'}: {there}")
        self.name, self._folder = name, found[name]
        self.base, size = read_number(self._folder / "phys_addr"), read_number(self._folder / "size")
        coherent = self._folder / "dma_coherent"
        self.coherent = coherent.exists() and read_attribute(coherent) == "1"
        device = root / "dev" / name
        try:
            descriptor = os.open(device, os.O_RDWR)  # without O_SYNC: cached
            try:
                self._map: mmap.mmap | None = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise TransportError(f"cannot map {device}: {error}") from None
        self.data = np.frombuffer(self._map, np.uint8)
        self._write = write_attribute
        self._write(self._folder / "sync_direction", _BIDIRECTIONAL)

    def _sync(self, what: str, start: int, nbytes: int) -> None:
        if not self.coherent and nbytes > 0:
            self._write(self._folder / "sync_offset", str(start))
            self._write(self._folder / "sync_size", str(nbytes))
            self._write(self._folder / what, "1")

    def to_device(self, start: int, nbytes: int) -> None:
        self._sync("sync_for_device", start, nbytes)

    def from_device(self, start: int, nbytes: int) -> None:
        self._sync("sync_for_cpu", start, nbytes)

    def close(self) -> None:
        """Drops the references to the mapping, which ends with the last view of it."""
        self.data, self._map = np.empty(0, np.uint8), None


class DmaHeap:
    """A buffer of a kernel DMA heap, for boards without u-dma-buf.

    Heaps do not report the bus address, so it is looked up in /proc/self/pagemap, which needs CAP_SYS_ADMIN. This holds
    only where bus and physical addresses are the same (no IOMMU before the NPU) and the heap is a contiguous one
    (`linux,cma`, `reserved`). DMA_BUF_IOCTL_SYNC maintains caches only for devices attached in the kernel, which the
    NPU is not: use it behind a coherent port (Zynq ACP, ZynqMP HPC).

    Args:
        size: bytes.
        heap: name below /dev/dma_heap.
        root: root of the file system.

    Raises:
        TransportError: no such heap, no memory, no permission, or memory in pieces.
    """

    coherent = True

    def __init__(self, size: int, heap: str = "linux,cma", root: Path = Path("/")) -> None:
        self.name = heap
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        device = root / "dev" / "dma_heap" / heap
        try:
            descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                request = bytearray(_HEAP_REQUEST.pack(size, 0, os.O_RDWR | os.O_CLOEXEC, 0))
                fcntl.ioctl(descriptor, _HEAP_ALLOC, request)
            finally:
                os.close(descriptor)
            self._descriptor = _HEAP_REQUEST.unpack(request)[1]
            self._map: mmap.mmap | None = mmap.mmap(self._descriptor, size)
        except OSError as error:
            raise TransportError(f"cannot allocate {size} bytes of {device}: {error.strerror}") from None
        self.data = np.frombuffer(self._map, np.uint8)
        self.data[:: mmap.PAGESIZE] = 0  # every page is there now
        self.base = _bus_address(self.data, root / "proc" / "self" / "pagemap", heap)

    def _sync(self, flags: int) -> None:
        fcntl.ioctl(self._descriptor, BUF_SYNC, struct.pack("=Q", flags))

    def to_device(self, start: int, nbytes: int) -> None:
        self._sync(_SYNC_RW | _SYNC_END)

    def from_device(self, start: int, nbytes: int) -> None:
        self._sync(_SYNC_RW)

    def close(self) -> None:
        """Drops the references to the memory, which returns to the heap with the last view of it."""
        if self._descriptor >= 0:
            self.data, self._map = np.empty(0, np.uint8), None
            os.close(self._descriptor)
            self._descriptor = -1


def _bus_address(data: np.ndarray, pagemap: Path, heap: str) -> int:
    """Physical address of mapped pages. Raises `TransportError` if it is secret or they are not contiguous."""
    page = mmap.PAGESIZE
    try:
        with open(pagemap, "rb") as file:
            file.seek(data.ctypes.data // page * 8)
            entries = np.frombuffer(file.read(data.size // page * 8), "<u8")
    except OSError as error:
        raise TransportError(f"cannot read {pagemap}: {error.strerror}") from None
    frames = entries & np.uint64(_PAGEMAP_FRAME)
    if entries.size * page != data.size or not (entries & np.uint64(_PAGEMAP_PRESENT)).all() or not frames.all():
        raise TransportError(f"{pagemap} does not tell physical addresses: run with CAP_SYS_ADMIN, or use u-dma-buf")
    if (np.diff(frames) != 1).any():
        raise TransportError(f"memory of heap {heap!r} is in pieces: use a contiguous heap (linux,cma or reserved)")
    return int(frames[0]) * page
