"""Schedule: what stays in the scratchpads between layers, and which layers run together."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct, field

from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.schedule.problem import Measure, Schedule, Scheduler, StepProblem
from tilewright.compiler.npu.schedule.search import search
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.stages.order import LayerStep, Step, reads_elsewhere
from tilewright.isa.config import NpuConfig


class Schedules(Struct):
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
    read_behind: Collection[str] = (),
    measure: Measure | None = None,
    scheduler: Scheduler | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> Schedules:
    """Finds a schedule for every NPU step. Where all tensors are kept, everything goes through memory.

    Args:
        read_behind: buffers that the runtime reads behind a run.
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
        outside.update(read_behind)
        problem = StepProblem(config, step.tasks, outside, measure, found.plans)
        schedule = scheduler(problem) if scheduler is not None else None
        if schedule is None:
            schedule = search(problem, options.effort, _part(progress, number, len(steps)))
        verify_schedule(schedule, step, outside)
        found.of[number] = schedule
    return found


def _part(progress: Callable[[float], None], number: int, count: int) -> Callable[[float], None]:
    """Returns the progress callback of one of `count` equal parts: it takes the fraction done of that part."""
    return lambda fraction: progress((number + fraction) / count)


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
