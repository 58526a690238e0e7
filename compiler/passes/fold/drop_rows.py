"""Removes the computation of rows that nothing reads.

A network that classifies by one token reads one row of its last layers' results, and every row of a product, a norm, a
Softmax or an elementwise op depends on the rows at its place alone. So ops that select rows (Slice, Gather) move up
through such ops, and through Reshape and Transpose between them, to where all rows are needed: keys and values.

Tensors of some rows are no longer those of the model and get names of their own. Ops are left alone where no product
loses half of its rows: the NPU reads a part of a tensor in place, and would gain little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct, field

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.moves import Box, is_box, permutation, places_of, taken_box, whole_box
from tilewright.compiler.graph.ops.elementwise import Elementwise
from tilewright.compiler.graph.ops.norm import QNorm
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.softmax import QSoftmax
from tilewright.compiler.graph.tensor import Tensor


def drop_rows(graph: Graph) -> None:
    needs = _NeededBoxes(graph)
    for node in reversed(graph.nodes):
        needs.read_by(node)
    kept = _worth_narrowing(graph, needs)
    if kept:
        _Narrowing(graph, needs, kept).run()


class _NeededBoxes(Struct):
    """The least box of every tensor that its readers need; a node computes no more of its result."""

    graph: Graph
    boxes: dict[str, Box] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.graph.outputs:
            self.boxes[name] = whole_box(self.graph.tensor(name).shape)

    def read_by(self, node: Node) -> None:
        """Adds the boxes that a node reads; its readers were added before."""
        made = self._needed_box(node)
        for name in node.outputs:
            if name and name in self.boxes:
                self.boxes[name] = made if made is not None else whole_box(self.graph.tensor(name).shape)
        for index, name in enumerate(node.inputs):
            if name:
                box = self.of_operand(node, index)
                before = self.boxes.get(name, box)
                self.boxes[name] = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(before, box, strict=True))

    def narrowed(self, node: Node) -> bool:
        """True if a node makes only a part of its result."""
        name = node.outputs[0]
        made = self._needed_box(node)
        return made is not None and name in self.boxes and made != whole_box(self.graph.tensor(name).shape)

    def _needed_box(self, node: Node) -> Box | None:
        """The box of its result that a node has to make, None if it makes the whole or nothing is needed."""
        box = self.boxes.get(node.outputs[0]) if len(node.outputs) == 1 else None
        if box is None:
            return None
        shape = self.graph.tensor(node.outputs[0]).shape
        if node.op == "Reshape":
            pairs = dict(same_axes(self.graph.tensor(node.inputs[0]).shape, shape))
            free = set(pairs.values()) - {len(shape) - 1}
        elif node.op == "Transpose":
            free = set(range(len(shape)))
        elif _is_row_wise(node, shape):
            free = {len(shape) - 2}
        else:
            return None
        return tuple(b if axis in free else (0, size) for axis, (b, size) in enumerate(zip(box, shape)))

    def of_operand(self, node: Node, index: int) -> Box:
        """The box of an operand that a node reads to make its part of the result."""
        shape = self.graph.tensor(node.inputs[index]).shape
        taken = taken_box(self.graph, node) if index == 0 else None
        if taken is not None:
            return taken
        box, whole = self._needed_box(node), whole_box(shape)
        if box is None or any(size == 0 for size in shape):
            return whole
        if node.op == "Reshape":
            pairs = dict(same_axes(shape, self.graph.tensor(node.outputs[0]).shape)) if index == 0 else {}
            return tuple(box[pairs[axis]] if axis in pairs else full for axis, full in enumerate(whole))
        if node.op == "Transpose":
            return tuple(box[permutation(node).index(axis)] for axis in range(len(shape)))
        if isinstance(node.quantized, Elementwise):
            if len(shape) < 2 or shape[-2] == 1:
                return whole
            return (*whole[:-2], box[-2], whole[-1])
        return (*whole[:-2], box[-2], whole[-1]) if index == 0 else whole


def _is_row_wise(node: Node, shape: Sequence[int]) -> bool:
    """True if each row of the result depends on the operand's rows at that place, and on whole other operands."""
    op = node.quantized
    if len(shape) < 2:
        return False
    if isinstance(op, QSoftmax):
        return op.axis % len(shape) == len(shape) - 1
    return isinstance(op, (QMatMul, QNorm, Elementwise))


