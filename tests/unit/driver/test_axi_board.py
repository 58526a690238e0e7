"""The driver on the Verilated NPU behind a socket: bytes, counters, resident programs, what is refused.

Faults are in test_faults.py, for this transport and others.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.common.board_jobs import copy_job
from tilewright.common.allocator import MemoryFull
from tilewright.driver.address import open_transport
from tilewright.driver.board import BoardDevice, probe
from tilewright.driver.errors import ProbeError, TransportError
from tilewright.driver.transport.socket import SocketTransport
from tilewright.fpga.sim.axi import AxiBoard
from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import preset
from tilewright.isa.device import DeviceError, Region
from tilewright.isa.program import Program

pytestmark = pytest.mark.cosim
TINY = preset("tiny")


def address(board: AxiBoard) -> str:
    return f"socket:{board.path}"


def device(board: AxiBoard, **options: float) -> BoardDevice:
    return BoardDevice(open_transport(address(board)), TINY, **options)


def test_probe(axi: AxiBoard) -> None:
    info = probe(SocketTransport(axi.path))
    assert (info.problem, info.config, info.fingerprint, info.state) == ("", "tiny", TINY.fingerprint, "idle")
    assert (info.base, info.size) == (axi.base, axi.size)


def test_a_network_gives_the_bytes_and_counters_of_the_others(axi: AxiBoard, digits: Program) -> None:
    inputs = tw.random_inputs(digits, 3)
    expected = tw.Device("functional").run(digits, inputs)
    rtl = tw.Device("rtl")
    rtl.run(digits, inputs)
    with tw.Device(f"board://{address(axi)}") as runner:
        for _ in range(2):
            outputs = runner.run(digits, inputs)
            assert all(np.array_equal(outputs[name], expected[name]) for name in expected)
            # Cycles differ by the alignment of the program's and constants' addresses to burst borders alone.
            ours, theirs = runner.counters, rtl.counters
            assert ours is not None and theirs is not None and ours.cycles is not None and theirs.cycles is not None
            assert (ours.macs, ours.bytes_written, ours.instructions) == (
                theirs.macs, theirs.bytes_written, theirs.instructions
            )  # fmt: skip
            assert abs(ours.cycles - theirs.cycles) < theirs.cycles / 50
    assert not axi.below.any()


def test_counters_equal_the_rtl_device(axi: AxiBoard) -> None:
    board, rtl = device(axi), RtlDevice(TINY)
    jobs = copy_job(board), copy_job(rtl)
    assert jobs[0].run(bytes(range(256))) == jobs[1].run(bytes(range(256)))
    assert jobs[0].counters == jobs[1].counters
    board.close()


def test_memory_is_zeroed_and_checked(axi: AxiBoard) -> None:
    with device(axi) as board:
        first = board.allocate(1000)
        board.write(first, b"\xff" * 1000)
        board.free(first)
        assert board.allocate(1000) == first
        board.write(first + 7, b"abc")
        assert board.read(first, 1000).tobytes() == bytes(7) + b"abc" + bytes(990)
        with pytest.raises(MemoryFull, match="bytes asked for"):
            board.allocate(axi.size)
        with pytest.raises(ValueError, match="outside the device memory"):
            board.read(axi.base - 1, 1)
        with pytest.raises(ValueError, match="outside the device memory"):
            board.write(axi.base + axi.size - 1, b"ab")


@pytest.mark.parametrize(
    "regions, offset, text",
    [
        ([Region()] * 9, 0, "at most 8 regions"),
        ([Region(2, 16)], 0, "base must be a multiple of 4"),
        ([Region(64, 16)], 8, "program offset must be a multiple of 16"),
    ],
)
def test_what_registers_cannot_express(axi: AxiBoard, regions: list[Region], offset: int, text: str) -> None:
    with device(axi) as board, pytest.raises(DeviceError, match=text):
        board.run(regions, 0, offset, 1)


def test_a_runner_opens_a_board_again(axi: AxiBoard, digits: Program) -> None:
    inputs = tw.random_inputs(digits)
    expected = tw.Device("functional").run(digits, inputs)
    with tw.Device(f"board://{address(axi)}") as runner:
        runner.run(digits, inputs)
        executor = runner.load(digits)
        executor.device.close()  # as after a link that broke
        assert all(np.array_equal(v, expected[n]) for n, v in runner.run(digits, inputs).items())


def test_other_processes_wait_their_turn(axi: AxiBoard, digits: Program, tmp_path: Path) -> None:
    """Three processes run the network at once; all get the right bytes."""
    file = tmp_path / "digits.twp"
    digits.save(file)
    code = (
        "import sys, hashlib, tilewright as tw\n"
        f"p = tw.load({str(file)!r})\n"
        f"out = tw.Device('board://{address(axi)}').run(p, tw.random_inputs(p, int(sys.argv[1])))\n"
        "print(out['output'].tobytes().hex())\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(seed)], stdout=subprocess.PIPE, text=True)
        for seed in range(3)
    ]
    for seed, process in enumerate(running):
        expected = tw.Device("functional").run(digits, tw.random_inputs(digits, seed))["output"]
        assert process.communicate()[0].strip() == expected.tobytes().hex()


# Several programs.


def test_programs_stay_resident(axi: AxiBoard, digits: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tw.compile(Path("examples/digits/digits_int8.onnx"), config="tiny", keep="all")
    again = Program.from_bytes(digits.to_bytes())
    written: list[int] = []
    write = SocketTransport.write

    def counted(self: SocketTransport, at: int, data: np.ndarray) -> None:
        written.append(data.size)
        write(self, at, data)

    monkeypatch.setattr(SocketTransport, "write", counted)
    inputs = tw.random_inputs(digits)
    expected = tw.Device("functional").run(digits, inputs)
    with tw.Device(f"board://{address(axi)}") as runner:
        for program in (digits, other):
            runner.run(program, inputs)
        assert sum(written) > len(digits.constants) + len(other.constants)
        for program in (digits, other, again, digits):
            written.clear()
            outputs = runner.run(program, inputs)
            assert sum(written) < 500 and all(np.array_equal(v, expected[n]) for n, v in outputs.items())


def test_the_oldest_program_makes_room(tmp_path: Path, digits: Program) -> None:
    inputs = tw.random_inputs(digits)
    programs = [replace(digits, name=f"digits{i}") for i in range(4)]
    expected = tw.Device("functional").run(digits, inputs)
    room = 2 * (len(digits.instructions) + len(digits.constants) + digits.arena_bytes) + 4096
    with AxiBoard(TINY, tmp_path / "small.sock", size=room) as board, tw.Device(f"board://{address(board)}") as runner:
        for program in (*programs, *programs):
            assert all(np.array_equal(v, expected[n]) for n, v in runner.run(program, inputs).items())
    with AxiBoard(TINY, tmp_path / "tiny.sock", size=16384) as board, tw.Device(f"board://{address(board)}") as runner:
        with pytest.raises(MemoryFull, match=r"digits_int8 needs .* bytes of device memory: device memory is full"):
            runner.run(digits, inputs)


# What must be refused.


def test_another_configuration_is_refused(axi: AxiBoard, digits: Program) -> None:
    with pytest.raises(ProbeError) as info:
        BoardDevice(open_transport(address(axi)), preset("small"))
    text = str(info.value)
    assert "'tiny'" in text and TINY.fingerprint in text and preset("small").fingerprint in text
    assert "load the bitstream of 'small', or compile for 'tiny'" in text
    with tw.Device(f"board://{address(axi)}", config="tiny") as runner:
        assert runner.config == TINY


@pytest.mark.parametrize(
    "register, value, text",
    [("IDENTITY", 0xFFFFFFFF, "no Tilewright NPU answers: IDENTITY reads 0xffffffff"), ("VERSION", 9, "version 9")],
)
def test_what_is_no_npu_is_refused(
    axi: AxiBoard, monkeypatch: pytest.MonkeyPatch, register: str, value: int, text: str
) -> None:
    from tilewright.isa.registers import REGISTER

    read = SocketTransport.read_registers

    def changed(self: SocketTransport, offset: int, count: int) -> list[int]:
        values = read(self, offset, count)
        values[REGISTER[register].offset // 4] = value
        return values

    monkeypatch.setattr(SocketTransport, "read_registers", changed)
    with pytest.raises(ProbeError, match=text):
        device(axi)
    assert text in probe(SocketTransport(axi.path)).problem


def test_a_dead_socket(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="there is no such socket"):
        BoardDevice(SocketTransport(tmp_path / "none"))
    with AxiBoard(TINY, tmp_path / "npu.sock") as board:
        held = device(board)
    with pytest.raises(TransportError, match="the connection broke"):
        held.read(held.transport.base, 4)
    assert held.closed
