"""The quantised graph of a model as plain data: the importer and the front end, and nothing of the compiler behind."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.api.source import ModelSource
from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.passes import FRONTEND, run_passes
from tilewright.prove.checker.graph import QuantisedGraph, Step, Value

#: Passes of the front end that the proof covers, as it does all rewrites for the NPU, and what makes instructions of
#: them. The others are trusted.
COVERED = ("raise_tables", "fuse_activation", "drop_rows")
TRUSTED = tuple(each for each in FRONTEND if each.name not in COVERED)


def trusted_graph(source: ModelSource) -> Graph:
    """The graph of a model behind the trusted passes.

    Raises:
        CompileError: the model cannot be imported.
    """
    graph = source.graph()
    run_passes(graph, TRUSTED)
    return graph


def plain_graph(graph: Graph) -> QuantisedGraph:
    """A graph as plain data."""
    steps = tuple(plain_step(node) for node in graph.nodes)
    states = {state.name: (state.begin, state.end, state.initial) for state in graph.states}
    return QuantisedGraph(plain_values(graph), steps, tuple(graph.inputs), tuple(graph.outputs), states=states)


def plain_step(node: Node) -> Step:
    """A node as plain data."""
    given = node.attrs if node.quantized is None else vars(node.quantized)
    attributes = {name: _plain(value) for name, value in given.items()}
    return Step(node.op, node.name, tuple(node.inputs), tuple(node.outputs), attributes)


def plain_values(graph: Graph) -> dict[str, Value]:
    """The tensors of a graph as plain data."""
    found = {}
    for name, t in graph.tensors.items():
        q = t.quant
        found[name] = Value(t.shape, t.dtype, t.data) if q is None else Value(
            t.shape, t.dtype, t.data, q.scale, q.zero_point, q.axis)  # fmt: skip
    return found


def _plain(value: Any) -> Any:
    """An attribute of numbers, texts, bytes, arrays, lists, tuples and tables; any other object is its fields, or the
    text that describes it."""
    if value is None or isinstance(value, bool | int | float | str | bytes | np.ndarray):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return type(value)(_plain(v) for v in value)
    if isinstance(value, dict):
        return {_plain(k): _plain(v) for k, v in value.items()}
    for fields in ("__dataclass_fields__", "__struct_fields__"):
        if hasattr(value, fields):
            return {name: _plain(getattr(value, name)) for name in getattr(value, fields)}
    return repr(value)