def same_axes(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of axes of more than one element that a Reshape leaves unchanged; none of a tensor without elements."""
    if 0 in before or 0 in after:
        return
    sources, targets = ([axis for axis, size in enumerate(shape) if size != 1] for shape in (before, after))
    while sources and targets:
        first, second = [sources.pop(0)], [targets.pop(0)]
        m, n = before[first[0]], after[second[0]]
        while m != n:
            axes, part = (sources, first) if m < n else (targets, second)
            part.append(axes.pop(0))
            m, n = (math.prod(shape[axis] for axis in part) for shape, part in ((before, first), (after, second)))
        if len(first) == len(second) == 1:
            yield first[0], second[0]


def _worth_narrowing(graph: Graph, needs: _NeededBoxes) -> set[str]:
    """The results of the connected narrowed nodes, with a product among them that loses half of its rows."""
    producers = graph.producers()
    narrowed = {node.outputs[0]: node for node in graph if needs.narrowed(node)}
    group = {name: name for name in narrowed}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    for name, node in narrowed.items():
        for operand in node.inputs:
            maker = producers.get(operand)
            if maker is not None and maker.outputs[0] in narrowed:
                group[root(operand)] = root(name)

    def saves(name: str) -> bool:
        first, end = needs.boxes[name][-2]
        return isinstance(narrowed[name].quantized, QMatMul) and 2 * (end - first) <= graph.tensor(name).shape[-2]

    found = {root(name) for name in narrowed if saves(name)}
    return {name for name in narrowed if root(name) in found}


class _Narrowing(Struct):
    """The rewriting: nodes of `kept` make only the needed boxes, from which their readers select the same elements."""

    graph: Graph
    needs: _NeededBoxes
    kept: set[str]
    there: dict[str, tuple[str, Box]] = field(default_factory=dict)
    cut: dict[tuple[str, Box], str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def run(self) -> None:
        graph = self.graph
        for node in graph.nodes:
            if node.outputs[0] in self.kept:
                self._narrow(node)
            elif node.inputs and node.inputs[0] in self.there:
                self._select(node)
            else:
                self.nodes.append(node)
        graph.nodes = self.nodes
        graph.prune()

    def _narrow(self, node: Node) -> None:
        graph, name = self.graph, node.outputs[0]
        inputs = [self._operand(i, self.needs.of_operand(node, n)) if i else i for n, i in enumerate(node.inputs)]
        box = self.needs.boxes[name]
        fresh = self._part(graph.tensor(name), box)
        if node.op == "Reshape":
            inputs[1] = graph.constant("shape", np.array([b - a for a, b in box], np.int64))
        self.nodes.append(replace(node, inputs=inputs, outputs=[fresh]))
        self.there[name] = fresh, box

    def _operand(self, name: str, box: Box) -> str:
        """The part of a tensor, in a tensor of its own."""
        source, has = self.there.get(name, (name, whole_box(self.graph.tensor(name).shape)))
        if has == box:
            return source
        if (name, box) not in self.cut:
            self.cut[name, box] = self._slice(source, has, box)
        return self.cut[name, box]

    def _slice(self, source: str, has: Box, box: Box) -> str:
        graph, tensor = self.graph, self.graph.tensor(source)
        if tensor.data is not None:
            part = tensor.data[tuple(slice(a - first, b - first) for (a, b), (first, _) in zip(box, has))]
            return graph.constant(source, np.ascontiguousarray(part), tensor.quant)
        fresh = self._part(tensor, box)
        self.nodes.append(Node("Slice", [source, *self._bounds(has, box)], [fresh], {}, fresh))
        return fresh

    def _bounds(self, has: Box, box: Box) -> list[str]:
        """The constant inputs of a Slice of a box out of a tensor that has another one."""
        cut = [(a - own[0], b - own[0], k, 1) for k, ((a, b), own) in enumerate(zip(box, has)) if (a, b) != own]
        return [self.graph.constant("rows", np.array(v, np.int64)) for v in zip(*cut)]

    def _part(self, tensor: Tensor, box: Box) -> str:
        fresh = self.graph.unique(f"{tensor.name}.rows")
        self.graph.add(Tensor(fresh, tuple(b - a for a, b in box), tensor.dtype, None, tensor.quant))
        return fresh

    def _select(self, node: Node) -> None:
        """Adds a Slice or Gather of the computed part of its operand."""
        source, has = self.there[node.inputs[0]]
        graph, places, box = self.graph, places_of(self.graph, node), taken_box(self.graph, node)
        assert places is not None and box is not None
        if box == has and is_box(places):
            shape = graph.constant("shape", np.array(graph.tensor(node.outputs[0]).shape, np.int64))
            self.nodes.append(Node("Reshape", [source, shape], node.outputs, {}, node.name, node.origin))
        elif node.op == "Slice":
            self.nodes.append(replace(node, inputs=[source, *self._bounds(has, box)]))
        else:
            axis = int(node.attrs["axis"]) % len(has)
            indices = np.array(places[axis], np.int64) - has[axis][0]
            rows = graph.constant("rows", indices.reshape(graph.tensor(node.inputs[1]).shape))
            self.nodes.append(replace(node, inputs=[source, rows]))
