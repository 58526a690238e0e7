"""From a model to a program: the importer, the compiler, and what the program's user needs to know besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from compiler.cpu import Target
from compiler.graph import Graph
from compiler.importer import import_onnx
from compiler.importer.tflite import import_tflite
from compiler.npu.schedule.search import Scheduler
from compiler.pipeline import compile_graph
from isa.config import NpuConfig
from isa.program import Program
from tilewright.errors import UsageError
from tilewright.export import RUNTIME_HEADER, runtime_header
from tilewright.files import is_tflite
from tilewright.runtime.cost import measure
from tilewright.tuning.apply import build_tuned

__all__ = ["build_tuned", "builder", "import_model"]


def builder(
    model: str | Path | bytes | onnx.ModelProto,
    config: NpuConfig,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    constants: Mapping[str, Any] | None = None,
    staged: bool = False,
    keep: str = "outputs",
    host: str | None = None,
    cpu_only: bool = False,
    threads: int = 1,
    effort: int = 1,
    print_after: Sequence[str] = (),
    progress: Callable[[str, float], None] | None = None,
) -> Callable[[Scheduler | None], Program]:
    """What compiles a model, as often as it is called, with the schedules a scheduler gives; arguments as `compile`."""

    def build(scheduler: Scheduler | None) -> Program:
        graph = import_model(model, dict(shapes) if shapes else None, constants, staged)
        ranges = input_ranges(graph)
        program = compile_graph(
            graph,
            config,
            keep=keep,
            effort=effort,
            print_after=tuple(print_after),
            progress=progress,
            cpu_only=cpu_only,
            host=Target.named(host) if host is not None else None,
            threads=threads,
            measure=measure,
            scheduler=scheduler,
        )
        if host is not None:
            program.sections[RUNTIME_HEADER] = runtime_header()
        if ranges:
            program.options["input_ranges"] = ranges
        if isinstance(model, str | Path):
            program.name = Path(model).stem
        return program

    return build


def import_model(
    model: str | Path | bytes | onnx.ModelProto,
    shapes: dict[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    staged: bool = False,
) -> Graph:
    """The graph of an ONNX or TFLite model."""
    if is_tflite(model):
        if constants:
            raise UsageError("values of inputs can be fixed in ONNX models only")
        return import_tflite(model, shapes)  # type: ignore[arg-type]
    return import_onnx(model, shapes, dict(constants or {}), staged)  # type: ignore[arg-type]


def input_ranges(graph: Graph) -> dict[str, list[float]]:
    """For float inputs that are quantised right away: the real values that can be represented."""
    ranges: dict[str, list[float]] = {}
    users: dict[str, list[Any]] = graph.consumers()
    for name in graph.inputs:
        readers = users.get(name, [])
        if len(readers) != 1 or readers[0].op != "QuantizeLinear" or readers[0].inputs[0] != name:
            continue
        scale, zero = (graph.const(i) if i else None for i in (*readers[0].inputs[1:3], "")[:2])
        dtype = graph.tensor(readers[0].outputs[0]).dtype
        if scale is None or scale.size != 1 or dtype not in (np.dtype(np.int8), np.dtype(np.uint8)):
            continue
        s, z = float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]) if zero is not None else 0
        limits = np.iinfo(dtype)
        ranges[name] = [s * (int(limits.min) - z), s * (int(limits.max) - z)]
    return ranges
