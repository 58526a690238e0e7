"""Both sides of a proof from the compiler: the quantised graph as plain data, and the program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.api.build import ModelSource
from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.passes import FRONTEND, run_passes
from tilewright.compiler.stages.order import NodeStep, order_steps
from tilewright.compiler.stages.partition import partition
from tilewright.isa.config import NpuConfig
from tilewright.prove.graph import QuantisedGraph, Step, Value

#: The last pass of the front end that is trusted: the proof covers the passes behind it, all rewrites for the NPU, and
#: what makes instructions of them.
LAST_TRUSTED = FRONTEND[-1].name


def quantised_graph(
    model: str | Path | bytes, config: NpuConfig, options: CompileOptions, shapes: Mapping[str, Any] | None = None
) -> QuantisedGraph:
    """The graph of a model behind `LAST_TRUSTED`, with the nodes of the CPU steps that the compiler makes of it.

    Raises:
        CompileError: the model cannot be compiled.
    """
    graph = ModelSource(model, shapes).graph()
    at = [p.name for p in FRONTEND].index(LAST_TRUSTED) + 1
    run_passes(graph, FRONTEND[:at])
    steps = tuple(_step(node) for node in graph.nodes)
    values, ends = _values(graph), (tuple(graph.inputs), tuple(graph.outputs))
    run_passes(graph, FRONTEND[at:])
    parts = partition(graph, config, options)
    ordered = order_steps(graph, parts, options)
    work = {
        number: tuple(_step(node) for node in step.tasks)
        for number, step in enumerate(ordered)
        if isinstance(step, NodeStep)
    }
    return QuantisedGraph(_values(graph) | values, steps, *ends, work)


def _step(node: Node) -> Step:
    attributes = node.attrs if node.quantized is None else vars(node.quantized)
    return Step(node.op, node.name, tuple(node.inputs), tuple(node.outputs), dict(attributes))


def _values(graph: Graph) -> dict[str, Value]:
    found = {}
    for name, t in graph.tensors.items():
        q = t.quant
        found[name] = Value(t.shape, t.dtype, t.data) if q is None else Value(
            t.shape, t.dtype, t.data, q.scale, q.zero_point, q.axis)  # fmt: skip
    return found
