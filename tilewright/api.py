"""`compile` and `load`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.config import NpuConfig
from isa.program import Program
from tilewright import program_cache
from tilewright.aot import RUNTIME_HEADER, runtime_header
from tilewright.errors import UsageError
from tilewright.files import is_tflite

if TYPE_CHECKING:
    import onnx

    from compiler.graph import Graph


def compile(
    model: str | Path | bytes | onnx.ModelProto,
    config: NpuConfig | str | Path = "base",
    shapes: Mapping[str, Sequence[int]] | None = None,
    keep: str = "outputs",
    *,
    host: str | None = None,
    cpu_only: bool = False,
    effort: int = 1,
    print_after: Sequence[str] = (),
    progress: Callable[[str, float], None] | None = None,
    cache: bool = True,
) -> Program:
    """Compiles a quantised model.

    Args:
        model: ONNX or TFLite file, its bytes, or an ONNX ModelProto (left unchanged).
        config: preset name, `.json` or `.toml` file, or `NpuConfig`.
        shapes: shape per input, needed where the model leaves dimensions open.
        keep: "outputs", or "all" to keep every quantised tensor in memory, to be looked at after a run.
        host: machine the CPU kernels are for ("aarch64-linux", ...; see `compiler.cpu.target.HOSTS`), None for this
            one. With a host the program carries the C header of its runtime; see `tilewright.export_c`.
        cpu_only: leave the NPU out.
        effort: how long to search for schedules, 0..3; 2 and 3 measure candidates with the cycle-level simulator.
        print_after: names of passes after which the graph is printed.
        progress: called with what is being done and the fraction done.

    Raises:
        TilewrightError: model or configuration cannot be compiled; one line with node, value and what is accepted.
    """
    if keep not in ("outputs", "all"):
        raise UsageError(f'keep must be "outputs" or "all", not {keep!r}')
    if isinstance(model, str | Path) and not Path(model).is_file():
        raise UsageError(f"no such model file: {model}")
    chosen = config if isinstance(config, NpuConfig) else NpuConfig.load(config)
    start = time.perf_counter()
    name = None
    if cache and not print_after:
        name = program_cache.key(
            model, chosen.to_dict(), dict(shapes) if shapes else None, keep, effort, host, cpu_only
        )
    found = program_cache.find(name) if name is not None else None
    if found is not None:
        found.compile_seconds = time.perf_counter() - start
        return found
    graph = import_model(model, dict(shapes) if shapes else None)
    ranges = _input_ranges(graph)
    from compiler.cpu import Target
    from compiler.pipeline import compile_graph
    from tilewright.cost import measure

    program = compile_graph(
        graph,
        chosen,
        keep=keep,
        effort=effort,
        print_after=tuple(print_after),
        progress=progress,
        cpu_only=cpu_only,
        host=Target.named(host) if host is not None else None,
        measure=measure,
    )
    if host is not None:
        program.sections[RUNTIME_HEADER] = runtime_header()
    if ranges:
        program.options["input_ranges"] = ranges
    if isinstance(model, str | Path):
        program.name = Path(model).stem
    program.compile_seconds = time.perf_counter() - start
    if name is not None:
        program_cache.keep(name, program)
    return program


def import_model(model: str | Path | bytes | onnx.ModelProto, shapes: dict[str, Sequence[int]] | None = None) -> Graph:
    """The graph of an ONNX or TFLite model."""
    if is_tflite(model):
        from compiler.importer.tflite import import_tflite

        return import_tflite(model, shapes)  # type: ignore[arg-type]
    from compiler.importer import import_onnx

    return import_onnx(model, shapes)  # type: ignore[arg-type]


def load(path: str | Path) -> Program:
    """Reads a compiled program. Raises `isa.ProgramError` if it is unreadable or damaged."""
    return Program.load(path)


def _input_ranges(graph: Graph) -> dict[str, list[float]]:
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
