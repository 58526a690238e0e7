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
import warnings
from collections.abc import Hashable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from tilewright.common.quiet import line_of
from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.schedule.decisions import Decisions, decisions_of, schedule_of
from tilewright.compiler.npu.schedule.problem import StepProblem
from tilewright.compiler.npu.schedule.search import Policy, make_schedule
from tilewright.tuning.objective import IN_CYCLES, IN_MICROJOULES, Figures

#: Layers first..end-1 of a step.
Span = tuple[int, int]


def fits(step: StepProblem, decisions: Decisions) -> bool:
    """Returns True if the step can be emitted so; nothing is measured."""
    return math.isfinite(cost_of(step.measured_by(lambda *image: 0), decisions))


def cost_of(step: StepProblem, decisions: Decisions, span: Span | None = None) -> float:
    """Returns the cost of the step, or of the units that make up `span` alone; infinite if the decisions do not fit."""
    try:
        schedule = schedule_of(step, decisions)
    except CompileError:
        return math.inf
    units = None
    if span is not None:
        starts = decisions.starts()
        units = starts.index(span[0]), starts.index(span[1])
    return step.cost(schedule, units)


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


def _cost(decisions: Decisions, span: Span | None) -> float:
    assert _step is not None
    return cost_of(_step, decisions, span)


def _default(policy: Policy) -> Decisions:
    assert _step is not None
    return decisions_of(make_schedule(_step, policy))


class Evaluator:
    """Measures schedules of a step; equal questions are asked once.

    Args:
        jobs: processes; with 1 everything happens in this one.
    """

    def __init__(self, step: StepProblem, jobs: int) -> None:
        self.step, self.jobs = step, jobs
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

    def costs(self, questions: Sequence[tuple[Decisions, Span | None]]) -> list[float]:
        """Returns `cost_of` of each (decisions, span)."""
        keys = [_key(*question) for question in questions]
        new = [i for i, key in enumerate(keys) if key not in self._known and key not in keys[:i]]
        self.count += len(new)
        asked = [questions[i] for i in new]
        if self._pool is not None and len(asked) > 1:
            found = list(self._pool.map(_cost, *zip(*asked)))
        else:
            found = [cost_of(self.step, *question) for question in asked]
        self._known |= dict(zip([keys[i] for i in new], found))
        return [self._known[key] for key in keys]

    def defaults(self, options: Sequence[Policy]) -> list[Decisions]:
        """Decisions of the compiler under some policies."""
        if self._pool is not None and len(options) > 1:
            return list(self._pool.map(_default, options))
        return [decisions_of(make_schedule(self.step, policy)) for policy in options]


def _key(decisions: Decisions, span: Span | None) -> Hashable:
    """The cache key of a measurement: the decisions within the span, and all that stays in ACT (it may be alive)."""
    if span is None:
        return decisions
    first, end = span
    inside = tuple(u for u, at in zip(decisions.units, decisions.starts()) if first <= at < end)
    tiles = tuple(t for t in decisions.tiles if first <= t[0] < end)
    return span, inside, tiles, decisions.stays
