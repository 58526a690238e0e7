"""Faults of boards, on every transport to an AXI bus: the Verilated NPU behind a socket, UIO and PCIe.

Each test breaks something, wants one clear error, and then a run with the right bytes. The serial line has faults of
its own (transport/test_serial.py).
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.common.board_jobs import SIZE as COPIED
from tests.common.board_jobs import (
    Job,
    at_command,
    check_copy,
    copy_job,
    endless_job,
    in_mid_run,
    state,
    waiting_job,
)
from tests.common.linux_boards import BASE, DRAM, SIZE, SOCKET, Way, Wire
from tests.common.side_by_side import side_by_side
from tilewright.driver.board import BoardDevice, probe
from tilewright.driver.errors import BoardReset, BusyError, TransportError
from tilewright.driver.mapped import UIO_REARM, ReadableInterrupt
from tilewright.fpga.sim.axi import AxiBoard
from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import preset
from tilewright.isa.device import DeviceError, Region
from tilewright.isa.encoding import Op, op
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import Engine, Memory
from tilewright.isa.program import Program
from tilewright.runtime.devices import Runner
from tilewright.runtime.executor import Executor

pytestmark = pytest.mark.cosim
TINY = preset("tiny")
PATIENT = 120.0  # seconds for what must happen, however busy this machine is


@pytest.fixture
def board(tmp_path: Path) -> Iterator[AxiBoard]:
    with AxiBoard(TINY, tmp_path / SOCKET, base=BASE, size=SIZE, memory_file=tmp_path / DRAM) as made:
        yield made


def make_way(kind: str, root: Path) -> Way:
    way = Way(kind, root)
    way.make()
    return way


@pytest.fixture(params=["socket", "uio", "pcie"])
def way(request: pytest.FixtureRequest, tmp_path: Path, board: AxiBoard) -> Way:
    return make_way(request.param, tmp_path)


@pytest.fixture(params=["uio", "pcie"])
def linux(request: pytest.FixtureRequest, tmp_path: Path, board: AxiBoard) -> Way:
    """The ways whose registers and interrupt are the kernel's."""
    return make_way(request.param, tmp_path)


def device(way: Way, **options: float) -> BoardDevice:
    return BoardDevice(way.open(), TINY, **({"reset_seconds": PATIENT} | options))


# Errors of programs.


def test_errors_are_decoded_and_the_board_goes_on(way: Way) -> None:
    with device(way) as board:
        closed = Job(board, [op("LOAD_DIM", count=1), op("LOAD", region=5, count=1), op("END")])
        cases = [
            (waiting_job(board), {"watchdog": 500}, ErrorCode.WATCHDOG, Engine.LOAD, 0, "LOAD_SYNC"),
            (endless_job(board), {"timeout": 3000}, ErrorCode.TIMEOUT, Engine.FETCH, None, "takes longer"),
            (closed, {}, ErrorCode.WINDOW, Engine.LOAD, 1, r"LOAD at instruction 1 \(LOAD\): address 0x0"),
        ]  # fmt: skip
        for job, options, code, engine, pc, text in cases:
            with pytest.raises(DeviceError, match=text) as info:
                job.run(**options)
            assert (info.value.code, info.value.engine) == (code, engine)
            assert pc is None or info.value.pc == pc
            check_copy(board)


@pytest.mark.parametrize(
    "access, code",
    [
        ([op("LOAD_DIM", count=1), op("LOAD", region=1, target=Memory.ACT, count=4)], ErrorCode.BUS_READ),
        ([op("STORE", region=1, row=0, count=4)], ErrorCode.BUS_WRITE),
    ],
    ids=["read", "write"],
)
def test_a_bus_error_names_the_address(way: Way, access: list[Op], code: ErrorCode) -> None:
    beyond = BASE + SIZE
    with device(way) as board:
        job = Job(board, [*access, op("END")])
        with pytest.raises(DeviceError, match=f"address 0x{beyond:x} was answered with an error") as info:
            board.run([job.regions[0], Region(beyond, 64, read=True, write=True)], 0, 0, job.count)
        assert (info.value.code, info.value.address) == (code, beyond)
        check_copy(board)


def test_the_layer_is_named(way: Way, digits: Program) -> None:
    layer = digits.layers[1]
    words = bytearray(digits.instructions)
    words[INSTRUCTION_BYTES * (layer.first + 1)] = 0xEE
    broken = replace(digits, instructions=bytes(words))
    with Runner("board", TINY, lambda config: device(way)) as runner:
        with pytest.raises(DeviceError, match="ILLEGAL_OPCODE") as info:
            runner.run(broken, tw.random_inputs(broken))
        assert layer.name in str(info.value) and f"instruction {layer.first + 1}" in str(info.value)
        outputs = runner.run(digits, tw.random_inputs(digits))
        expected = tw.Device("functional").run(digits, tw.random_inputs(digits))
        assert all(np.array_equal(outputs[n], expected[n]) for n in expected)


def test_counters_equal_the_rtl_device(way: Way) -> None:
    with device(way) as board:
        jobs = copy_job(board), copy_job(RtlDevice(TINY))
        assert jobs[0].run(bytes(range(256))) == jobs[1].run(bytes(range(256)))
        assert jobs[0].counters == jobs[1].counters


# Boards that misbehave.


def test_a_run_without_end_is_given_up(way: Way) -> None:
    with device(way, seconds=0.3) as board:
        with pytest.raises(DeviceError, match=r"still busy after 0\.3 s .*ready again") as info:
            endless_job(board).run()
        assert info.value.code == ErrorCode.TIMEOUT
        check_copy(board)


