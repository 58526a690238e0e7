"""Random graphs compiled for this CPU against onnxruntime and LiteRT; bytes no kernel may touch are watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from tests.common import onnx_models
from tests.common.segments import run_segment
from tilewright.api.source import ModelSource
from tilewright.compiler import cpu
from tilewright.compiler.cpu.target import Target
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.passes import run_passes
from verification.random_graphs.builder import RandomGraph
from verification.random_graphs.tflite import TfliteGraph

TOLERANCE = 1e-4  # relative and absolute, where results are rounded on the way


def differences(graph: RandomGraph, optimise: bool = True) -> list[str]:
    """Compiles a graph and compares it with onnxruntime; returns the faults, as texts.

    Args:
        optimise: the kernels as users have them; without, LLVM takes them as they are written, in a third of the time.
    """
    found, results = _compiled(ModelSource(graph.model).graph(), graph.feeds, optimise)
    return found + beside_onnxruntime(graph, results)


def beside_onnxruntime(graph: RandomGraph, results: Mapping[str, np.ndarray]) -> list[str]:
    """Compares results by name with onnxruntime's; returns the faults, as texts.

    Where onnxruntime joins quantised ops to one, which may round once less, that result is right as well.
    """
    wrong: list[str] = []
    for optimize in (False, True):
        want = onnx_models.run(graph.model, graph.feeds, optimize=optimize)
        wrong = [w for name, exact in graph.exact.items() for w in compared(name, results[name], want[name], exact)]
        if not wrong:
            break
    return wrong


def tflite_differences(graph: TfliteGraph, optimise: bool = True) -> list[str]:
    """Compiles a graph and compares it with LiteRT; returns the faults, as texts. Every result is exact."""
    interpreter = Interpreter(model_content=graph.data, num_threads=1)
    interpreter.allocate_tensors()
    for entry in interpreter.get_input_details():
        interpreter.set_tensor(entry["index"], graph.feeds[entry["name"]])
    interpreter.invoke()
    found, results = _compiled(ModelSource(graph.data).graph(), graph.feeds, optimise)
    for entry in interpreter.get_output_details():
        found += compared(entry["name"], results[entry["name"]], interpreter.get_tensor(entry["index"]), True)
    return found


def _compiled(graph: Graph, feeds: Mapping[str, np.ndarray], optimise: bool) -> tuple[list[str], dict[str, np.ndarray]]:
    """Compiles and runs a graph twice; returns the faults, as texts, and the results.

    The graph is compiled twice: as always, and with what is dead in the workspace poisoned and its buffers apart. The
    results must be the same to the bit.
    """
    run_passes(graph)
    packed = cpu.PackedConstants(graph)
    found: list[str] = []
    results = []
    for poison in (False, True):
        segment = cpu.compile_segment(
            graph, graph.nodes, graph.inputs, graph.outputs, "random", replace(Target.host(), optimise=optimise),
            packed=packed, poison=poison,
        )  # fmt: skip
        got, faults = run_segment(segment, graph, feeds)
        found += [f"{'poisoned: ' if poison else ''}{fault}" for fault in faults]
        results.append(dict(zip(segment.outputs, got, strict=True)))
    for name, value in results[0].items():
        if value.tobytes() != results[1][name].tobytes():
            found.append(f"{name}: another result in a poisoned workspace")
    return found, results[0]


def compared(name: str, got: np.ndarray, want: np.ndarray, exact: bool) -> list[str]:
    """Compares a result with the reference; returns the faults, as texts."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return [f"{name}: {got.dtype} {got.shape}, the reference has {want.dtype} {want.shape}"]
    if np.array_equal(got, want) if exact else np.allclose(got, want, TOLERANCE, TOLERANCE, equal_nan=True):
        return []
    return [f"{name}: {np.sum(got != want)} of {got.size} elements differ from the reference's"]
