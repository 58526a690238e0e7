"""`compile_graph`: the whole compiler as one readable sequence, from imported graph to program."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from compiler import cpu
from compiler.errors import CompileError
from compiler.graph import Graph
from compiler.npu.schedule.search import MAX_EFFORT, Measure, Scheduler
from compiler.passes import FRONTEND, run_passes
from compiler.stages.emission import emit
from compiler.stages.memory import place_memory
from compiler.stages.order import describe_steps, order_steps
from compiler.stages.package import compiler_version, package
from compiler.stages.partition import partition
from compiler.stages.schedule import schedule_steps
from compiler.stages.segments import compile_segments
from isa.config import NpuConfig
from isa.program import Program

#: Stages after the front end that `print_after` knows.
BACKEND = ("partition", "schedule", "allocate", "emit")


def compile_graph(
    graph: Graph,
    config: NpuConfig,
    *,
    keep: str = "outputs",
    effort: int = 1,
    print_after: Collection[str] = (),
    progress: Callable[[str, float], None] | None = None,
    cpu_only: bool = False,
    host: cpu.Target | None = None,
    threads: int = 1,
    measure: Measure | None = None,
    scheduler: Scheduler | None = None,
    out: Callable[[str], object] = print,
) -> Program:
    """Compiles an imported graph (changed in place).

    Args:
        keep: "outputs", or "all" to store every quantised tensor in memory: nothing is fused away, nothing reused.
        effort: of the schedule search: 0 no fusion, 1 fusion by counting, 2 and 3 several schedules by `measure`.
        print_after: names of passes or back-end stages to print after ("all" for every one).
        progress: called with a stage name and the fraction done.
        cpu_only: leave the NPU out.
        host: the machine the CPU kernels are for; None for this one.
        threads: that share the work of every CPU kernel.
        measure: exact cycles of an instruction image, for efforts 2 and 3.
        scheduler: asked first for the schedule of every NPU step; None from it leaves the step to the search.

    Raises:
        CompileError: the graph cannot be compiled.
    """
    started = time.perf_counter()
    report = progress or (lambda stage, fraction: None)
    front = [n for n in print_after if n not in BACKEND]
    for name in front:
        if name != "all" and name not in {p.name for p in FRONTEND}:
            known = ", ".join([*(p.name for p in FRONTEND), *BACKEND])
            raise CompileError(f"unknown pass {name!r}; the passes are {known} (or all)")
    if not 0 <= effort <= MAX_EFFORT:
        raise CompileError(f"effort must be 0..{MAX_EFFORT}, not {effort!r}")

    def printing(stage: str) -> bool:
        return stage in print_after or "all" in print_after

    keep_all, target = keep == "all", host or cpu.Target.host()

    report("front end", 0.0)
    run_passes(graph, FRONTEND, front, out)

    report("partition", 0.1)
    parts = partition(graph, config, keep_all=keep_all, cpu_only=cpu_only)
    steps = order_steps(graph, parts, keep_all=keep_all)
    if printing("partition"):
        out("\n".join([describe_steps(steps), *(f"on the CPU: {name}: {why}" for name, why in parts.reasons.items())]))

    report("schedule", 0.1)
    schedules = schedule_steps(
        config, steps, keep_all=keep_all, effort=effort, measure=measure, scheduler=scheduler,
        progress=lambda done: report("schedule", 0.1 + 0.4 * done),
    )  # fmt: skip

    segments = compile_segments(graph, parts, steps, keep_all=keep_all, target=target, threads=threads)

    memory = place_memory(graph, parts, steps, schedules, segments, keep_all=keep_all)
    memory.verify()
    if printing("allocate"):
        out(str(memory))

    emission = emit(graph, config, steps, schedules, segments, memory, lambda done: report("emit", 0.5 + 0.5 * done))
    emission.verify()
    if printing("schedule"):  # the tiles are known now
        out(emission.describe_layers())
    if printing("emit"):
        out(emission.describe_instructions())

    program = package(
        graph, config, parts, segments, memory, emission, keep_all=keep_all, target=target, threads=threads
    )
    program.compile_seconds = time.perf_counter() - started
    report("done", 1.0)
    return program


__all__ = ["BACKEND", "compile_graph", "compiler_version"]
