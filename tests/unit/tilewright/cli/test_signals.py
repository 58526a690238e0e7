"""Long commands that have processes of their own end at one signal, and leave none of them behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.common.paths import ROOT
from tests.common.waiting import HANG
from tilewright import zoo

TUNE = ["tune", "net.onnx", "--budget", "1000", "--jobs", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("signals")
    model = zoo.build_quantized("resnet8")
    (found / "net.onnx").write_bytes(model.SerializeToString())
    return found


def workers(command: subprocess.Popen[str]) -> list[psutil.Process]:
    """Python processes the command has started; one that ends while it is looked at is none."""
    found = []
    for process in psutil.Process(command.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "python" in process.name() and not any("resource_tracker" in a for a in process.cmdline()):
                found.append(process)
    return found


def running(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL]
)
def test_nothing_is_left(folder: Path, tmp_path: Path, number: signal.Signals) -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "tilewright", *TUNE],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"TILEWRIGHT_TUNING": str(tmp_path / "log"), "TILEWRIGHT_PROGRAM_CACHE": "off",
                          "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        found: list[psutil.Process] = []
        while len(found) < 2:
            assert command.poll() is None, command.communicate()
            found = workers(command)
            time.sleep(0.05)
        command.send_signal(number)
        _, errors = command.communicate(timeout=HANG)
        if number == signal.SIGINT:  # it keeps what it has found
            assert command.returncode == 0, errors
        else:
            assert command.returncode == (-number if number == signal.SIGKILL else 128 + number)
        assert "Traceback" not in errors
        while any(running(p) for p in found):  # a machine under load may take a while
            time.sleep(0.05)
    finally:
        command.kill()


#: A command whose native code does not come back to Python for a quarter of an hour.
NATIVE = """
import hashlib
from tilewright.cli import cli
import click

@cli.command("work")
def work():
    print("at work", flush=True)
    hashlib.pbkdf2_hmac('sha256', b'', b'', (1 << 31) - 1)

cli(["work"])
"""


@pytest.mark.slow
def test_native_code_is_interrupted() -> None:
    """Calls that give the interpreter's lock back, as all long ones do."""
    command = subprocess.Popen(
        [sys.executable, "-c", NATIVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert command.stdout is not None and command.stdout.readline() == "at work\n"
    before = psutil.Process(command.pid).cpu_times().user
    while psutil.Process(command.pid).cpu_times().user < before + 0.2:  # it is in the native code
        time.sleep(0.01)
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=HANG)
    assert command.returncode == 130 and errors == "tilewright: error: interrupted\n"


#: A command with a temporary folder and a file that is half written.
SCRATCH = """
import hashlib, sys, time
from pathlib import Path
from tilewright.common import store, temporary
from tilewright.cli import cli

@cli.command("work")
def work():
    with temporary.Folder(dir=sys.argv[1]) as folder, store.writing(Path(sys.argv[1]) / "result") as file:
        (Path(folder) / "values").write_bytes(b"x")
        print("at work", flush=True)
        if sys.argv[2] == "native":
            hashlib.pbkdf2_hmac('sha256', b'', b'', (1 << 31) - 1)
        time.sleep(900)

cli(["work"])
"""


@pytest.mark.medium
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("where", ["python", "native"])
def test_temporary_files_go_with_the_process(where: str, number: signal.Signals, tmp_path: Path) -> None:
    def usual() -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)

    command = subprocess.Popen(
        [sys.executable, "-c", SCRATCH, str(tmp_path), where],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=usual,
    )  # fmt: skip
    assert command.stdout is not None and command.stdout.readline() == "at work\n"
    assert len(list(tmp_path.iterdir())) == 2
    command.send_signal(number)
    _, errors = command.communicate(timeout=HANG)
    said = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    assert (command.returncode, errors.strip()) == (128 + number, f"tilewright: error: {said}")
    assert not list(tmp_path.iterdir())


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    """A signal that is ignored at the start, as SIGHUP under nohup, stays ignored."""
    command = subprocess.Popen(
        [sys.executable, "-c", SCRATCH, str(tmp_path), "python"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    assert command.stdout is not None and command.stdout.readline() == "at work\n"
    command.send_signal(signal.SIGHUP)
    command.send_signal(signal.SIGTERM)
    command.communicate(timeout=HANG)
    assert command.returncode == 128 + signal.SIGTERM


@pytest.mark.medium
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_where_ctrl_c_is_ignored_the_others_are_heard(tmp_path: Path, number: signal.Signals) -> None:
    """Other signals end a command whose SIGINT is ignored, as a script's background commands have it."""

    def only_ctrl_c_ignored() -> None:
        signal.signal(number, signal.SIG_DFL)  # nohup hands down that SIGHUP is ignored
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    command = subprocess.Popen(
        [sys.executable, "-c", SCRATCH, str(tmp_path), "python"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=only_ctrl_c_ignored,
    )  # fmt: skip
    assert command.stdout is not None and command.stdout.readline() == "at work\n"
    command.send_signal(signal.SIGINT)
    command.send_signal(number)
    _, errors = command.communicate(timeout=HANG)
    assert (command.returncode, errors.strip()) == (128 + number, f"tilewright: error: ended by {number.name}")
    assert not list(tmp_path.iterdir())
