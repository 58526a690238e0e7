"""Functions compiled by other processes: the same objects, whoever compiles them and whatever becomes of them."""

import os
import signal

import pytest

from tilewright.common import processes
from tilewright.common.processes import Outcome
from tilewright.compiler.cpu.target import Target
from tilewright.compiler.llvm import beside
from tilewright.compiler.llvm.emit import Job, emit

MACHINE = Target(triple="x86_64-unknown-linux-gnu", optimise=False).machine


def functions(count: int) -> list[Job]:
    texts = [f"define i32 @f{i}(i32 %x) {{\n  %y = add i32 %x, {i}\n  ret i32 %y\n}}" for i in range(count)]
    return [Job(MACHINE, text, plain=False) for text in texts]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """What is compiled by this process."""
    jobs: list[Job] = []
    monkeypatch.setattr(beside, "emit", lambda job: jobs.append(job) or emit(job))
    monkeypatch.setattr(beside, "processors", lambda: 2)
    return jobs


def test_little_work_starts_no_process(here: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "in_background", None)
    jobs = functions(3)
    with beside.emitting(jobs) as finish:
        assert here == []
        assert finish() == [emit(job) for job in jobs] and here == jobs


def test_one_processor_starts_no_process(here: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "in_background", None)
    monkeypatch.setattr(beside, "_SECONDS_PER_PROCESS", 0.001)
    monkeypatch.setattr(beside, "processors", lambda: 1)
    jobs = functions(3)
    with beside.emitting(jobs) as finish:
        assert finish() == [emit(job) for job in jobs]


def test_another_process_delivers(here: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything, where this process finds no number left in the pipe."""
    monkeypatch.setattr(beside, "_SECONDS_PER_PROCESS", 0.001)
    jobs = functions(5)
    with beside.emitting(jobs) as finish:
        monkeypatch.setattr(beside, "numbers", lambda queue: iter(()))
        assert finish() == [emit(job) for job in jobs] and here == []


def test_both_share_the_work(here: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_SECONDS_PER_PROCESS", 0.001)
    jobs = functions(40)
    with beside.emitting(jobs) as finish:
        assert finish() == [emit(job) for job in jobs]
    assert here


@pytest.mark.parametrize("fault", ["killed", "cut", "not started"])
def test_what_is_not_delivered_is_compiled_here(here: list[Job], monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setattr(beside, "_SECONDS_PER_PROCESS", 0.001)
    jobs = functions(4)
    delivered = beside._delivered
    if fault == "cut":
        monkeypatch.setattr(
            beside, "_delivered", lambda o: delivered(Outcome(o.status, o.output[: len(o.output) // 2], o.errors))
        )
    if fault == "not started":
        monkeypatch.setattr(beside.sys, "executable", "/no such file")
    if fault == "killed":
        command = beside._command
        monkeypatch.setattr(
            beside,
            "_command",
            lambda *args: processes.Command(["/bin/sh", "-c", "kill -KILL $$"], command(*args).input),
        )
    with beside.emitting(jobs) as finish:
        if fault == "cut":
            monkeypatch.setattr(beside, "numbers", lambda queue: iter(()))
        assert finish() == [emit(job) for job in jobs] and here


def test_an_error_of_the_block_ends_the_processes(here: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_SECONDS_PER_PROCESS", 0.001)
    started: list[int] = []
    original = processes.subprocess.Popen

    def popen(*args, **kwargs):
        process = original(*args, **kwargs)
        started.append(process.pid)
        return process

    monkeypatch.setattr(processes.subprocess, "Popen", popen)
    with pytest.raises(ValueError, match="stop"), beside.emitting(functions(4)):
        raise ValueError("stop")
    assert started
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_an_error_of_a_function_is_raised_here(here: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_SECONDS_PER_PROCESS", 0.001)
    jobs = [*functions(3), Job(MACHINE, "no module", plain=False)]
    with beside.emitting(jobs) as finish, pytest.raises(RuntimeError, match="parsing"):
        finish()
