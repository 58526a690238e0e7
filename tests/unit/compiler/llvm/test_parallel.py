"""Functions compiled by other processes: the same objects, whoever compiles them and whatever becomes of them."""

import os
import signal

import pytest

from tilewright.common import processes
from tilewright.common.processes import Outcome
from tilewright.compiler.cpu.target import Target
from tilewright.compiler.llvm import parallel
from tilewright.compiler.llvm.emit import Job, emit

MACHINE = Target(triple="x86_64-unknown-linux-gnu", optimise=False).machine


def functions(count: int) -> list[Job]:
    texts = [f"define i32 @f{i}(i32 %x) {{\n  %y = add i32 %x, {i}\n  ret i32 %y\n}}" for i in range(count)]
    return [Job(MACHINE, text, plain=False) for text in texts]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Jobs that are compiled by this process."""
    jobs: list[Job] = []
    monkeypatch.setattr(parallel, "emit", lambda job: jobs.append(job) or emit(job))
    monkeypatch.setattr(parallel, "processors", lambda: 2)
    return jobs


@pytest.fixture
def much(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little it is, work is worth a process."""
    monkeypatch.setattr(parallel, "_SECONDS_PER_PROCESS", 0.001)


def test_little_work_starts_no_process(here: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "in_background", None)
    jobs = functions(3)
    with parallel.emitting(jobs) as finish:
        assert here == []
        assert finish() == [emit(job) for job in jobs] and here == jobs


@pytest.mark.usefixtures("much")
def test_one_processor_starts_no_process(here: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "in_background", None)
    monkeypatch.setattr(parallel, "processors", lambda: 1)
    jobs = functions(3)
    with parallel.emitting(jobs) as finish:
        assert finish() == [emit(job) for job in jobs]


@pytest.mark.usefixtures("much")
def test_another_process_delivers(here: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything, where this process finds no number left in the pipe."""
    jobs = functions(5)
    with parallel.emitting(jobs) as finish:
        monkeypatch.setattr(parallel, "numbers", lambda queue: iter(()))
        assert finish() == [emit(job) for job in jobs] and here == []


@pytest.mark.medium
@pytest.mark.usefixtures("much")
def test_both_share_the_work(here: list[Job]) -> None:
    jobs = functions(40)
    with parallel.emitting(jobs) as finish:
        assert finish() == [emit(job) for job in jobs]
    assert here


@pytest.mark.parametrize("fault", ["killed", "cut", "not started"])
@pytest.mark.usefixtures("much")
def test_what_is_not_delivered_is_compiled_here(here: list[Job], monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    jobs = functions(4)
    delivered = parallel._delivered
    if fault == "cut":
        monkeypatch.setattr(
            parallel, "_delivered", lambda o: delivered(Outcome(o.status, o.output[: len(o.output) // 2], o.errors))
        )
    if fault == "not started":
        monkeypatch.setattr(parallel.sys, "executable", "/no such file")
    if fault == "killed":
        command = parallel._command
        monkeypatch.setattr(
            parallel,
            "_command",
            lambda *args: processes.Command(["/bin/sh", "-c", "kill -KILL $$"], command(*args).input),
        )
    with parallel.emitting(jobs) as finish:
        if fault == "cut":
            monkeypatch.setattr(parallel, "numbers", lambda queue: iter(()))
        assert finish() == [emit(job) for job in jobs] and here


@pytest.mark.usefixtures("much")
def test_an_error_of_the_block_ends_the_processes(here: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    original = processes.subprocess.Popen

    def popen(*args, **kwargs):
        process = original(*args, **kwargs)
        started.append(process.pid)
        return process

    monkeypatch.setattr(processes.subprocess, "Popen", popen)
    with pytest.raises(ValueError, match="stop"), parallel.emitting(functions(4)):
        raise ValueError("stop")
    assert started
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.usefixtures("much")
def test_an_error_of_a_function_is_raised_here(here: list[Job]) -> None:
    jobs = [*functions(3), Job(MACHINE, "no module", plain=False)]
    with parallel.emitting(jobs) as finish, pytest.raises(RuntimeError, match="parsing"):
        finish()
