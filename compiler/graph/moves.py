"""Index maps of data movement: the places of its operand that an op takes along each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.take import QTake
from tilewright.compiler.graph.resampling import Resampling

#: Places of the operand along each of its axes, in the order of the result; a range where they follow each other.
Places = tuple[Sequence[int], ...]
#: First and end along every axis.
Box = tuple[tuple[int, int], ...]


def places_of(graph: Graph, node: Node, output: int = 0) -> Places | None:
    """Returns the places that Slice, Split, Gather, Tile, Expand, Pad, Resize or QTake takes along each axis.

    None for other ops, and where the places of one axis depend on another, on a value that is not constant, or are
    outside of the operand (a Pad with a constant). Indices of a Gather count as one axis, whatever their rank is.

    Args:
        output: number of the result, for a Split.
    """
    if not node.inputs or not node.inputs[0]:
        return None
    shape, constants = graph.tensor(node.inputs[0]).shape, [graph.const(name) for name in node.inputs]
    if any(name and value is None for name, value in zip(node.inputs[1:], constants[1:], strict=True)):
        return None
    if isinstance(node.quantized, QTake):
        return node.quantized.places(shape)
    values = [[] if c is None else c.reshape(-1).tolist() for c in constants[1:]]
    found: list[Sequence[int]] = [range(n) for n in shape]
    match node.op:
        case "Slice":
            for start, end, axis, step in zip(*values, strict=True):  # bounds may count from the end
                found[axis] = range(*slice(start, end, step).indices(shape[axis]))
        case "Split":
            first = sum(values[0][:output])
            found[node.attrs["axis"]] = range(first, first + values[0][output])
        case "Gather" if shape:
            axis = int(node.attrs.get("axis", 0)) % len(shape)
            found[axis] = _followed([place % shape[axis] for place in values[0]])
        case "Tile" | "Expand":
            after = graph.tensor(node.outputs[0]).shape
            if len(after) != len(shape):
                return None
            found = [_followed([i % m for i in range(n)]) for m, n in zip(shape, after, strict=True)]
        case "Pad" if (mode := node.attrs["mode"]) != "constant":
            pads = zip(shape, *np.reshape(values[0], (2, -1)).tolist(), strict=True)
            found = [_followed(_padded(mode, n, before, after)) for n, before, after in pads]
        case "Resize":
            resampling = Resampling.of(graph, node)
            if resampling is None or resampling.crops or not resampling.copies(node.attrs["mode"]):
                return None
            found = [_followed(resampling.nearest(axis).tolist()) for axis in range(len(shape))]
        case _:
            return None
    return tuple(found)


def _followed(places: list[int]) -> Sequence[int]:
    """Places as a range, if each is the one behind the one before."""
    run = range(places[0], places[0] + len(places)) if places else range(0)
    return run if places == list(run) else places


def _padded(mode: str, n: int, before: int, after: int) -> list[int]:
    """Places along an axis of n values that is padded with values of its own; negative amounts crop."""
    at = np.arange(-before, n + after)
    if mode == "edge":
        at = np.clip(at, 0, n - 1)
    elif mode == "wrap":
        at = np.mod(at, n)
    else:
        at = n - 1 - np.abs(n - 1 - np.mod(at, max(2 * (n - 1), 1)))
    return [int(place) for place in at]


def is_box(places: Places) -> bool:
    """True if places follow each other along every axis, so that they are a part of the operand."""
    return all(isinstance(run, range) and run.step == 1 for run in places)


def box_of(places: Places) -> Box:
    """The least box that has all places, of which there is one or more along every axis."""
    return tuple((min(run), max(run) + 1) for run in places)


def whole_box(shape: Sequence[int]) -> Box:
    return tuple((0, size) for size in shape)


def taken_box(graph: Graph, node: Node) -> Box | None:
    """The box of the operand that a Slice without steps or a Gather with constant indices reads.

    None for other ops, and where nothing is read.
    """
    places = places_of(graph, node) if node.op in ("Slice", "Gather") else None
    if places is None or not all(places) or (node.op == "Slice" and not is_box(places)):
        return None
    return box_of(places)


def permutation(node: Node) -> list[int]:
    """The axis of its operand that each axis of a Transpose's result is."""
    return list(node.attrs.get("perm", ()))  # a tensor without axes has none


@dataclass
class Mover:
    """Appends moves to a list of nodes. What they make has the type and the scale of their operand.

    Every method returns the name of the result: `y`, or that of a new tensor. A move that would change nothing is left
    out where no `y` is given.

    Attributes:
        name, origin: of the nodes; by default each is named as its result.
        stem: what names of new tensors begin with; by default the name of the operand.
    """

    graph: Graph
    nodes: list[Node]
    name: str = ""
    origin: tuple[str, ...] = ()
    stem: str = ""

    def reshape(self, x: str, shape: Sequence[int], y: str = "") -> str:
        target = self.graph.constant("shape", np.array(shape, np.int64))
        return self._add("Reshape", [x, target], {"allowzero": 1}, shape, y)

    def transpose(self, x: str, perm: Sequence[int], y: str = "") -> str:
        shape = self.graph.tensor(x).shape
        return self._add("Transpose", [x], {"perm": list(perm)}, [shape[axis] for axis in perm], y)

    def slice(self, x: str, axis: int, first: int, end: int, y: str = "") -> str:
        bounds = [self.graph.constant("part", np.array([v], np.int64)) for v in (first, end, axis, 1)]
        shape = [end - first if a == axis else size for a, size in enumerate(self.graph.tensor(x).shape)]
        return self._add("Slice", [x, *bounds], {}, shape, y)

    def _add(self, op: str, inputs: list[str], attrs: dict[str, Any], shape: Sequence[int], y: str) -> str:
        x = self.graph.tensor(inputs[0])
        if not y and tuple(shape) == x.shape and attrs.get("perm", []) == sorted(attrs.get("perm", [])):
            return x.name
        made = y or self.graph.like(x, self.stem or f"{x.name}.moved", tuple(shape))
        self.nodes.append(Node(op, inputs, [made], attrs, self.name or made, self.origin))
        return made