def test_a_stuck_bus_is_reported_and_may_recover(way: Way, board: AxiBoard) -> None:
    with device(way, reset_seconds=0.2) as dev:
        job = copy_job(dev)
        board.stick()
        with pytest.raises(DeviceError, match="the bus does not answer the NPU; load the bitstream anew"):
            job.run(b"x" * COPIED, seconds=0.3)
        board.stick(False)
        dev.reset_seconds = PATIENT
        check_copy(dev)


def test_a_stuck_bus_is_found_by_the_next_process(way: Way, board: AxiBoard) -> None:
    with device(way, reset_seconds=0.2) as dev:
        board.stick()
        with pytest.raises(DeviceError, match="load the bitstream anew"):
            copy_job(dev).run(b"x" * COPIED, seconds=0.3)
    with pytest.raises(DeviceError, match="the reset does not end"):
        device(way, reset_seconds=0.2)
    assert probe(way.open()).state in ("busy", "resetting")
    board.stick(False)
    with device(way) as dev:
        check_copy(dev)


def test_a_reset_in_mid_run(way: Way, board: AxiBoard) -> None:
    with device(way) as dev:
        job = endless_job(dev)
        threading.Timer(0.3, board.reset).start()
        with pytest.raises(BoardReset, match="the NPU was reset during the run"):
            job.run()
        with pytest.raises(TransportError, match="the device is closed"):
            job.run()
    with device(way) as dev:
        check_copy(dev)


def test_a_killed_client_leaves_the_board_usable(way: Way, client: Callable[..., subprocess.Popen]) -> None:
    process = client(f"{way!r}.open()")
    with pytest.raises(BusyError, match="in use by another process"):
        device(way, wait=0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with device(way) as board:
        check_copy(board)


def test_an_interrupted_run_is_stopped(way: Way, client: Callable[..., subprocess.Popen]) -> None:
    process = client(f"{way!r}.open()")
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENT) != 0
    assert probe(way.open()).state == "idle"


def test_an_interrupt_while_start_is_on_its_way(way: Way) -> None:
    def interrupted(start: Callable[[], None]) -> None:
        start()
        raise KeyboardInterrupt

    with device(way) as dev:
        job = endless_job(dev)
        at_command(dev, "START", interrupted)
        with pytest.raises(KeyboardInterrupt):
            job.run()
        assert state(dev) == "idle"
    with device(way) as dev:
        check_copy(dev)


# Several programs, several callers.


def test_threads_take_turns(way: Way) -> None:
    with device(way) as board:
        jobs = [copy_job(board) for _ in range(4)]
        wrong: list[int] = []

        def work(number: int) -> None:
            data = bytes([number]) * COPIED
            for _ in range(8):
                if jobs[number].run(data) != data:
                    wrong.append(number)

        side_by_side(work)
        assert not wrong


def test_programs_side_by_side(way: Way, digits: Program) -> None:
    """Each keeps its memory while the other runs."""
    inputs = [tw.random_inputs(digits, seed) for seed in range(2)]
    expected = [tw.Device("functional").run(digits, i) for i in inputs]
    with device(way) as board:
        resident = [Executor(program, board) for program in (digits, replace(digits, name="other"))]
        for executor, which in itertools.product(resident, (0, 1)):
            outputs = executor.run(inputs[which]).outputs
            assert all(np.array_equal(outputs[n], expected[which][n]) for n in outputs)


# Faults of what the kernel hands out.


def test_lost_interrupts_cost_time_only(linux: Way, board: AxiBoard) -> None:
    wire = Wire(board.path)
    wire.deaf = True
    with BoardDevice(linux.open(wire), TINY) as dev:
        check_copy(dev)
        assert wire.interrupts == 0


def test_a_board_that_falls_off_its_bus(linux: Way, board: AxiBoard) -> None:
    """Registers that read all ones look busy; that is no reason to wait for the end of the run."""
    wire = Wire(board.path)
    with BoardDevice(linux.open(wire), TINY, seconds=3600) as dev:
        job = endless_job(dev)
        in_mid_run(dev, wire.fall)
        with pytest.raises(TransportError, match="STATUS reads 0xffffffff: the board is gone from its bus"):
            job.run()
        assert dev.closed
    assert "IDENTITY reads 0xffffffff" in probe(linux.open(wire)).problem
    with device(linux) as dev:
        check_copy(dev)


@pytest.mark.parametrize(
    "channel, there, text",
    [
        ("h2c", "/dev/full", "writing failed at address 0x3000.*: No space left on device"),
        ("c2h", "/", "reading failed at address 0x3000.*: Is a directory"),
        ("c2h", "/dev/null", "reading stopped at address 0x3000"),
    ],
)
def test_a_dma_channel_that_fails(channel: str, there: str, text: str, tmp_path: Path, board: AxiBoard) -> None:
    card = make_way("pcie", tmp_path)
    file = tmp_path / f"dev/xdma1_{channel}_0"
    file.unlink()
    file.symlink_to(there)
    with BoardDevice(card.open(), TINY) as dev:
        with pytest.raises(TransportError, match=text):
            check_copy(dev)
        assert dev.closed
    file.unlink()
    file.symlink_to(tmp_path / DRAM)
    with device(card) as dev:
        check_copy(dev)


def test_an_interrupt_file_that_fails(tmp_path: Path) -> None:
    """An interrupt file fails as that of a UIO device whose driver was unbound."""
    file = tmp_path / "uio0"
    file.symlink_to("/dev/full")
    interrupt = ReadableInterrupt(file, UIO_REARM)
    with pytest.raises(TransportError, match="uio0: the interrupt failed: No space left on device"):
        interrupt.wait(0.01)
    interrupt.close()
