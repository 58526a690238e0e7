"""UIO and PCIe on a fake root of the file system; registers, interrupt and memory are those of the Verilated NPU
(`tests.common.linux_boards`). Faults are in test_faults.py."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.common.board_jobs import check_copy, endless_job
from tests.common.linux_boards import BASE, DRAM, SIZE, SOCKET, Wire, caches, make_pcie, make_uio, put, uio
from tilewright.driver import dma
from tilewright.driver.address import open_transport
from tilewright.driver.board import BoardDevice, probe
from tilewright.driver.dma import DmaHeap, UDmaBuf
from tilewright.driver.errors import TransportError
from tilewright.driver.mapped import UIO_REARM, MappedRegisters, ReadableInterrupt
from tilewright.driver.transport.pcie import PcieTransport, find_xdma
from tilewright.driver.transport.uio import UioTransport, find_uio
from tilewright.fpga.sim.axi import AxiBoard
from tilewright.isa.config import preset
from tilewright.isa.device import DeviceError
from tilewright.isa.program import Program
from tilewright.isa.registers import REGISTER_SPACE
from tilewright.runtime.executor import Executor

pytestmark = pytest.mark.cosim
TINY = preset("tiny")


@pytest.fixture
def board(tmp_path: Path) -> Iterator[AxiBoard]:
    with AxiBoard(TINY, tmp_path / SOCKET, base=BASE, size=SIZE, memory_file=tmp_path / DRAM) as made:
        yield made


def test_uio_runs_a_network(board: AxiBoard, tmp_path: Path, digits: Program) -> None:
    make_uio(tmp_path)
    cached: list[str] = []
    wire = Wire(board.path)
    info = probe(uio(tmp_path, wire))
    assert (info.name, info.config, info.base, info.size) == ("uio:npu", "tiny", BASE, SIZE)
    assert info.details == {"registers": "0xa0000001", "buffer": "udmabuf0"}
    with BoardDevice(uio(tmp_path, wire, done=cached), TINY) as device:
        executor = Executor(digits, device)
        for seed in range(2):
            inputs = tw.random_inputs(digits, seed)
            expected = tw.Device("functional").run(digits, inputs)
            outputs = executor.run(inputs).outputs
            assert all(np.array_equal(outputs[name], expected[name]) for name in expected)
        assert wire.interrupts >= 2 and cached.count("sync_for_device") >= 2 <= cached.count("sync_for_cpu")
        with pytest.raises(DeviceError, match="still busy"):
            endless_job(device).run(seconds=0.2)
        check_copy(device)
        place = device.allocate(100)
        device.write(place + 1, b"abc")  # in the CPU's cache as yet
        assert device.read(place, 5).tobytes() == b"\0abc\0"


def test_coherent_memory_needs_no_maintenance(board: AxiBoard, tmp_path: Path) -> None:
    make_uio(tmp_path, coherent="1")
    cached: list[str] = []
    memory = UDmaBuf(root=tmp_path, write_attribute=caches(tmp_path, cached))
    memory.data[:4] = 7
    memory.to_device(0, 4)
    memory.from_device(0, 4)
    assert memory.coherent and not cached
    assert (tmp_path / "dev/udmabuf0").read_bytes()[:4] == b"\7" * 4


def test_what_uio_needs(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="no UIO device is called 'npu'; there are: none"):
        UioTransport("npu", root=tmp_path)
    make_uio(tmp_path)
    assert {find_uio(name, tmp_path).name for name in ("npu", "npu@a0000000", "uio1")} == {"uio1"}
    with pytest.raises(TransportError, match=r"there are: uio0 \(gpio@41200000\), uio1 \(npu@a0000000\)"):
        find_uio("x", tmp_path)
    put(tmp_path / "sys/class/uio/uio2/name", "npu@b0000000")
    with pytest.raises(TransportError, match="several UIO devices are called 'npu'"):
        find_uio("npu", tmp_path)
    with pytest.raises(TransportError, match="no u-dma-buf other: there are udmabuf0"):
        UDmaBuf("other", tmp_path)
    put(tmp_path / "sys/class/u-dma-buf/udmabuf1/phys_addr", "0")
    with pytest.raises(TransportError, match="to take by itself: there are udmabuf0, udmabuf1"):
        UDmaBuf("", tmp_path)
    put(tmp_path / "sys/class/uio/uio1/maps/map0/size", "0x100")
    with pytest.raises(TransportError, match=f"its window has 256 bytes, the registers need {REGISTER_SPACE}"):
        UioTransport("uio1", root=tmp_path)
    put(tmp_path / "sys/class/u-dma-buf/udmabuf0/size", "many")
    with pytest.raises(TransportError, match="holds 'many', not a number"):
        UDmaBuf("udmabuf0", tmp_path)


def test_mapped_registers(tmp_path: Path) -> None:
    file = tmp_path / "uio0"
    file.write_bytes(struct.pack("<2I", 1, 2) + bytes(mmap.PAGESIZE - 8))
    registers = MappedRegisters(file)
    assert (registers.read(0), registers.read(4)) == (1, 2)
    registers.write(8, 0xFFFFFFFF)
    registers.close()
    registers.close()
    assert file.read_bytes()[:16] == struct.pack("<4I", 1, 2, 0xFFFFFFFF, 0)
    with pytest.raises(TransportError, match=r"cannot map the registers in .*none: No such file"):
        MappedRegisters(tmp_path / "none")
    (tmp_path / "short").write_bytes(b"")
    with pytest.raises(TransportError, match=r"cannot map the registers in .*short"):
        MappedRegisters(tmp_path / "short")


def test_an_interrupt_is_a_readable_file(tmp_path: Path) -> None:
    file = tmp_path / "events"
    os.mkfifo(file)
    interrupt = ReadableInterrupt(file)
    assert not interrupt.wait(0.01)
    other = os.open(file, os.O_RDWR)
    os.write(other, struct.pack("=I", 1))
    assert interrupt.wait(0.01) and not interrupt.wait(0.01)
    interrupt.close()
    rearmed = ReadableInterrupt(file, UIO_REARM)  # through a FIFO it hears its own unmasking
    assert rearmed.wait(0.01)
    rearmed.close()
    os.close(other)
    with pytest.raises(TransportError, match=r"cannot open .*none"):
        ReadableInterrupt(tmp_path / "none")


# DMA heaps.


@pytest.fixture
def heap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[int]], list[int]]:
    """A heap whose buffers have pages at the given frames; returns the flags of DMA_BUF_IOCTL_SYNC."""
    put(tmp_path / "dev/dma_heap/linux,cma", "")
    flags: list[int] = []

    def make(frames: list[int]) -> list[int]:
        def ioctl(descriptor: int, request: int, argument: bytearray) -> int:
            if request == dma.BUF_SYNC:
                flags.extend(struct.unpack("=Q", argument))
                return 0
            length, _, _, _ = struct.unpack("=QIIQ", argument)
            assert length == mmap.PAGESIZE * len(frames)
            buffer = os.memfd_create("heap")
            os.truncate(buffer, length)
            argument[:] = struct.pack("=QIIQ", length, buffer, 0, 0)
            return 0

        def opened(path: Path, mode: str) -> object:
            assert path == tmp_path / "proc/self/pagemap" and mode == "rb"
            return Pagemap(frames)

        monkeypatch.setattr(dma.fcntl, "ioctl", ioctl)
        monkeypatch.setattr(dma, "open", opened, raising=False)
        return flags

    return make


class Pagemap:
    """/proc/self/pagemap for one mapping."""

    def __init__(self, frames: list[int]) -> None:
        self.frames = frames

    def __enter__(self) -> Pagemap:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def seek(self, position: int) -> None:
        assert position % 8 == 0

    def read(self, count: int) -> bytes:
        assert count == 8 * len(self.frames)
        return b"".join(struct.pack("<Q", 1 << 63 | frame) for frame in self.frames)


def test_a_dma_heap(tmp_path: Path, heap: Callable[[list[int]], list[int]]) -> None:
    flags = heap([0x70000, 0x70001, 0x70002])
    memory = DmaHeap(3 * mmap.PAGESIZE - 5, root=tmp_path)
    assert memory.base == 0x70000 * mmap.PAGESIZE and memory.data.size == 3 * mmap.PAGESIZE
    memory.to_device(0, 64)
    memory.from_device(0, 64)
    assert flags == [3 | 4, 3]  # read and write, end and start of CPU access
    memory.close()
    memory.close()


@pytest.mark.parametrize("frames, text", [([7, 9], "is in pieces"), ([0, 0], "does not tell physical addresses")])
def test_heaps_that_cannot_be_used(
    tmp_path: Path, heap: Callable[[list[int]], list[int]], frames: list[int], text: str
) -> None:
    heap(frames)
    with pytest.raises(TransportError, match=text):
        DmaHeap(2 * mmap.PAGESIZE, root=tmp_path)
    with pytest.raises(TransportError, match=r"cannot allocate 4096 bytes of .*other: No such file"):
        DmaHeap(4096, "other", tmp_path)


# PCIe.


def test_pcie_runs_a_network(board: AxiBoard, tmp_path: Path, digits: Program) -> None:
    make_pcie(tmp_path)
    wire = Wire(board.path)
    paths: list[Path] = []

    def registers(path: Path, start: int, inside: int) -> Wire:
        assert (start, inside) == (0, 0x10000)
        paths.append(path)
        return wire

    def interrupt(path: Path) -> Wire:
        paths.append(path)
        return wire

    transport = PcieTransport(
        "0000:01:00.0", size=SIZE, base=BASE, registers=0x10000, event=2, root=tmp_path, open_registers=registers,
        open_interrupt=interrupt,
    )  # fmt: skip
    with BoardDevice(transport, TINY) as device:
        assert [p.name for p in paths] == ["resource0", "xdma1_events_2"]
        inputs = tw.random_inputs(digits)
        expected = tw.Device("functional").run(digits, inputs)
        outputs = Executor(digits, device).run(inputs).outputs
        assert all(np.array_equal(outputs[name], expected[name]) for name in expected)
        assert wire.interrupts >= 1
        check_copy(device)
    assert not board.below.any()


def test_what_pcie_needs(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match=r"no PCIe card in slot 0000:02:00.0"):
        find_xdma("0000:02:00.0", tmp_path)
    make_pcie(tmp_path)
    assert find_xdma("0000:01:00.0", tmp_path) == "xdma1"
    put(tmp_path / "sys/bus/pci/devices/0000:03:00.0/resource0", "")
    with pytest.raises(TransportError, match="has no XDMA device files; is the xdma module loaded"):
        find_xdma("0000:03:00.0", tmp_path)
    transport = PcieTransport("0000:01:00.0", size=SIZE, root=tmp_path)
    with pytest.raises(TransportError, match="cannot map the registers"):
        BoardDevice(transport)


# Addresses.


@pytest.mark.parametrize(
    "address, text",
    [
        ("", "a board is given as one of serial:/dev/ttyUSB0, uio:npu0, pcie:0000:01:00.0, socket:"),
        ("usb:1", "not 'usb:1'"),
        ("serial:", "not 'serial:'"),
        ("serial:/dev/x?speed=3", "unknown option 'speed'; options: baud, seconds, words"),
        ("serial:/dev/x?baud=fast", "option baud cannot be 'fast'"),
        ("serial:/dev/x?words=999", r"words must be 1\.\.256, not 999"),
        ("socket:/x?seconds=-1", "option seconds cannot be '-1'"),
        ("pcie:0000:01:00.0", r"option size is needed, as in pcie:0000:01:00.0\?size=64M"),
        ("pcie:9999:01:00.0?size=1G&base=0x100", "no PCIe card in slot 9999:01:00.0"),
    ],
)
def test_addresses_that_cannot_be(address: str, text: str) -> None:
    with pytest.raises(TransportError, match=text):
        open_transport(address)
