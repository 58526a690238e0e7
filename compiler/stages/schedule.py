"""Schedule: what stays in the scratchpads between layers, and which layers run together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule.refine_groups import regroup
from tilewright.compiler.npu.schedule.refine_residency import restay
from tilewright.compiler.npu.schedule.refine_tiles import refine
from tilewright.compiler.npu.schedule.search import Measure, Schedule, Scheduler, measure_schedule, search
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
        measure: exact cycles, see `tilewright.compiler.npu.schedule.search.search`.
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

        def part(quarter: int, number: int = number) -> Callable[[float], None]:
            return lambda fraction: progress((number + (quarter + fraction) / 4) / len(steps))

        searched, refined, stayed, regrouped = (part(quarter) for quarter in range(4))

        outside = elsewhere[number] | {name for layer in step.tasks for name in layer.extra_reads}
        schedule = scheduler(config, step.tasks, outside) if scheduler is not None else None
        if schedule is None:
            plans, effort = found.plans, options.effort
            schedule, cost = search(config, step.tasks, outside, effort, measure, plans, searched)
            if measure is not None and effort:
                later = refined, stayed, regrouped
                schedule, whole = _improve(config, step.tasks, outside, schedule, cost, effort, measure, plans, later)
                if effort > 1:  # what looks best at first need not be best in the end
                    usual, cost = search(config, step.tasks, outside, 1, measure, plans)
                    other = _improve(config, step.tasks, outside, usual, cost, 1, measure, plans)
                    schedule, whole = min(other, (schedule, whole), key=itemgetter(1))
                if whole == math.inf:  # no schedule of the search makes a program that runs
                    schedule = Schedule.plain(step.tasks)
                    measure_schedule(config, step.tasks, schedule, _or_fault(measure), plans)
        verify_schedule(schedule, step, outside)
        found.of[number] = schedule
    return found


def _improve(
    config: NpuConfig,
    layers: list[Layer],
    outside: set[str],
    schedule: Schedule,
    cost: float | None,
    effort: int,
    measure: Measure,
    plans: TilePlans,
    progress: Sequence[Callable[[float], None]] = (lambda done: None,) * 3,
) -> tuple[Schedule, float]:
    """The schedule with other tiles, residents and groups where exact cycles say that they are better; and its cost.

    Args:
        outside: buffers read after the step.
        cost: of the schedule, None if it was not measured.
        measure: cost function.
        progress: called with the fraction done, one of three after the other.
    """
    refined, stayed, regrouped = progress
    whole = cost if cost is not None else measure_schedule(config, layers, schedule, measure, plans)
    schedule, whole = refine(config, layers, outside, schedule, whole, effort, measure, plans, refined)
    schedule, whole = restay(config, layers, outside, schedule, whole, measure, plans, stayed)
    return regroup(config, layers, outside, schedule, whole, measure, plans, regrouped)


def _or_fault(measure: Measure) -> Measure:
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
