"""Boxes of tensors, and the box of the operand that an op with constant indices reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node

#: First and end along every axis.
Box = tuple[tuple[int, int], ...]


def whole_box(shape: Sequence[int]) -> Box:
    return tuple((0, size) for size in shape)


def taken_box(graph: Graph, node: Node) -> Box | None:
    """The box of the operand that a Slice or a Gather with constant indices reads, None for any other op."""
    shape = graph.tensor(node.inputs[0]).shape if node.inputs and node.inputs[0] else ()
    box = list(whole_box(shape))
    constants = [graph.const(name) for name in node.inputs[1:] if name]
    if node.op not in ("Slice", "Gather") or not shape or not constants or any(c is None for c in constants):
        return None
    values = [[int(v) for v in c.reshape(-1)] for c in constants if c is not None]
    if node.op == "Gather":
        axis = int(node.attrs.get("axis", 0)) % len(shape)
        places = [v % shape[axis] for v in values[0]]
        box[axis] = (min(places), max(places) + 1) if places else box[axis]
        return tuple(box)
    if len(values) != 4 or any(step != 1 for step in values[3]):
        return None
    for start, end, axis in zip(*values[:3], strict=True):
        first, last, _ = slice(start, end).indices(shape[axis])
        box[axis % len(shape)] = (first, last) if last > first else box[axis]
    return tuple(box)


def bounds_of(graph: Graph, first: int, end: int, axis: int) -> list[str]:
    """The constant inputs of a Slice of first..end-1 along one axis."""
    return [graph.constant("part", np.array([v], np.int64)) for v in (first, end, axis, 1)]


def in_order(graph: Graph, node: Node) -> bool:
    """True if a Slice or Gather takes all places of its box, each once, the first one first."""
    if node.op == "Slice":
        return True
    size = graph.tensor(node.inputs[0]).shape[int(node.attrs.get("axis", 0))]
    places = np.asarray(graph.const(node.inputs[1])).reshape(-1) % size
    return places.size > 0 and places.tolist() == list(range(places[0], places[0] + len(places)))
