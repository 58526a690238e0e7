"""Builds a program from a model: the importer, the compiler, and sections for the program's user."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from tilewright.common.native import build_ahead
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.graph.states import declare_states, paired_by_name
from tilewright.compiler.npu.emit import assembler
from tilewright.compiler.npu.emit.context import ConstantPool
from tilewright.compiler.npu.schedule.problem import Measure, Scheduler
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.compiler.stages.link import link
from tilewright.errors import UsageError
from tilewright.export import RUNTIME_HEADER, runtime_header
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.runtime.cost import measure
from tilewright.simulator import cycle
from tilewright.store.files import is_tflite
from tilewright.tuning.apply import Build, build_tuned

#: Load the native code that programs for the NPU are compiled with. Each takes seconds to build, once.
NATIVE = (assembler.library, cycle.library)

__all__ = ["ModelSource", "build_entries", "build_tuned", "builder"]


@dataclass(frozen=True)
class ModelSource:
    """A model to compile, with what fixes its shapes.

    Attributes:
        model: ONNX or TFLite file, its bytes, or an ONNX ModelProto (left unchanged).
        shapes: shape per input, needed where the model leaves dimensions open.
        constants: values of inputs to fix now, by name.
        staged: long loops and large branches are refused (StagingError), not unrolled and run in vain.
        states: of an ONNX model, the outputs that set inputs for the next run, by input; "auto" for inputs called
            past... with outputs called present....
        batch: size of batches that an ONNX model and `shapes` leave open, with a note in the program; None to refuse
            them.
    """

    model: str | Path | bytes | onnx.ModelProto
    shapes: Mapping[str, Sequence[int]] | None = None
    constants: Mapping[str, Any] | None = None
    staged: bool = False
    states: Mapping[str, str] | str | None = None
    batch: int | None = 1

    def graph(self) -> Graph:
        """The model as a graph of its own, called as its file if it comes from one.

        Raises:
            CompileError: the model is damaged, or its shapes are not known.
        """
        shapes = dict(self.shapes) if self.shapes else None
        if is_tflite(self.model):
            if self.constants:
                raise UsageError("values of inputs can be fixed in ONNX models only")
            if self.states:
                raise UsageError("states are named for ONNX models only: a TFLite model has variables")
            # each importer is imported with the package of its format
            from tilewright.compiler.importer.tflite import import_tflite

            graph = import_tflite(self.model, shapes)
        else:
            from tilewright.compiler.importer.onnx import import_onnx

            graph = import_onnx(self.model, shapes, dict(self.constants or {}), self.staged, self.batch)
            if self.states:
                declare_states(graph, self._pairs(graph))
        if isinstance(self.model, str | Path):
            graph.name = Path(self.model).stem
        return graph

    def _pairs(self, graph: Graph) -> Mapping[str, str]:
        """The output that sets each state, by the name of the input. Raises `UsageError` where none is found."""
        if not isinstance(self.states, str):
            return self.states or {}
        found = paired_by_name(graph.inputs, graph.outputs) if self.states == "auto" else {}
        if not found:
            raise UsageError(
                f"no input is called past... with an output called present... (inputs: {', '.join(graph.inputs)}); "
                "name the states as INPUT=OUTPUT"
            )
        return found


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
    pool, programs, title = ConstantPool(shared=True), {}, ""
    cost = functools.partial(measure, timing=options.memory)
    for number, (name, shapes) in enumerate(entries.items()):

        def done(stage: str, fraction: float, number: int = number, name: str = name) -> None:
            if progress is not None:
                progress(f"{name}: {stage}", (number + fraction) / len(entries))

        graph = replace(source, shapes={**(source.shapes or {}), **shapes}).graph()
        title = graph.name
        programs[name] = compile_graph(graph, config, options, progress=done, measure=cost, constants=pool)
    return link(title, programs, pool.blob())


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
