"""Measures a command: seconds, processor seconds and bytes of memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STEP = 0.1
"""Seconds between two looks at a process's memory."""

_FLOAT_RUN = """
import sys
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
session.run(None, dict(np.load(sys.argv[2])))
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


@dataclass(frozen=True)
class Usage:
    """Resources that a command used.

    Attributes:
        code: its exit code.
        said: what it printed to standard error.
        seconds, cpu_seconds: wall, and of all processors, its child processes included.
        peak: resident bytes of the process at most; 0 where the system does not tell, as for the following.
        children: of the largest of its child processes.
        together: of all of them at one time, pages that they share counted once.
    """

    code: int
    said: str
    seconds: float
    cpu_seconds: float
    peak: int
    children: int
    together: int


def use_of(command: Sequence[str]) -> Usage:
    """Runs a command to its end."""
    with tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        peak = [0, 0, 0]
        done = threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, peak, done), daemon=True)
        watcher.start()
        _, status, used = os.wait4(process.pid, 0)
        done.set()
        watcher.join()
        process.returncode = os.waitstatus_to_exitcode(status)  # it was waited for here
        seconds = time.perf_counter() - start
        said.seek(0)
        text = said.read().decode(errors="replace")
    return Usage(process.returncode, text, seconds, used.ru_utime + used.ru_stime, *peak)


def peak_of_float_run(model: Path, inputs: Path) -> int:
    """Resident bytes, at most, of a process that runs a model once in onnxruntime with its default settings; 0 where
    the system does not tell.

    Args:
        inputs: .npz file.
    """
    if not Path("/proc/self/status").exists():
        return 0
    command = [sys.executable, "-c", _FLOAT_RUN, str(model), str(inputs)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) * 1024


def _watch(pid: int, peak: list[int], done: threading.Event) -> None:
    while True:
        try:
            others = _below(pid)
            now = [
                _kilobytes(pid, "status", "VmHWM"),
                max((_kilobytes(one, "status", "VmHWM") for one in others), default=0),
                sum(_kilobytes(one, "smaps_rollup", "Pss") for one in (pid, *others)) if others else 0,
            ]
            peak[:] = [max(before, kilobytes << 10) for before, kilobytes in zip(peak, now)]
            peak[2] = max(peak)  # pages that other programs have, too, count in part only
        except OSError:  # it has ended, or there is no /proc
            pass
        if done.wait(STEP):
            return


def _kilobytes(pid: int, file: str, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def _below(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            text = file.read_text(encoding="ascii")
        except OSError:
            continue
        for child in map(int, text.split()):
            found += [child, *_below(child)]
    return found
