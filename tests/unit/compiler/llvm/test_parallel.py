"""Functions compiled by other processes: the same objects, whoever compiles them and whatever becomes of them."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.common.waiting import wait_until
from tilewright.common.processes import Command, Outcome, in_background
from tilewright.compiler.cpu.target import Target
from tilewright.compiler.llvm.emit import emit
from tilewright.compiler.llvm.job import Job
from tilewright.compiler.llvm.parallel import emitting

MACHINE = Target(triple="x86_64-unknown-linux-gnu", optimise=False).machine
#: Work that is worth a process of its own, in seconds: any.
LITTLE = 0.001


def functions(count: int) -> list[Job]:
    texts = [f"define i32 @f{i}(i32 %x) {{\n  %y = add i32 %x, {i}\n  ret i32 %y\n}}" for i in range(count)]
    return [Job(MACHINE, text, plain=False) for text in texts]


class Here:
    """Compiles jobs in this process.

    Attributes:
        jobs: those compiled so far.
    """

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def __call__(self, job: Job) -> bytes:
        self.jobs.append(job)
        return emit(job)


def none(commands: Sequence[Command]) -> AbstractContextManager[Callable[[], list[Outcome]]]:
    raise AssertionError(f"{len(commands)} processes are started")


@contextlib.contextmanager
def finished(commands: Sequence[Command]) -> Iterator[Callable[[], list[Outcome]]]:
    """Starts processes and waits for their ends, so that they take all jobs."""
    with in_background(commands) as outcomes:
        found = outcomes()
        yield lambda: found


@contextlib.contextmanager
def cut(commands: Sequence[Command]) -> Iterator[Callable[[], list[Outcome]]]:
    """Starts processes that take all jobs, and loses half of their output."""
    with finished(commands) as outcomes:
        yield lambda: [replace(o, output=o.output[: len(o.output) // 2]) for o in outcomes()]


def killed(commands: Sequence[Command]) -> AbstractContextManager[Callable[[], list[Outcome]]]:
    return in_background([Command(["/bin/sh", "-c", "kill -KILL $$"], command.input) for command in commands])


def not_started(commands: Sequence[Command]) -> AbstractContextManager[Callable[[], list[Outcome]]]:
    return in_background([Command(["/no such file"], command.input) for command in commands])


def test_little_work_starts_no_process() -> None:
    jobs, here = functions(3), Here()
    with emitting(jobs, compile_here=here, start=none, cores=2) as finish:
        assert here.jobs == []
        assert finish() == [emit(job) for job in jobs] and here.jobs == jobs


def test_one_processor_starts_no_process() -> None:
    jobs = functions(3)
    with emitting(jobs, start=none, cores=1, process_seconds=LITTLE) as finish:
        assert finish() == [emit(job) for job in jobs]


def test_another_process_delivers() -> None:
    """Another process delivers everything where this one finds no number left in the pipe."""
    jobs, here = functions(5), Here()
    with emitting(jobs, compile_here=here, start=finished, cores=2, process_seconds=LITTLE) as finish:
        assert finish() == [emit(job) for job in jobs] and here.jobs == []


@pytest.mark.medium
def test_both_share_the_work() -> None:
    jobs, here = functions(40), Here()
    with emitting(jobs, compile_here=here, cores=2, process_seconds=LITTLE) as finish:
        assert finish() == [emit(job) for job in jobs]
    assert here.jobs


@pytest.mark.parametrize("start", [killed, cut, not_started])
def test_what_is_not_delivered_is_compiled_here(
    start: Callable[[Sequence[Command]], AbstractContextManager[Callable[[], list[Outcome]]]],
) -> None:
    jobs, here = functions(4), Here()
    with emitting(jobs, compile_here=here, start=start, cores=2, process_seconds=LITTLE) as finish:
        assert finish() == [emit(job) for job in jobs] and here.jobs


def test_an_error_of_the_block_ends_the_processes(tmp_path: Path) -> None:
    file = tmp_path / "process"

    def sleeping(commands: Sequence[Command]) -> AbstractContextManager[Callable[[], list[Outcome]]]:
        return in_background([Command(["/bin/sh", "-c", f"echo $$ > '{file}'; exec sleep 600"]) for _ in commands])

    with (
        pytest.raises(ValueError, match="stop"),
        emitting(functions(4), start=sleeping, cores=2, process_seconds=LITTLE),
    ):
        wait_until(lambda: file.is_file() and file.read_text().strip())
        raise ValueError("stop")
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


def test_an_error_of_a_function_is_raised_here() -> None:
    jobs = [*functions(3), Job(MACHINE, "no module", plain=False)]
    with emitting(jobs, cores=2, process_seconds=LITTLE) as finish, pytest.raises(RuntimeError, match="parsing"):
        finish()
