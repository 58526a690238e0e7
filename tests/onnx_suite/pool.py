"""Jobs in worker processes that may crash or hang: such a job fails, the others go on."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_CONTEXT = multiprocessing.get_context("fork")  # workers share what is loaded already


class _Worker:
    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.pipe, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_serve, args=(work, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Any = None
        self.started = 0.0

    def give(self, job: Any) -> None:
        self.job, self.started = job, time.monotonic()
        self.pipe.send(job)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(work: Callable[[Any], Any], pipe: Any) -> None:
    while True:
        try:
            job = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        pipe.send(work(job))


def run(
    work: Callable[[Any], Any], jobs: Sequence[Any], workers: int, seconds: float, failed: Callable[[Any, str], Any]
) -> Iterator[tuple[Any, Any]]:
    """Yields (job, result) in the order they finish.

    Args:
        work: called in a forked worker; result and jobs must pickle.
        seconds: time limit of one job.
        failed: makes the result of a job that crashed its worker or took too long, from job and reason.
    """
    waiting = list(jobs)[::-1]
    crew = [_Worker(work) for _ in range(min(workers, len(waiting)))]
    for worker in crew:
        worker.give(waiting.pop())
    try:
        while crew:
            ready = multiprocessing.connection.wait([w.pipe for w in crew], timeout=1.0)
            for worker in list(crew):
                if worker.pipe in ready:
                    try:
                        result, alive = worker.pipe.recv(), True
                    except EOFError:
                        worker.process.join()
                        result, alive = (
                            failed(worker.job, f"the process died (exit code {worker.process.exitcode})"),
                            False,
                        )
                elif time.monotonic() - worker.started > seconds:
                    result, alive = failed(worker.job, f"took more than {seconds:g} s"), False
                else:
                    continue
                yield worker.job, result
                if not waiting:
                    worker.end()
                    crew.remove(worker)
                    continue
                if not alive:
                    worker.end()
                    place = crew.index(worker)
                    worker = crew[place] = _Worker(work)
                worker.give(waiting.pop())
    finally:
        for worker in crew:
            worker.end()
