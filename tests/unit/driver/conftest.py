"""Simulated boards, and clients in processes of their own."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tilewright as tw
from tests.common.board_networks import digits_model, small_model
from tests.common.paths import ROOT
from tilewright.fpga.sim.axi import AxiBoard
from tilewright.isa.config import preset
from tilewright.isa.program import Program


@pytest.fixture
def axi(tmp_path: Path) -> Iterator[AxiBoard]:
    """An NPU `tiny` and its memory behind a socket."""
    with AxiBoard(preset("tiny"), tmp_path / "npu.sock", size=1 << 20) as board:
        yield board


@pytest.fixture(scope="session")
def digits() -> Program:
    """The digits network for `tiny`."""
    return tw.compile(digits_model(), config="tiny")


@pytest.fixture(scope="session")
def small() -> Program:
    """The network of 3 KB for `tiny`."""
    return tw.compile(small_model(), config="tiny")


@pytest.fixture
def client() -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts a process that runs an endless job on the board behind a transport, an expression, until it is killed."""
    started: list[subprocess.Popen] = []

    def start(transport: str) -> subprocess.Popen:
        code = (
            "from pathlib import Path, PosixPath\n"
            "from tilewright.driver.address import open_transport; from tilewright.driver.board import BoardDevice\n"
            "from tests.common.board_jobs import endless_job, in_mid_run; from tests.common.linux_boards import Way\n"
            f"device = BoardDevice({transport})\n"
            "in_mid_run(device, lambda: print('running', flush=True), looks=1)\n"
            "endless_job(device).run(seconds=3600)\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell hands down "ignore"
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "running\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
