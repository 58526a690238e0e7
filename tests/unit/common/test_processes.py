"""Child processes end with the one that started them, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.common.paths import ROOT
from tilewright.common.processes import Command, in_background, run, run_all, started

#: Starts a child that starts one, both for ever; each notes its number.
FAMILY = "import os, subprocess, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()} '); "
CHILD = FAMILY + f"subprocess.run([sys.executable, '-c', {FAMILY + 'time.sleep(1000)'!r}, sys.argv[1]])"
COMMAND = """
import sys
from tilewright.common.processes import Command, run_all
run_all([Command([sys.executable, "-c", sys.argv[1], sys.argv[2]])] * 2, 2)
"""


def alive(pids: list[int]) -> list[int]:
    return [p for p in pids if running(p)]


def running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # gone, perhaps since it was asked for
        return False


@pytest.mark.medium
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nobody_is_left(tmp_path: Path, number: signal.Signals) -> None:
    notes = tmp_path / "pids"
    notes.touch()
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND, CHILD, str(notes)], cwd=ROOT, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )  # fmt: skip
    while len(notes.read_text().split()) < 4:
        assert command.poll() is None
        time.sleep(0.01)
    pids = [int(p) for p in notes.read_text().split()]
    assert len(alive(pids)) == 4
    command.send_signal(number)
    command.wait()
    while alive(pids):  # a machine under load may take a while
        time.sleep(0.01)


def test_outcomes_in_order() -> None:
    say = "import sys, time; time.sleep(float(sys.argv[1])); print(sys.stdin.read()); sys.exit(int(sys.argv[2]))"
    commands = [
        Command([sys.executable, "-c", say, str(delay), str(code)], input=f"{code}".encode())
        for code, delay in ((3, 0.2), (0, 0), (5, 0.1))
    ]
    count: list[int] = []
    outcomes = run_all(commands, 2, count.append)
    assert [o.status for o in outcomes] == [3, 0, 5] and count == [1, 2, 3]
    assert [o.output for o in outcomes] == [b"3\n", b"0\n", b"5\n"]
    killed = run(Command([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]))
    assert killed.status == -signal.SIGKILL
    assert b"ZeroDivisionError" in run(Command([sys.executable, "-c", "1/0"])).errors


def test_environment_and_folder(tmp_path: Path) -> None:
    script = "import os; print(os.getcwd(), os.environ.get('HERE'))"
    command = Command([sys.executable, "-c", script], environment=os.environ | {"HERE": "yes"}, folder=tmp_path)
    assert run(command).output.decode().split() == [str(tmp_path), "yes"]


def test_what_cannot_be_started() -> None:
    with pytest.raises(FileNotFoundError):
        run_all([Command([sys.executable, "-c", "import time; time.sleep(1000)"]), Command(["/no/such/program"])], 2)


def test_leaving_the_context_ends_it() -> None:
    with started([sys.executable, "-c", "import time; time.sleep(1000)"]) as process:
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL


def test_in_background() -> None:
    with in_background([Command([sys.executable, "-c", f"print({number})"]) for number in range(2)]) as outcomes:
        assert [o.output for o in outcomes()] == [b"0\n", b"1\n"]
    with in_background([]) as outcomes:
        assert outcomes() == []
    with in_background([Command(["sleep", "1000"])]):
        (child,) = (p for p in psutil.Process().children() if p.name() == "sleep")
    assert not child.is_running()
