"""The simulated AXI board as Linux shows one: UIO or PCIe on a fake root of the file system.

What is real here: the search in sysfs, the mapping and the cache maintenance of u-dma-buf memory, the files of the DMA
channels, the driver above. What stands in: a register access and an interrupt go to the simulated board by its socket
in place of a mapping, because a file has no side effects; the caches are a model.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.driver.mapped import write_attribute
from tilewright.driver.transport.base import Transport
from tilewright.driver.transport.pcie import PcieTransport
from tilewright.driver.transport.socket import SocketTransport
from tilewright.driver.transport.uio import UioTransport

BASE, SIZE = 0x3000000, 1 << 20
SLOT = "0000:01:00.0"
#: Below the root: the socket of the board, and the file with its memory.
SOCKET, DRAM = "npu.sock", "dram"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Wire:
    """A connection to the simulated board, as register file and as interrupt.

    Attributes:
        interrupts: how many came.
        deaf: none comes any more.
        dead: registers read all ones, as those of a card that fell off its bus.
    """

    def __init__(self, path: Path) -> None:
        self.link = SocketTransport(path)
        self.link.connect()
        self.interrupts = 0
        self.deaf = self.dead = False

    def read(self, offset: int) -> int:
        return 0xFFFFFFFF if self.dead else self.link.read_registers(offset, 1)[0]

    def write(self, offset: int, value: int) -> None:
        if not self.dead:
            self.link.write_registers(offset, [value])

    def fall(self) -> None:
        """Makes the board fall off its bus: reads are all ones from now on."""
        self.dead = True

    def wait(self, seconds: float) -> bool:
        came = self.link.wait(seconds) and not self.deaf
        self.interrupts += came
        return came

    def close(self) -> None:
        pass


def make_uio(root: Path, coherent: str = "0") -> None:
    for number, name in ((0, "gpio@41200000"), (1, "npu@a0000000")):
        folder = root / "sys/class/uio" / f"uio{number}"
        put(folder / "name", f"{name}\n")
        put(folder / "maps/map0/addr", f"0xa000000{number}\n")
        put(folder / "maps/map0/size", "0x00010000\n")
        put(folder / "maps/map0/offset", "0x0\n")
        put(root / "dev" / folder.name, "")
    folder = root / "sys/class/u-dma-buf/udmabuf0"
    for name, text in (("phys_addr", f"0x{BASE:016x}"), ("size", str(SIZE)), ("dma_coherent", coherent)):
        put(folder / name, text + "\n")
    for name in ("sync_direction", "sync_offset", "sync_size", "sync_for_cpu", "sync_for_device"):
        put(folder / name, "")
    put(root / "dev/udmabuf0", "")
    os.truncate(root / "dev/udmabuf0", SIZE)


def caches(root: Path, done: list[str]) -> Callable[[Path, str], None]:
    """`write_attribute` with caches that are not coherent: the mapped file is the CPU's cache, the board's memory the
    DRAM, and only cache maintenance joins them. Names of the operations are added to `done`."""

    def written(path: Path, text: str) -> None:
        write_attribute(path, text)
        if path.name not in ("sync_for_device", "sync_for_cpu"):
            return
        start, size = int((path.parent / "sync_offset").read_text()), int((path.parent / "sync_size").read_text())
        assert text == "1" and (path.parent / "sync_direction").read_text() == "0"
        dram = np.memmap(root / DRAM, np.uint8, "r+")[BASE + start :][:size]
        cache = np.memmap(root / "dev/udmabuf0", np.uint8, "r+")[start:][:size]
        if path.name == "sync_for_device":
            dram[:] = cache
        else:
            cache[:] = dram
        done.append(path.name)

    return written


def uio(root: Path, wire: Wire, name: str = "npu", done: list[str] | None = None) -> UioTransport:
    """A board behind UIO whose caches are a model, `caches`."""
    return UioTransport(
        name, root=root, open_registers=lambda path, start, inside: wire, open_interrupt=lambda path, rearm: wire,
        write_attribute=caches(root, [] if done is None else done),
    )  # fmt: skip


def make_pcie(root: Path) -> Path:
    """A card whose DMA channels lead to the board's memory file; returns its folder in sysfs."""
    card = root / "sys/devices/pci0000:00" / SLOT
    put(card / "resource0", "")
    for folder, name in (("sys/bus/pci/devices", SLOT), ("sys/class/xdma/xdma1_user", "device")):
        (root / folder).mkdir(parents=True)
        (root / folder / name).symlink_to(card)
    (root / "dev").mkdir(exist_ok=True)
    for name in ("xdma1_h2c_0", "xdma1_c2h_0"):
        (root / "dev" / name).symlink_to(root / DRAM)
    return card


def pcie(root: Path, wire: Wire) -> PcieTransport:
    return PcieTransport(
        SLOT, size=SIZE, base=BASE, root=root, open_registers=lambda path, start, inside: wire,
        open_interrupt=lambda path: wire,
    )  # fmt: skip


@dataclass(frozen=True)
class Way:
    """A way to the board whose socket and memory lie below `root`, in this process or another.

    Attributes:
        kind: "socket", "uio" or "pcie".
        root: of the fake file system.
    """

    kind: str
    root: Path

    def make(self) -> None:
        """Makes the files by which Linux shows the board."""
        if self.kind != "socket":
            {"uio": make_uio, "pcie": make_pcie}[self.kind](self.root)

    def open(self, wire: Wire | None = None) -> Transport:
        if self.kind == "socket":
            return SocketTransport(self.root / SOCKET)
        return {"uio": uio, "pcie": pcie}[self.kind](self.root, wire or Wire(self.root / SOCKET))
