"""Programs run as child processes that never outlive this one.

A child leads a process group of its own, so that Ctrl-C on a terminal reaches this process alone, which then ends the
group. Where this process is killed, a guard does so: a shell that waits for the end of a pipe whose other end only
this process holds, and then kills the group. It costs about a millisecond for each child.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Command:
    """A program to run.

    Attributes:
        arguments: the program and its arguments.
        input: bytes for its standard input.
        environment: all variables, None for those of this process.
        folder: its working directory, None for that of this process.
        descriptors: open files of this process that it shares, under the same numbers.
    """

    arguments: Sequence[str | Path]
    input: bytes = b""
    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    descriptors: Sequence[int] = ()


@dataclass(frozen=True)
class Outcome:
    """The result of a finished program: its exit status, negative for the signal that ended it, and its output."""

    status: int
    output: bytes
    errors: bytes


def processors() -> int:
    """The number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(command: Command) -> Outcome:
    """Runs one program to its end. Raises OSError where it cannot be started."""
    return run_all([command], 1)[0]


def run_all(commands: Sequence[Command], jobs: int, done: Callable[[int], None] = lambda count: None) -> list[Outcome]:
    """Runs programs, at most `jobs` at a time.

    Args:
        done: called with the number of finished programs, whenever one finishes.

    Returns:
        Their outcomes, in the order of the commands.

    Raises:
        OSError: one cannot be started; the others are ended.
    """
    outcomes: dict[int, Outcome] = {}
    waiting = list(enumerate(commands))
    running: dict[int, _Child] = {}
    with contextlib.ExitStack() as stack:
        while waiting or running:
            while waiting and len(running) < max(1, jobs):
                number, command = waiting.pop(0)
                running[number] = _Child.start(command, stack)
            ended = [number for number, child in running.items() if child.process.poll() is not None]
            for number in ended:
                outcomes[number] = running.pop(number).outcome()
                done(len(outcomes))
            if not ended:
                time.sleep(_POLL_SECONDS)
    return [outcomes[number] for number in range(len(commands))]


@contextlib.contextmanager
def in_background(commands: Sequence[Command]) -> Iterator[Callable[[], list[Outcome]]]:
    """Runs programs, all at once, while the block does something else; leaving it ends those that still run.

    Yields:
        A function that waits for all of them and returns their outcomes, in order.

    Raises:
        OSError: one cannot be started.
    """
    with contextlib.ExitStack() as stack:
        children = [_Child.start(command, stack) for command in commands]

        def outcomes() -> list[Outcome]:
            for child in children:
                child.process.wait()
            return [child.outcome() for child in children]

        yield outcomes


@dataclass(frozen=True)
class _Child:
    """A running program and the files that receive its output."""

    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]

    @staticmethod
    def start(command: Command, stack: contextlib.ExitStack) -> _Child:
        """Starts a program, which ends when the stack is left."""
        files: list[IO[bytes]] = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]  # noqa: SIM115
        given, output, errors = files
        given.write(command.input)
        given.seek(0)
        process = stack.enter_context(
            started(
                command.arguments, stdin=given, stdout=output, stderr=errors, env=command.environment,
                cwd=command.folder, pass_fds=command.descriptors,
            )
        )  # fmt: skip
        return _Child(process, output, errors)

    def outcome(self) -> Outcome:
        """The outcome of a program that has ended."""
        self.output.seek(0)
        self.errors.seek(0)
        return Outcome(self.process.returncode, self.output.read(), self.errors.read())


@contextlib.contextmanager
def started(arguments: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Runs a child process within the block; leaving the block ends the child and all that it started.

    Args:
        options: options of `subprocess.Popen`.
    """
    process = subprocess.Popen([str(a) for a in arguments], start_new_session=True, **options)
    guard = None
    try:
        guard = subprocess.Popen(
            ["/bin/sh", "-c", f"trap '' INT TERM HUP; read -r _; kill -KILL -{process.pid}"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        yield process
    finally:
        _kill(process.pid)
        if guard is not None:
            guard.kill()
            guard.wait()
            assert guard.stdin is not None
            guard.stdin.close()
        process.wait()


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
