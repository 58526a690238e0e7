"""Compiles functions in other processes, while this one does something else."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import sys
from collections.abc import Callable, Iterator, Sequence

from tilewright.common.processes import Command, Outcome, in_background, processors
from tilewright.compiler.llvm.job import Job

#: Work in seconds that is worth a process of its own, which takes 0.15 s to start, and the most such processes.
PROCESS_SECONDS = 0.6
_PROCESSES = 7
_NUMBER = struct.Struct("<H")
_SHARED = 2048  # numbers that surely fit a pipe

#: Starts programs in the background, as `in_background` does.
Start = Callable[[Sequence[Command]], contextlib.AbstractContextManager[Callable[[], list[Outcome]]]]


def _emit(job: Job) -> bytes:
    """Emits a function. LLVM is loaded now: kernels that are all kept do without."""
    from tilewright.compiler.llvm.emit import emit

    return emit(job)


@contextlib.contextmanager
def emitting(
    jobs: Sequence[Job],
    *,
    compile_here: Callable[[Job], bytes] = _emit,
    start: Start = in_background,
    cores: int | None = None,
    process_seconds: float = PROCESS_SECONDS,
) -> Iterator[Callable[[], list[bytes]]]:
    """Compiles functions while the block runs: by other processes, where that is worth it and there are processors.

    The numbers of the jobs lie in a pipe, from which every process takes the next one, and this one too, once it waits
    for the results. Objects that another process did not deliver, for whatever reason, are compiled here.

    Args:
        compile_here: compiles a job in this process.
        start: starts the other processes.
        cores: processors to use; by default those of this process.
        process_seconds: estimated work that is worth another process.

    Yields:
        A function that waits for the objects, in the order of the jobs.
    """
    cores = processors() if cores is None else cores
    helpers = min(cores - 1, int(sum(job.seconds for job in jobs) / process_seconds), _PROCESSES)
    done: dict[int, bytes] = {}

    def rest() -> list[bytes]:
        return [done[number] if number in done else compile_here(job) for number, job in enumerate(jobs)]

    if helpers < 1:
        yield rest
        return
    order = sorted(range(min(len(jobs), _SHARED)), key=lambda number: -jobs[number].seconds)
    queue, end = os.pipe()
    try:
        try:
            os.write(end, b"".join(map(_NUMBER.pack, order)))
        finally:
            os.close(end)
        with contextlib.ExitStack() as stack:
            try:
                outcomes = stack.enter_context(start([_command(jobs, queue)] * helpers))
            except OSError:
                outcomes = list

            def all_of_them() -> list[bytes]:
                for number in numbers(queue):
                    done[number] = compile_here(jobs[number])
                for outcome in outcomes():
                    done.update(_delivered(outcome))
                return rest()

            yield all_of_them
    finally:
        os.close(queue)


def numbers(queue: int) -> Iterator[int]:
    """Takes numbers of jobs from the pipe until none is left."""
    while len(raw := os.read(queue, _NUMBER.size)) == _NUMBER.size:
        yield _NUMBER.unpack(raw)[0]


def _command(jobs: Sequence[Job], queue: int) -> Command:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    arguments = [sys.executable, "-m", "tilewright.compiler.llvm.worker", str(queue)]
    return Command(arguments, pickle.dumps(jobs[:_SHARED]), environment, descriptors=(queue,))


def _delivered(outcome: Outcome) -> Iterator[tuple[int, bytes]]:
    """The numbers and objects that a process wrote, up to where it may have been ended."""
    stream = io.BytesIO(outcome.output)
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        while True:
            yield pickle.load(stream)
