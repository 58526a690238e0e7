"""`compile_graph`: the whole compiler as one readable sequence, from imported graph to program."""

from __future__ import annotations

import time
from collections.abc import Callable

from tilewright.compiler import cpu
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.mlir.printing import after_stage
from tilewright.compiler.npu.emit.context import ConstantPool
from tilewright.compiler.npu.schedule.problem import Measure, Scheduler
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.passes import FRONTEND, run_passes
from tilewright.compiler.stages.emission import emit
from tilewright.compiler.stages.input_ranges import input_ranges
from tilewright.compiler.stages.memory import place_memory
from tilewright.compiler.stages.order import describe_steps, order_steps
from tilewright.compiler.stages.package import package
from tilewright.compiler.stages.partition import partition
from tilewright.compiler.stages.schedule import schedule_steps
from tilewright.compiler.stages.segments import describe_segments, prepare_segments
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program


def compile_graph(
    graph: Graph,
    config: NpuConfig,
    options: CompileOptions | None = None,
    *,
    progress: Callable[[str, float], None] | None = None,
    measure: Measure | None = None,
    scheduler: Scheduler | None = None,
    constants: ConstantPool | None = None,
    out: Callable[[str], object] = print,
) -> Program:
    """Compiles an imported graph (changed in place).

    Args:
        options: compile options; None for the defaults.
        progress: called with the name of a stage and the fraction done.
        measure: cost of an instruction image, such as its exact cycles, for efforts 2 and 3.
        scheduler: called first for the schedule of every NPU step; None from it leaves the step to the search.
        constants: receives the constants of the NPU, beside those of other programs of the same memory.
        out: output of `options.print_after`.

    Raises:
        CompileError: the graph cannot be compiled.
    """
    started = time.perf_counter()
    chosen = options or CompileOptions()
    report = progress or (lambda stage, done: None)

    def show(stage: str, text: Callable[[], str]) -> None:
        if chosen.prints(stage):
            out(after_stage(stage, text(), chosen.print_form))

    ranges = input_ranges(graph)  # before anything moves
    report("front end", 0.0)
    run_passes(graph, FRONTEND, chosen.print_after, out, chosen.print_form)

    report("partition", 0.1)
    parts = partition(graph, config, chosen, out)
    show("place", parts.placement.__str__)
    show("tails", parts.describe_work)
    show("layouts", parts.layouts.__str__)
    show("tasks", parts.describe_tasks)
    steps = order_steps(graph, parts, chosen)
    show("partition", lambda: describe_steps(steps, parts))

    segments = prepare_segments(graph, parts, steps, chosen)
    show("segments", lambda: describe_segments(segments))

    with cpu.compiled_beside([*segments.values()]) as compile_kernels:  # LLVM needs nothing of the NPU's side
        report("schedule", 0.1)
        schedules = schedule_steps(
            config, steps, chosen, read_behind=parts.read_behind, measure=measure, scheduler=scheduler,
            progress=lambda done: report("schedule", 0.1 + 0.4 * done),
        )  # fmt: skip

        memory = place_memory(graph, parts, steps, schedules, segments, chosen, constants)
        show("allocate", memory.__str__)

        emission = emit(
            graph, config, steps, schedules, segments, memory, chosen, read_behind=parts.read_behind,
            progress=lambda done: report("emit", 0.5 + 0.4 * done),
        )  # fmt: skip
        show("schedule", emission.describe_layers)  # only now are the tiles known
        show("tiles", lambda: "\n".join(emission.tiles))
        show("emit", emission.describe_instructions)

        report("kernels", 0.9)
        compile_kernels()

    program = package(graph, config, parts, segments, memory, emission, chosen, ranges)
    program.compile_seconds = time.perf_counter() - started
    report("done", 1.0)
    return program
