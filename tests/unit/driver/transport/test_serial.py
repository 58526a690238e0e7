"""The driver on the Verilated SoC behind a pseudo-terminal: every byte goes through the UART of the bitstream.

Frames are lost, doubled and damaged on purpose: a run ends with the right bytes or with one clear error.
"""

import os
import random
import signal
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tilewright as tw
from tests.common.board_jobs import Job, at_command, check_copy, copy_job, endless_job, in_mid_run, waiting_job
from tests.common.board_networks import MODELS
from tilewright.driver.board import BoardDevice, probe
from tilewright.driver.errors import BoardReset, BusyError, TransportError
from tilewright.driver.transport.serial import SerialTransport
from tilewright.fpga.board import SDRAM
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.sim.pty import SerialBoard, board_line, soc_line
from tilewright.fpga.uart_board import BLOCK_RAM_TIMING
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.device import DeviceError, Region
from tilewright.isa.encoding import op
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import Memory
from tilewright.isa.link.serial import FLAG, Command, Request
from tilewright.isa.program import Program
from tilewright.isa.timing import MemoryTiming
from tilewright.measure.clock import at_board
from tilewright.runtime.cost import run_npu_steps
from tilewright.simulator.cycle import CycleDevice

pytestmark = pytest.mark.cosim
TINY = preset("tiny")
CLOCK, BAUD, MEMORY = 24_000_000, 3_000_000, 1 << 16  # 8 cycles a bit, the fewest there may be
SECONDS = 60.0  # for an answer: the simulation is some hundred times slower than a board, and this machine may be busy


def make_board(**bytes_changed: Callable[[bytes], bytes]) -> SerialBoard:
    return SerialBoard(soc_line(TINY, memory_bytes=MEMORY, clock_hz=CLOCK, baud=BAUD), **bytes_changed)


@pytest.fixture
def board() -> Iterator[SerialBoard]:
    with make_board() as made:
        yield made


def device(board: SerialBoard, seconds: float = SECONDS, **options: float) -> BoardDevice:
    return BoardDevice(SerialTransport(board.path, seconds=seconds), TINY, **({"reset_seconds": SECONDS} | options))


NETWORKS = ["small", pytest.param("digits", marks=pytest.mark.long)]
#: How far the cycles by the rule for a memory may be from those of the SoC: it knows no refresh and no rows, and in a
#: run of some 3,500 cycles, where few loads follow each other, a latency that differs from burst to burst counts.
NEAR = {"small": 0.03, "digits": 0.005}


def check_cycles(runner: tw.Runner, network: str, program: Program, timing: MemoryTiming) -> None:
    """Cycles of a run on the SoC agree with the cycle-level simulator with the rule for its memory."""
    by_rule = run_npu_steps(program, CycleDevice(program.config, timing, functional=False)).cycles
    assert runner.counters is not None and runner.counters.cycles == pytest.approx(by_rule, rel=NEAR[network])


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_gives_the_bytes_of_the_functional_simulator(
    board: SerialBoard, request: pytest.FixtureRequest, network: str
) -> None:
    program: Program = request.getfixturevalue(network)
    info = probe(SerialTransport(board.path, seconds=SECONDS))
    assert (info.config, info.state, info.base, info.size) == ("tiny", "idle", 0, MEMORY)
    assert info.details["board"] == "SIMU" and info.details["clock"] == "24 MHz"
    with tw.Device(f"board://serial:{board.path}?seconds={SECONDS}&baud={BAUD}") as runner:
        for seed in range(2):
            inputs = tw.random_inputs(program, seed)
            expected = tw.Device("functional").run(program, inputs)
            outputs = runner.run(program, inputs)
            assert all(np.array_equal(outputs[name], expected[name]) for name in expected)
        check_cycles(runner, network, program, BLOCK_RAM_TIMING)
        assert runner.load(program).device.transport.repeats == 0


