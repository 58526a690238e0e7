"""Builds a program from a model: the importer, the compiler, and sections for the program's user."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tilewright.api.source import ModelSource
from tilewright.common.native import build_ahead
from tilewright.compiler.npu.emit import assembler
from tilewright.compiler.npu.emit.context import ConstantPool
from tilewright.compiler.npu.schedule.problem import Measure, Scheduler
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.compiler.stages.link import link
from tilewright.export import RUNTIME_HEADER, runtime_header
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.runtime.cost import measure
from tilewright.simulator import cycle
from tilewright.tuning.apply import Build, build_tuned
from tilewright.tuning.schedule_file import GivenSchedule

#: Load the native code that programs for the NPU are compiled with. Each takes seconds to build, once.
NATIVE = (assembler.library, cycle.library)

__all__ = ["build_entries", "build_scheduled", "build_tuned", "builder"]


def build_entries(
    source: ModelSource,
    entries: Mapping[str, Mapping[str, Sequence[int]]],
    config: NpuConfig,
    options: CompileOptions,
    progress: Callable[[str, float], None] | None = None,
) -> Program:
    """One program with an entry point for each set of shapes.

    Args:
        entries: shapes of inputs, as in `source` and beside those, by the name of the entry point.

    Raises:
        CompileError: the model is damaged, or its shapes are not known, or the entry points keep other states.
    """
    pool, title = ConstantPool(shared=True), ""
    programs: dict[str, Program] = {}
    cost = functools.partial(measure, timing=options.memory)
    source = source.read()
    for number, (name, shapes) in enumerate(entries.items()):

        def done(stage: str, fraction: float, number: int = number, name: str = name) -> None:
            if progress is not None:
                progress(f"{name}: {stage}", (number + fraction) / len(entries))

        graph = replace(source, shapes={**(source.shapes or {}), **shapes}).graph()
        graph.windows = [window for other in programs.values() for window in other.windows]
        title = graph.name
        programs[name] = compile_graph(graph, config, options, progress=done, measure=cost, constants=pool)
    return link(title, programs, pool.blob())


def build_scheduled(build: Build, path: str | Path) -> Program:
    """One program with the schedule of a file.

    Raises:
        UsageError: the schedule is for other layers, or cannot run on the machine.
    """
    given = GivenSchedule(path)
    program = build(given)
    given.require_all_used()
    return program


def builder(
    source: ModelSource,
    config: NpuConfig,
    options: CompileOptions | None = None,
    progress: Callable[[str, float], None] | None = None,
    compared_by: Measure | None = None,
) -> Build:
    """Returns a function that compiles a model, once per call, with the schedules of the scheduler it is given.

    Args:
        compared_by: cost of schedules, which efforts 2 and 3 compare; by default cycles with the memory of the options.
    """
    chosen = options or CompileOptions()

    def build(scheduler: Scheduler | None) -> Program:
        graph = source.graph()
        if not chosen.cpu_only and any(t.dtype.name in ("int8", "uint8") for t in graph.tensors.values()):
            build_ahead(*NATIVE if chosen.effort else NATIVE[:1])  # without effort no cycles are compared
        cost = compared_by or functools.partial(measure, timing=chosen.memory)
        program = compile_graph(graph, config, chosen, progress=progress, measure=cost, scheduler=scheduler)
        if chosen.host is not None:
            program.sections[RUNTIME_HEADER] = runtime_header()
        return program

    return build
