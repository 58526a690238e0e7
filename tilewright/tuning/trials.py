"""Cost of many schedules of one step, by exact cycles, in several processes."""

from __future__ import annotations

import math
import mmap
import multiprocessing
import multiprocessing.connection
import multiprocessing.reduction
import os
import pickle
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Hashable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from tilewright.common.quiet import line_of
from tilewright.compiler.npu.schedule.decisions import Decisions
from tilewright.compiler.npu.schedule.descent import Question, cost_of
from tilewright.compiler.npu.schedule.problem import StepProblem
from tilewright.compiler.npu.schedule.windows import Window
from tilewright.tuning.objective import IN_CYCLES, IN_MICROJOULES, Figures


def fits(step: StepProblem, decisions: Decisions) -> bool:
    """Returns True if the step can be emitted so; nothing is measured."""
    return math.isfinite(cost_of(step.measured_by(lambda *image: 0), decisions))


def figures_of(step: StepProblem, decisions: Decisions) -> Figures:
    """Returns the cycles and the energy of the step alone."""
    measures = [replace(one, timing=step.memory) for one in (IN_CYCLES, IN_MICROJOULES)]
    return Figures(*(cost_of(step.fresh().measured_by(one), decisions) for one in measures))


_step: StepProblem | None = None


class _InheritedFile:
    """A value for processes that are started, in a file without a name whose descriptor they get. Among their arguments
    it would be more than a pipe holds: a process whose parent ends meanwhile would report half a pickle."""

    def __init__(self, value: object) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as processes may be started
        pickle.dump(value, self.file)
        self.file.flush()

    def __reduce__(self) -> tuple[Any, ...]:
        return _read_inherited, (multiprocessing.reduction.DupFd(self.file.fileno()),)


def _read_inherited(handle: Any) -> Any:
    with open(handle.detach(), "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return pickle.loads(data)


def _start(step: StepProblem) -> None:
    global _step
    warnings.formatwarning = line_of
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks stops the search
    threading.Thread(target=_end_with_parent, daemon=True, name="lifeline").start()
    _step = step


def _end_with_parent() -> None:
    """Ends this process as soon as the one that asks is gone, however it ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _cost(decisions: Decisions, window: Window | None) -> float:
    assert _step is not None
    return cost_of(_step, decisions, window)


class Evaluator:
    """Measures schedules of a step until the time is over; equal questions are asked once.

    Args:
        step: the step.
        jobs: number of processes; with 1 everything happens in this one.
        end: when the time is over, as `time.monotonic` has it.

    Attributes:
        count: number of measurements.
    """

    def __init__(self, step: StepProblem, jobs: int, end: float = math.inf) -> None:
        self.step, self.jobs, self.end = step, jobs, end
        self._began = time.monotonic()
        self.count = 0
        self._known: dict[Hashable, float] = {}
        self._pool: ProcessPoolExecutor | None = None
        if jobs > 1:
            context = multiprocessing.get_context("spawn")
            handed: Any = _InheritedFile(step)  # what arrives is the step
            self._pool = ProcessPoolExecutor(jobs, context, initializer=_start, initargs=(handed,))

    def close(self) -> None:
        """Ends the processes at once: what they still measure is not asked for any more."""
        if self._pool is not None:
            for process in multiprocessing.active_children():
                process.kill()
            self._pool.shutdown(cancel_futures=True)

    @property
    def used(self) -> float:
        """The fraction of the time that is used."""
        return min(1.0, (time.monotonic() - self._began) / max(1e-9, self.end - self._began))

    @property
    def over(self) -> bool:
        """True when the time is over."""
        return time.monotonic() >= self.end

    def costs(self, questions: Sequence[Question]) -> list[float]:
        """Returns the costs of schedules, or of windows of them; infinite where a schedule does not fit."""
        keys = [_key(*question) for question in questions]
        new = [*{key: i for i, key in enumerate(keys) if key not in self._known}.values()]
        self.count += len(new)
        asked = [questions[i] for i in new]
        if self._pool is not None and len(asked) > 1:
            found = list(self._pool.map(_cost, *zip(*asked)))
        else:
            found = [cost_of(self.step, *question) for question in asked]
        self._known |= dict(zip([keys[i] for i in new], found))
        return [self._known[key] for key in keys]

    def cost(self, decisions: Decisions) -> float:
        """Returns the cost of the step by a schedule, infinite if it does not fit."""
        return self.costs([(decisions, None)])[0]


def _key(decisions: Decisions, window: Window | None) -> Hashable:
    """Returns a key of a measurement: decisions in the window, and all tensors in ACT, which may be alive there."""
    if window is None:
        return decisions
    units = tuple(u for u, at in zip(decisions.units, decisions.starts()) if window.first <= at < window.end)
    tiles = tuple(t for t in decisions.tiles if window.first <= t[0] < window.end)
    return window, units, tiles, decisions.stays
