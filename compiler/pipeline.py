"""`compile_graph`: the whole compiler as one readable sequence, from imported graph to program."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from compiler.graph import Graph
from compiler.npu.schedule.search import Measure, Scheduler
from compiler.options import CompileOptions
from compiler.passes import FRONTEND, run_passes
from compiler.stages.emission import emit
from compiler.stages.memory import place_memory
from compiler.stages.order import order_steps
from compiler.stages.package import package
from compiler.stages.partition import partition
from compiler.stages.schedule import schedule_steps
from compiler.stages.segments import compile_segments, describe_segments
from isa.config import NpuConfig
from isa.program import Program


def compile_graph(
    graph: Graph,
    config: NpuConfig,
    options: CompileOptions | None = None,
    *,
    progress: Callable[[str, float], None] | None = None,
    measure: Measure | None = None,
    scheduler: Scheduler | None = None,
    out: Callable[[str], object] = print,
    **chosen: Any,
) -> Program:
    """Compiles an imported graph (changed in place).

    Args:
        progress: called with the name of a stage and the fraction done.
        measure: exact cycles of an instruction image, for efforts 2 and 3.
        scheduler: asked first for the schedule of every NPU step; None from it leaves the step to the search.
        out: where `options.print_after` prints to.

    Raises:
        CompileError: the graph cannot be compiled.
    """
    started = time.perf_counter()
    if options is None:
        options = _options_of(chosen)
    report = progress or (lambda stage, done: None)

    def show(stage: str, text: Callable[[], str]) -> None:
        if options.prints(stage):
            out(text())

    report("front end", 0.0)
    run_passes(graph, FRONTEND, options.print_after, out)

    report("partition", 0.1)
    parts = partition(graph, config, options)
    show("place", parts.placement.__str__)
    show("tails", parts.describe_work)
    show("layouts", parts.layouts.__str__)
    show("tasks", parts.describe_tasks)
    steps = order_steps(graph, parts, options)
    show(
        "partition",
        lambda: "\n".join([*(f"step {n}: {step}" for n, step in enumerate(steps)), *parts.describe_reasons()]),
    )

    report("schedule", 0.1)
    schedules = schedule_steps(
        config, steps, options, measure=measure, scheduler=scheduler,
        progress=lambda done: report("schedule", 0.1 + 0.4 * done),
    )  # fmt: skip

    segments = compile_segments(graph, parts, steps, options)
    show("segments", lambda: describe_segments(segments))

    memory = place_memory(graph, parts, steps, schedules, segments, options)
    show("allocate", memory.__str__)

    emission = emit(graph, config, steps, schedules, segments, memory, lambda done: report("emit", 0.5 + 0.5 * done))
    show("schedule", emission.describe_layers)  # only now are the tiles known
    show("emit", emission.describe_instructions)

    program = package(graph, config, parts, segments, memory, emission, options)
    program.compile_seconds = time.perf_counter() - started
    report("done", 1.0)
    return program


def _options_of(chosen: dict[str, Any]) -> CompileOptions:
    """Options given one by one."""
    from compiler.cpu.target import HOSTS

    host = next((name for name, target in HOSTS.items() if target == chosen.get("host")), None)
    return CompileOptions(**chosen | {"host": host, "print_after": tuple(chosen.get("print_after", ()))})


__all__ = ["compile_graph"]
