"""Schedule: what stays in the scratchpads between layers, and which layers run together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.schedule.problem import Costed, Measure, Schedule, Scheduler, StepProblem
from tilewright.compiler.npu.schedule.refine_groups import refine_groups
from tilewright.compiler.npu.schedule.refine_residency import refine_residency
from tilewright.compiler.npu.schedule.refine_tiles import refine_tiles
from tilewright.compiler.npu.schedule.search import search
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.stages.order import LayerStep, Step, reads_elsewhere
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import DeviceError


@dataclass
class Schedules:
    """The schedule of every NPU step.

    Attributes:
        of: by number of the step.
        plans: tilings found on the way, which the emission uses again.
    """

    of: dict[int, Schedule] = field(default_factory=dict)
    plans: TilePlans = field(default_factory=TilePlans)


def schedule_steps(
    config: NpuConfig,
    steps: list[Step],
    options: CompileOptions,
    *,
    measure: Measure | None = None,
    scheduler: Scheduler | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> Schedules:
    """Finds a schedule for every NPU step. Where all tensors are kept, everything goes through memory.

    Args:
        measure: exact cycles, see `tilewright.compiler.npu.schedule.problem.Measure`.
        scheduler: asked first; None from it leaves the step to the search.
        progress: called with the fraction done.
    """
    found = Schedules(plans=TilePlans(options.memory))
    elsewhere = reads_elsewhere(steps)
    for number, step in enumerate(steps):
        if not isinstance(step, LayerStep):
            continue
        if options.keep_all:
            found.of[number] = Schedule.plain(step.tasks)
            continue

        outside = elsewhere[number] | {name for layer in step.tasks for name in layer.extra_reads}
        problem = StepProblem(config, step.tasks, outside, measure, found.plans)
        schedule = scheduler(problem) if scheduler is not None else None
        if schedule is None:
            schedule = _searched(problem, options.effort, _part(progress, number, len(steps)))
        verify_schedule(schedule, step, outside)
        found.of[number] = schedule
    return found


def _searched(problem: StepProblem, effort: int, progress: Callable[[float], None]) -> Schedule:
    """Returns the best schedule of a step that `effort` finds.

    Args:
        progress: called with the fraction done.
    """
    schedule, cost = search(problem, effort, _part(progress, 0, 4))
    if problem.measure is None or not effort:
        return schedule
    best = _refined(problem, schedule, cost, effort, progress)
    if effort > 1:  # what looks best at first need not be best in the end
        best = min(_refined(problem, *search(problem, 1), 1), best, key=attrgetter("cost"))
    if best.cost == math.inf:  # no schedule of the search makes a program that runs
        plain = Schedule.plain(problem.layers)
        problem.measured_by(_internal_fault_on_stop(problem.measure)).cost(plain)
        return plain
    return best.schedule


def _refined(
    problem: StepProblem,
    schedule: Schedule,
    cost: float | None,
    effort: int,
    progress: Callable[[float], None] = lambda done: None,
) -> Costed:
    """Returns the schedule with other tiles, residents and groups where exact cycles say that they are better.

    Args:
        cost: of the schedule, None if it was not measured.
        progress: called with the fraction done, of a search whose first quarter is over.
    """
    start = Costed(schedule, problem.cost(schedule) if cost is None else cost)
    tiled = refine_tiles(problem, start, effort, _part(progress, 1, 4))
    resident = refine_residency(problem, tiled, _part(progress, 2, 4))
    refined = refine_groups(problem, resident, _part(progress, 3, 4))
    if refined.schedule is schedule and cost is None:
        return start
    # Units that differ were compared so far, whose costs beside others may be a little different.
    exact = Costed(refined.schedule, problem.cost(refined.schedule))
    if refined.schedule is schedule or exact.cost < start.cost:
        return exact
    return min(exact, Costed(schedule, problem.cost(schedule)), key=attrgetter("cost"))


def _part(progress: Callable[[float], None], number: int, count: int) -> Callable[[float], None]:
    """Returns the progress callback of one of `count` equal parts: it takes the fraction done of that part."""
    return lambda fraction: progress((number + fraction) / count)


def _internal_fault_on_stop(measure: Measure) -> Measure:
    """A cost function with which a program that the machine stops is an internal fault."""

    def measured(config: NpuConfig, image: bytes, arena_bytes: int) -> float:
        try:
            return measure(config, image, arena_bytes)
        except DeviceError as error:
            raise RuntimeError(f"no schedule makes a program that runs: {error}") from error

    return measured


def verify_schedule(schedule: Schedule, step: LayerStep, outside: set[str]) -> None:
    """Raises `CompileError` unless every layer of the step runs once, in order, and what other steps read (`outside`)
    leaves the chip."""
    layers = [layer for unit in schedule.units for layer in unit.layers]
    if len(layers) != len(step.tasks) or any(a is not b for a, b in zip(layers, step.tasks, strict=True)):
        raise CompileError(f"schedule broken: {len(layers)} layers are not the {len(step.tasks)} of the step in order")
    on_chip = {stay.view.buffer for stay in schedule.stays}
    on_chip |= {between.view.buffer for unit in schedule.units for between in unit.between}
    if on_chip & outside:
        raise CompileError(f"schedule broken: {min(on_chip & outside)!r} stays on the chip, but another step reads it")
