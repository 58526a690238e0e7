"""Linux user-space I/O: registers and interrupt of an NPU beside the CPU, memory by u-dma-buf or a DMA heap."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tilewright.driver.dma import DmaHeap, DmaMemory, UDmaBuf
from tilewright.driver.errors import TransportError
from tilewright.driver.mapped import (
    UIO_REARM,
    Interrupt,
    MappedRegisters,
    ReadableInterrupt,
    RegisterFile,
    read_attribute,
    read_number,
    write_attribute,
)
from tilewright.driver.transport.base import Mapped
from tilewright.isa.registers import REGISTER_SPACE


def find_uio(name: str, root: Path = Path("/")) -> Path:
    """The folder in sysfs of the UIO device with this name: that of its node in the device tree, or "uioN".

    Raises:
        TransportError: there is none, or several have the name.
    """
    devices = {p.name: p for p in (root / "sys/class/uio").glob("uio*")}
    names = {number: read_attribute(p / "name") for number, p in devices.items()}
    matches = [n for n, own in names.items() if name in (n, own, own.partition("@")[0])]
    if len(matches) != 1:
        there = ", ".join(f"{n} ({own})" for n, own in sorted(names.items())) or "none"
        problem = "several UIO devices are" if matches else "no UIO device is"
        raise TransportError(f"{problem} called {name!r}; there are: {there}")
    return devices[matches[0]]


class UioTransport(Mapped):
    """An NPU on the bus of this machine. See `tilewright.driver.transport.base.Transport`.

    Args:
        device: name of the UIO device.
        memory: name of the u-dma-buf; "" takes the only one.
        heap: take memory from this DMA heap instead, `size` bytes; see `tilewright.driver.dma.DmaHeap` for its limits.
        size: see `heap`.
        root: root of the file system.
        open_registers: makes the register file of a path, an offset of its mapping, and an offset inside.
        open_interrupt: makes the interrupt of a path and the bytes that unmask it.
    """

    def __init__(
        self,
        device: str,
        *,
        memory: str = "",
        heap: str = "",
        size: int = 1 << 26,
        root: Path = Path("/"),
        open_registers: Callable[[Path, int, int], RegisterFile] = MappedRegisters,
        open_interrupt: Callable[[Path, bytes], Interrupt] = ReadableInterrupt,
        write_attribute: Callable[[Path, str], None] = write_attribute,
    ) -> None:
        self.name = f"uio:{device}"
        folder = find_uio(device, root)
        self._lock_path = root / "dev" / folder.name
        window = folder / "maps" / "map0"
        self._inside = read_number(window / "offset") if (window / "offset").exists() else 0
        space = read_number(window / "size")
        if space < REGISTER_SPACE:
            raise TransportError(f"{self.name}: its window has {space} bytes, the registers need {REGISTER_SPACE}")
        self._open_registers, self._open_interrupt = open_registers, open_interrupt
        self._memory: DmaMemory = DmaHeap(size, heap, root) if heap else UDmaBuf(memory, root, write_attribute)
        self.base, self.size = self._memory.base, self._memory.data.size
        self.details = {
            "registers": f"0x{read_number(window / 'addr'):x}",
            "buffer": f"{self._memory.name}{', coherent' if self._memory.coherent else ''}",
        }

    def connect(self) -> None:
        self._disconnect()
        # Mapping N of a UIO device is chosen by N pages of offset.
        self._registers = self._open_registers(self._lock_path, 0 * mmap.PAGESIZE, self._inside)
        self._interrupt = self._open_interrupt(self._lock_path, UIO_REARM)

    def read(self, address: int, nbytes: int) -> np.ndarray:
        return self.view(address, nbytes).copy()

    def write(self, address: int, data: np.ndarray) -> None:
        self.view(address, data.size)[...] = data

    def view(self, address: int, nbytes: int) -> np.ndarray:
        return self._memory.data[address - self.base :][:nbytes]

    def to_device(self, start: int, end: int) -> None:
        self._memory.to_device(start - self.base, end - start)

    def from_device(self, start: int, end: int) -> None:
        self._memory.from_device(start - self.base, end - start)

    def wait(self, seconds: float) -> bool:
        assert self._interrupt is not None
        return self._interrupt.wait(seconds)

    def hard_reset(self) -> bool:
        return False

    def close(self) -> None:
        self._disconnect()
        self._memory.close()
        super().close()