@pytest.mark.parametrize(
    "name, config", [pytest.param("ulx3s_85f", TINY, marks=pytest.mark.long), ("tang_nano_20k", preset("nano"))]
)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_in_the_sdram_of_a_board(network: str, name: str, config: NpuConfig) -> None:
    """The SoC of `fpga build --board NAME --memory sdram` with a chip at its pins: the bytes of the functional
    simulator, both ends of the chip keep theirs, and the chip saw nothing it does not allow."""
    program = tw.compile(MODELS[network](), config)
    chip = BOARDS[name].sdram
    assert chip is not None
    line, baud = board_line(BOARDS[name], config, SDRAM)
    rng = np.random.default_rng(1)
    with SerialBoard(line) as board:
        with BoardDevice(SerialTransport(board.path, baud=baud, seconds=SECONDS), config) as dev:
            size = dev.transport.size
            assert size == chip.size
            data = rng.integers(0, 256, 1500, np.uint8)
            for address in (3, size - data.size):
                dev.write(address, data)
                assert np.array_equal(dev.read(address, data.size), data)
        with tw.Device(f"board://serial:{board.path}?seconds={SECONDS}&baud={baud}") as runner:
            inputs = tw.random_inputs(program, 0)
            expected = tw.Device("functional").run(program, inputs)
            outputs = runner.run(program, inputs)
            assert all(np.array_equal(outputs[name], expected[name]) for name in expected)
            check_cycles(runner, network, program, at_board(name, config, memory=SDRAM)[1])
        assert line.sdram_fault == 0


def test_memory_at_any_address(board: SerialBoard) -> None:
    rng = np.random.default_rng(1)
    with device(board) as dev:
        base = dev.allocate(3000)
        expected = np.zeros(3000, np.uint8)
        for start, size in ((1, 1), (7, 2), (64, 64), (130, 1), (131, 5), (1000, 1025), (2997, 3)):
            data = rng.integers(0, 256, size, np.uint8)
            expected[start : start + size] = data
            dev.write(base + start, data)
            assert np.array_equal(dev.read(base + start, size), data)
        assert np.array_equal(dev.read(base, 3000), expected)


def test_errors(board: SerialBoard) -> None:
    with device(board) as dev:
        with pytest.raises(DeviceError, match=r"WATCHDOG: LOAD at instruction 0 \(LOAD_SYNC\)"):
            waiting_job(dev).run(watchdog=500)
        job = Job(dev, [op("LOAD_DIM", count=1), op("LOAD", region=1, target=Memory.ACT, count=4), op("END")])
        job.regions[1] = Region(MEMORY + 64, 64, read=True)
        with pytest.raises(DeviceError, match=f"address 0x{MEMORY + 64:x} was answered with an error") as info:
            job.run()
        assert info.value.code == ErrorCode.BUS_READ
        with pytest.raises(DeviceError, match=r"still busy after 1 s .*ready again"):
            endless_job(dev).run(seconds=1)
        check_copy(dev)


def test_a_hard_reset_where_a_soft_one_does_not_help(board: SerialBoard) -> None:
    asked = []

    def lost(reset: Callable[[], None]) -> None:
        asked.append(reset)
        dev.reset_seconds = 0.3  # of the soft one, which is not to come

    def hard_reset() -> bool:
        dev.reset_seconds = SECONDS
        return reset()

    with device(board) as dev:
        at_command(dev, "SOFT_RESET", lost)
        reset, dev.transport.hard_reset = dev.transport.hard_reset, hard_reset  # type: ignore[method-assign]
        with pytest.raises(DeviceError, match=r"still busy after .*ready again"):
            endless_job(dev).run(seconds=0.3)
        assert len(asked) == 1
        check_copy(dev)


def test_a_reset_of_the_board_in_mid_run(board: SerialBoard) -> None:
    with device(board) as dev:
        job = endless_job(dev)
        in_mid_run(dev, board.reset)
        with pytest.raises(BoardReset, match="the board was reset or its bitstream loaded anew"):
            job.run(seconds=3600)
    with device(board) as dev:
        check_copy(dev)


