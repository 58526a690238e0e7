"""Tasks through Dask: handed out a few per worker, results as they come, across the death of workers and schedulers."""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Future, wait

from tilewright.errors import UsageError
from tilewright.sweep.cluster import LocalCluster
from tilewright.sweep.worker import REFUSED, Models, evaluate

#: Tasks in flight per thread of the cluster: enough that none waits for the command, few enough to lose.
_PER_THREAD = 3
_RECONNECTS = 5
_CONNECT_SECONDS = 10
_POLL_SECONDS = 0.25
#: That workers of others have for the task that all of them do.
_AGREE_SECONDS = 120
#: Of a scheduler: host and port, or one in this process.
_ADDRESS = re.compile(r"((tcp|tls|wss?)://)?[^\s/]+:\d+|inproc://\S+")
#: Loggers whose complaints about lost connections become one line here.
_NOISY = ("distributed", "tornado", "asyncio")


class SchedulerLost(UsageError):
    """The scheduler is gone and does not come back."""


@dataclass(frozen=True)
class Task:
    """A task of a sweep: `kind` and `key` of its result in the database, the argument of `evaluate`, and what else the
    result's `row` has."""

    kind: str
    key: str
    job: dict[str, Any]
    row: dict[str, Any] = field(default_factory=dict)


