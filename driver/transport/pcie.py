"""PCIe cards with the XDMA core: registers in BAR 0, memory through its DMA channels, interrupt by its event files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tilewright.driver.errors import TransportError
from tilewright.driver.mapped import Interrupt, MappedRegisters, ReadableInterrupt, RegisterFile
from tilewright.driver.transport.base import Linked, Mapped


def find_xdma(slot: str, root: Path = Path("/")) -> str:
    """The prefix of the device files ("xdma0") of the card in a slot.

    Raises:
        TransportError: the card is not there, or has no driver.
    """
    card = root / "sys/bus/pci/devices" / slot
    if not card.exists():
        raise TransportError(f"no PCIe card in slot {slot}; `lspci -D` lists them")
    for entry in sorted((root / "sys/class/xdma").glob("*_user")):
        if (entry / "device").resolve() == card.resolve():
            return entry.name.removesuffix("_user")
    raise TransportError(f"the card in slot {slot} has no XDMA device files; is the xdma module loaded for it?")


class PcieTransport(Mapped, Linked):
    """An NPU on a card. See `tilewright.driver.transport.base.Transport`.

    Args:
        slot: "0000:01:00.0".
        size: bytes of memory on the card that belong to the NPU.
        base: their first address.
        registers: byte offset of the NPU's registers in BAR 0.
        event: number of the user interrupt the NPU drives; -1 = none, STATUS is polled.
        root: root of the file system.
        open_registers, open_interrupt: as for `tilewright.driver.transport.uio.UioTransport`.
    """

    def __init__(
        self,
        slot: str,
        *,
        size: int,
        base: int = 0,
        registers: int = 0,
        event: int = 0,
        root: Path = Path("/"),
        open_registers: Callable[[Path, int, int], RegisterFile] = MappedRegisters,
        open_interrupt: Callable[[Path], Interrupt] = ReadableInterrupt,
    ) -> None:
        self.name = f"pcie:{slot}"
        self.base, self.size = base, size
        prefix = find_xdma(slot, root)
        self._lock_path = root / "sys/bus/pci/devices" / slot / "resource0"
        self._offset, self._event = registers, event
        self._open_registers, self._open_interrupt = open_registers, open_interrupt
        self._device = root / "dev"
        self._prefix = prefix
        self._to_card = self._from_card = -1
        self.details = {"channels": prefix, "registers": f"BAR 0 + 0x{registers:x}"}

    def connect(self) -> None:
        self._disconnect()
        self._registers = self._open_registers(self._lock_path, 0, self._offset)
        self._to_card = self._open(self._device / f"{self._prefix}_h2c_0", os.O_WRONLY)
        self._from_card = self._open(self._device / f"{self._prefix}_c2h_0", os.O_RDONLY)
        if self._event >= 0:
            self._interrupt = self._open_interrupt(self._device / f"{self._prefix}_events_{self._event}")

    def read(self, address: int, nbytes: int) -> np.ndarray:
        data = bytearray()
        while len(data) < nbytes:
            with self._channel("reading", address + len(data)):
                part = os.pread(self._from_card, nbytes - len(data), address + len(data))
            if not part:
                raise TransportError(f"{self.name}: reading stopped at address 0x{address + len(data):x}")
            data += part
        return np.frombuffer(bytes(data), np.uint8).copy()

    def write(self, address: int, data: np.ndarray) -> None:
        raw = data.tobytes()
        done = 0
        while done < len(raw):
            with self._channel("writing", address + done):
                count = os.pwrite(self._to_card, raw[done:], address + done)
            if not count:
                raise TransportError(f"{self.name}: writing stopped at address 0x{address + done:x}")
            done += count

    @contextlib.contextmanager
    def _channel(self, what: str, address: int) -> Iterator[None]:
        """Turns an OSError of a DMA channel within the block into a `TransportError`."""
        try:
            yield
        except OSError as error:
            raise TransportError(f"{self.name}: {what} failed at address 0x{address:x}: {error.strerror}") from None

    def wait(self, seconds: float) -> bool:
        if self._interrupt is not None:
            return self._interrupt.wait(seconds)
        time.sleep(min(seconds, 0.001))
        return True

    def _disconnect(self) -> None:
        super()._disconnect()
        for descriptor in (self._to_card, self._from_card):
            if descriptor >= 0:
                os.close(descriptor)
        self._to_card = self._from_card = -1