def test_a_killed_client(board: SerialBoard, client: Callable[..., subprocess.Popen]) -> None:
    process = client(f"open_transport('serial:{board.path}?seconds={SECONDS}')")
    with pytest.raises(BusyError, match="in use by another process"):
        device(board, wait=0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # It also left half a frame on the line.
    line = os.open(board.path, os.O_WRONLY | os.O_NOCTTY)
    os.write(line, Request(Command.WRITE_NPU, 1, 0x10, 1, struct.pack("<I", 1)).to_bytes()[:-4])
    os.close(line)
    with device(board) as dev:
        check_copy(dev)


def test_an_interrupted_run_is_stopped(board: SerialBoard, client: Callable[..., subprocess.Popen]) -> None:
    """Ctrl-C may come in the middle of a frame."""
    process = client(f"open_transport('serial:{board.path}?seconds={SECONDS}')")
    process.send_signal(signal.SIGINT)
    assert process.wait() != 0
    assert probe(SerialTransport(board.path, seconds=SECONDS)).state == "idle"


def test_threads_take_turns(board: SerialBoard) -> None:
    with device(board) as dev:
        jobs = [copy_job(dev) for _ in range(3)]
        right: list[int] = []

        def work(number: int) -> None:
            data = bytes([number]) * 256
            right.extend(number for _ in range(2) if jobs[number].run(data) == data)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(right) == [0, 0, 1, 1, 2, 2]


def test_an_unplugged_adapter(board: SerialBoard) -> None:
    with device(board) as dev:
        job = endless_job(dev)
        in_mid_run(dev, board.close)
        with pytest.raises(TransportError, match="the port failed"):
            job.run(seconds=3600)
        assert dev.closed
    master, slave = os.openpty()
    transport = SerialTransport(os.ttyname(slave))
    os.close(master)
    os.close(slave)
    with pytest.raises(TransportError, match="the port failed: Input/output error"):
        transport.connect()
    transport.close()


def test_nobody_at_the_other_end() -> None:
    master, slave = os.openpty()
    with pytest.raises(TransportError, match="no serial bridge answers"):
        BoardDevice(SerialTransport(os.ttyname(slave), seconds=0.05))
    os.close(master)
    os.close(slave)
    with pytest.raises(TransportError, match="cannot open at 9600 baud: No such file or directory"):
        SerialTransport("/dev/no-such-tty", baud=9600)


# Bad lines.


class BadLine:
    """Loses, doubles or changes bytes."""

    def __init__(self, seed: int, rate: float) -> None:
        self._random, self._rate = random.Random(seed), rate
        self.kinds = {"lost": 0, "doubled": 0, "changed": 0}

    def __call__(self, data: bytes) -> bytes:
        out = bytearray()
        for byte in data:
            if self._random.random() >= self._rate:
                out.append(byte)
                continue
            kind = self._random.choice(list(self.kinds))
            self.kinds[kind] += 1
            if kind == "doubled":
                out += bytes([byte, byte])
            elif kind == "changed":
                out.append(byte ^ 1 << self._random.randrange(8))
        return bytes(out)


@pytest.mark.parametrize("seed, rate", [(1, 1 / 1000), pytest.param(2, 1 / 300, marks=pytest.mark.long)])
def test_a_bad_line(seed: int, rate: float) -> None:
    """A job over a noisy line ends with its bytes, or says why it does not."""
    there, back = BadLine(seed, rate), BadLine(seed + 100, rate)
    done = 0
    with make_board(to_board=there, to_host=back) as board:
        for attempt in range(3):
            try:
                transport = SerialTransport(board.path, seconds=0.4, words=16)
                with BoardDevice(transport, TINY) as dev:
                    job = copy_job(dev)
                    for i in range(4):
                        data = random.Random(1000 * seed + 10 * attempt + i).randbytes(256)
                        assert job.run(data) == data
                        done += 1
                    assert transport.repeats > 0
                break
            except TransportError as error:
                assert str(error).startswith("serial:") and "\n" not in str(error)
    assert done > 0 and sum(there.kinds.values()) > 0 and sum(back.kinds.values()) > 0


def test_whole_frames_lost_and_doubled() -> None:
    """Every third frame either way is lost, every fourth comes twice; START still happens once a run."""
    frames = 0

    def change(data: bytes) -> bytes:
        nonlocal frames
        out = bytearray()
        for byte in data:
            held.append(byte)
            if byte == FLAG and len(held) > 1:
                frames += 1
                out += b"" if frames % 3 == 0 else bytes(held) * (1 + (frames % 4 == 0))
                held.clear()
        return bytes(out)

    held = bytearray()
    with make_board(to_board=change) as board, device(board, seconds=0.4) as dev:
        job = copy_job(dev)
        for seed in range(3):
            data = random.Random(seed).randbytes(256)
            assert job.run(data) == data
            assert job.counters.bytes_written == 256
        assert dev.transport.repeats > 3
