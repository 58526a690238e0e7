"""Runs the tools that flows are made of: each in a process of its own, in the folder of a build."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.common.processes import started
from tilewright.fpga.errors import FpgaError


@dataclass(frozen=True)
class Step:
    """One tool of pip: its purpose, its package with function (called with its arguments), its log."""

    title: str
    module: str
    function: str
    arguments: tuple[str, ...]
    log: str


def run(step: Step, directory: Path, watch: Callable[[], None] = lambda: None) -> None:
    """Runs a tool of pip in `directory`; `watch` is called once a second.

    Raises:
        FpgaError: the tool failed; the message has its first error and names the log. Errors of `watch` are passed on.
    """
    code = f"import sys; from {step.module} import {step.function} as f; sys.exit(f(sys.argv[1:]))"
    if step.function == "main":  # takes its arguments from sys.argv
        code = f"import sys; from {step.module} import main; sys.exit(main())"
    command = (sys.executable, "-c", code, *step.arguments)
    execute(command, directory, step.title, step.module, directory / step.log, watch)


def execute(
    command: Sequence[str], directory: Path, title: str, tool: str, log: Path, watch: Callable[[], None] = lambda: None
) -> None:
    """Runs a command in `directory`; `title`, `tool` and `log` are for messages; `watch` is called once a second.

    Raises:
        FpgaError: the tool failed; the message has its first error and names the log. Errors of `watch` are passed on.
    """
    pipe = subprocess.PIPE
    with started(command, cwd=directory, stdout=pipe, stderr=pipe, text=True) as process:
        while True:
            try:
                output, errors = process.communicate(timeout=1)
                break
            except subprocess.TimeoutExpired:
                watch()
    if process.returncode != 0:
        lines = (errors + output).splitlines()
        found = [line for line in lines if line.startswith("ERROR") or "error:" in line.lower()]
        code = process.returncode
        silent = f"ended by {signal.Signals(-code).name}" if code < 0 else "no message"
        reason = (found or lines[-1:] or [silent])[0]
        raise FpgaError(f"{title}: {tool} failed: {reason} (see {log})")


class Stopwatch:
    """A stopwatch that runs from its creation."""

    def __init__(self) -> None:
        self._start, self._cpu = time.monotonic(), _cpu_time()

    def read(self) -> tuple[float, float]:
        """Wall seconds, and CPU seconds of this process and of the tools that have ended."""
        return time.monotonic() - self._start, _cpu_time() - self._cpu


def _cpu_time() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + usage.ru_utime + usage.ru_stime
