"""Values that the model's inputs may have: what float inputs can represent once they are quantised, and what integer
inputs may be that say places along an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.tensor import EIGHT_BIT

_SAME_VALUES = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Tile")
"""Ops whose result has all values of the first input, and no others."""


def input_ranges(graph: Graph) -> dict[str, tuple[float, float]]:
    """(lowest, highest) of inputs, by name. Of a graph as imported: the front end may move what reads them, and leaves
    out what makes no difference to the outputs, which the reference would refuse all the same."""
    return _represented(graph) | _places(graph)


def _represented(graph: Graph) -> dict[str, tuple[float, float]]:
    """Returns the range of every float input that nothing but one 8-bit QuantizeLinear reads."""
    ranges: dict[str, tuple[float, float]] = {}
    readers = graph.consumers()
    for name in graph.inputs:
        if len(readers.get(name, [])) != 1:
            continue
        node = readers[name][0]
        if node.op != "QuantizeLinear" or node.inputs[0] != name:
            continue
        scale = graph.const(node.inputs[1])
        zero = graph.const(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
        dtype = graph.tensor(node.outputs[0]).dtype
        if scale is None or scale.size != 1 or dtype not in EIGHT_BIT:
            continue
        step, zero_point = float(scale.reshape(-1)[0]), 0 if zero is None else int(zero.reshape(-1)[0])
        limits = np.iinfo(dtype)
        if step:
            low, high = sorted(step * (int(limit) - zero_point) for limit in (limits.min, limits.max))
            ranges[name] = low, high
    return ranges


def _places(graph: Graph) -> dict[str, tuple[float, float]]:
    """Returns the range of every integer input all of whose values are used as places: tokens of an embedding, rows of
    a cache. From the ops that look there back to the inputs, as far as each value stays what it is, moves by a
    constant, or is a part of a sum."""
    limits: dict[str, tuple[int, int]] = {}

    def limit(name: str, low: int, high: int) -> None:
        tensor = graph.tensors.get(name)
        if tensor is not None and tensor.size and tensor.dtype.kind in "iu":
            lowest, highest = limits.get(name, (low, high))
            limits[name] = max(low, lowest), min(high, highest)

    for name, (low, high) in graph.limits.items():
        limit(name, low, high)
    for node in reversed(graph.nodes):
        _look(graph, node, limit)
        found = limits.get(node.outputs[0]) if node.outputs else None
        if found is not None and node.op == "ReduceSum":  # a sum of equal parts
            count = graph.tensor(node.inputs[0]).size // graph.tensor(node.outputs[0]).size
            limit(node.inputs[0], -(-found[0] // count), found[1] // count)
        elif found is not None:
            for name, moved in _sources(graph, node):
                limit(name, found[0] - moved[0], found[1] - moved[1])
    return {
        n: (float(low), float(high)) for n in graph.inputs if n in limits for low, high in [limits[n]] if low <= high
    }


def _look(graph: Graph, node: Node, limit: Callable[[str, int, int], None]) -> None:
    """Calls `limit` with what a node may be asked for: the rules of onnxruntime, which refuses all else."""
    if node.op in ("Gather", "GatherElements", "ScatterElements"):
        data = graph.tensor(node.inputs[0])
        if data.shape:
            size = data.shape[int(node.attrs.get("axis", 0))]
            limit(node.inputs[1], -size, size - 1)
    elif node.op in ("GatherND", "ScatterND"):
        shape = graph.tensor(node.inputs[0]).shape[int(node.attrs.get("batch_dims", 0)) :]
        for name, size in _columns(graph, node.inputs[1], shape):
            limit(name, -size, size - 1)
    elif node.op == "TensorScatter" and len(node.inputs) > 2:
        axis = int(node.attrs.get("axis", -2))
        size, new = (graph.tensor(name).shape[axis] for name in node.inputs[:2])
        circular = node.attrs.get("mode") == "circular"
        limit(node.inputs[2], 0, np.iinfo(np.int32).max if circular else size - new)
    elif node.op == "ReverseSequence":
        limit(node.inputs[1], 0, graph.tensor(node.inputs[0]).shape[int(node.attrs.get("time_axis", 0))])


def _columns(graph: Graph, places: str, shape: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """Tensors with places along several axes, each with the largest size of the axes that it has places of."""
    maker = graph.producers().get(places)
    last = len(graph.tensor(places).shape) - 1
    joined = maker is not None and maker.op == "Concat" and int(maker.attrs["axis"]) in (-1, last)
    at = 0
    for part in maker.inputs if maker is not None and joined else [places]:
        sizes = shape[at : at + graph.tensor(part).shape[-1]]
        at += len(sizes)
        if sizes:
            yield part, max(sizes)


def _sources(graph: Graph, node: Node) -> list[tuple[str, tuple[int, int]]]:
    """Yields the tensors that a node's values come from, and by how much the lowest and the highest of them have
    moved."""
    if node.op in _SAME_VALUES:
        return [(node.inputs[0], (0, 0))]
    if node.op == "Concat":
        return [(name, (0, 0)) for name in node.inputs]
    if node.op == "Cast":
        before, after = (graph.tensor(n).dtype.itemsize for n in (node.inputs[0], node.outputs[0]))
        return [(node.inputs[0], (0, 0))] if after >= min(before, 4) else []
    if node.op in ("Add", "Sub"):
        for name, other in (node.inputs, node.inputs[::-1])[: 2 if node.op == "Add" else 1]:
            constant = graph.const(other)
            if constant is not None and constant.size and 1 in (constant.size, graph.tensor(name).size):
                low, high = sorted(int(v) * (1 if node.op == "Add" else -1) for v in (constant.min(), constant.max()))
                return [(name, (low, high))]
    return []