class Dispatcher:
    """Runs tasks on a cluster of its own, or on a scheduler that is there.

    Args:
        models: bytes by digest, which the workers get.
        jobs: workers of the cluster of its own.
        scheduler: address of a Dask scheduler, None for a cluster of its own.
        log: file for the messages of the own cluster's processes.

    Raises:
        SchedulerLost: no scheduler at that address.
        UsageError: that is no address.
    """

    def __init__(self, models: dict[str, bytes], jobs: int, scheduler: str | None, log: Path) -> None:
        if scheduler is not None and not _ADDRESS.fullmatch(scheduler):
            raise UsageError(f"the scheduler's address must be HOST:PORT or tcp://HOST:PORT, not {scheduler!r}")
        self._models, self._jobs, self._scheduler, self._log = Models(models), jobs, scheduler, log
        self.cluster: LocalCluster | None = None
        self._agreed = False
        self._client: Client | None = None
        for name in [n for n in logging.root.manager.loggerDict if n.partition(".")[0] in _NOISY]:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._connect(attempts=1)

    def close(self) -> None:
        """Gives the cluster back; tasks in flight are dropped."""
        self._disconnect()

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, dict[str, Any]]]:
        """Yields every task with its result, in the order they finish.

        Raises:
            SchedulerLost: after several attempts to reach it again; what was yielded until then stands.
            UsageError: a worker runs other sources, or workers disagree; that stands, too.
        """
        waiting = iter(tasks)
        if self._scheduler is not None and not self._agreed and (first := next(waiting, None)) is not None:
            self._check_agreement(first)
            waiting = itertools.chain([first], waiting)
        flying: dict[str, Task] = {}
        repeat: list[Task] = []
        losses = 0
        arrived: queue.SimpleQueue[tuple[Task, Future[Any], int]] = queue.SimpleQueue()
        round_ = 0  # results of a connection that was lost since are not looked at

        def submit(task: Task) -> None:
            assert self._client is not None
            future = self._client.submit(evaluate, task.job, key=f"{task.kind}-{task.key}-{round_}", pure=False)
            future.add_done_callback(lambda f, task=task, n=round_: arrived.put((task, f, n)))
            flying[task.key] = task
            self._futures[task.key] = future

        while True:
            try:
                limit = _PER_THREAD * max(1, self._threads())
                while len(flying) < limit:
                    task = repeat.pop() if repeat else next(waiting, None)
                    if task is None:
                        break
                    submit(task)
                if not flying:
                    return
                task, future, number = arrived.get(timeout=_POLL_SECONDS)
                if number != round_ or task.key not in flying:
                    continue
                result = _result_of(future)
                if result is not None:
                    if result["state"] == REFUSED:
                        raise UsageError(f"a worker of {self._scheduler or 'this sweep'} {result['error']}")
                    losses = 0
                    del flying[task.key]
                    self._futures.pop(task.key, None)
                    yield task, result
                    continue
            except queue.Empty:
                if self._connected():
                    continue
            except (OSError, TimeoutError, RuntimeError):
                if self._connected():
                    raise
            # The scheduler is gone: everything in flight is handed out again.
            losses += 1
            if losses > _RECONNECTS:
                raise SchedulerLost(f"the scheduler died {losses} times without a result in between; see {self._log}")
            repeat += [t for t in flying.values() if t not in repeat]
            flying.clear()
            round_ += 1
            self._disconnect()
            self._connect()

    def _check_agreement(self, task: Task) -> None:
        """Lets every worker do a task. Raises `UsageError` where their results differ: one of them cannot be trusted.
        A worker that does not answer is left to the tasks that follow."""
        assert self._client is not None
        self._agreed = True
        addresses = list(self._client.scheduler_info(n_workers=-1)["workers"])
        futures = {
            one: self._client.submit(evaluate, task.job, key=f"agree-{task.key}-{one}", workers=[one], pure=False)
            for one in addresses
        }
        with self._client.as_current(), contextlib.suppress(TimeoutError):
            wait([*futures.values()], timeout=_AGREE_SECONDS)
        results = {one: future.result() for one, future in futures.items() if future.status == "finished"}
        told = {one: {k: v for k, v in result.items() if "seconds" not in k} for one, result in results.items()}
        for one, result in told.items():
            if result["state"] == REFUSED:
                raise UsageError(f"the worker at {one} {result['error']}")
            first = next(iter(told))
            if result != told[first]:
                unlike = next(name for name in result if result[name] != told[first].get(name))
                raise UsageError(
                    f"workers disagree about a task: at {first} {unlike} is {told[first].get(unlike)!r}, "
                    f"at {one} {result[unlike]!r}"
                )

    # The connection.

    def _connect(self, attempts: int = _RECONNECTS) -> None:
        self._futures: dict[str, Future[Any]] = {}
        last: Exception | None = None
        for attempt in range(attempts):
            try:
                if self._scheduler is None:
                    self.cluster = LocalCluster(self._jobs, self._log)
                address = self._scheduler or (self.cluster.address if self.cluster else "")
                security = self.cluster.security if self.cluster else None
                with dask.config.set({"distributed.comm.timeouts.connect": f"{_CONNECT_SECONDS}s"}):
                    self._client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False, security=security)
                self._client.register_plugin(self._models)
                self._identity = self._client.scheduler_info().get("id")
                return
            except (OSError, TimeoutError, ValueError, RuntimeError) as error:
                last = error
                self._disconnect()
                time.sleep(min(2.0**attempt, 8.0) / 2)
        where = f"at {self._scheduler}" if self._scheduler else "of its own"
        kept = "what was computed is kept, the same command resumes"
        raise SchedulerLost(f"no Dask scheduler {where} ({type(last).__name__}); {kept}") from None

    def _disconnect(self) -> None:
        client, cluster = self._client, self.cluster
        self._client, self.cluster, self._futures = None, None, {}
        if client is not None:
            with contextlib.suppress(Exception):
                client.close(timeout=1)
        if cluster is not None:
            cluster.stop()

    def _connected(self) -> bool:
        client = self._client
        if client is None or client.status != "running" or (self.cluster is not None and not self.cluster.alive):
            return False
        return bool(client._scheduler_identity.get("id", self._identity) == self._identity)

    def _threads(self) -> int:
        if self.cluster is not None:
            return self._jobs
        assert self._client is not None
        return sum(worker["nthreads"] for worker in self._client.scheduler_info(n_workers=-1)["workers"].values())


def _result_of(future: Future[Any]) -> dict[str, Any] | None:
    """Returns the result, or one with how the worker died; None if the scheduler lost the task."""
    if future.status == "finished":
        return dict(future.result())
    if future.status == "error":
        error = future.exception()
        text = " ".join(str(error).split())
        died = type(error).__name__ == "KilledWorker"
        return {"state": "failed", "error": "the worker died each time it was tried" if died else text, "seconds": None}
    return None
