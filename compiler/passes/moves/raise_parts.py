"""Selects parts of a packed tensor before it is divided.

    Gather | Slice | Split (Transpose(Reshape(x)))   =>   Transpose(Reshape(Slice(x)))

where the Reshape splits an axis of x and every reader takes a part along the first of the axes that this makes:
queries, keys and values that one product makes together. The parts of x lie beside each other in its rows, and each of
them is divided into heads by itself, as if a product of its own had made it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from msgspec import Struct

from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.graph.moves import Box, Mover, box_of, is_box, permutation, places_of


def raise_parts(graph: Graph) -> None:
    consumers = graph.consumers()
    changed = False
    for node in list(graph.nodes):
        if node.op == "Reshape":
            changed |= _raise_above(graph, consumers, node)
    if changed:
        graph.prune()


def _raise_above(graph: Graph, consumers: dict[str, list[Node]], reshape: Node) -> bool:
    """Selects all parts of a divided tensor in front of the Reshape that divides it; False where that is impossible."""
    divided = graph.tensor(reshape.outputs[0])
    perm, packed, readers = list(range(len(divided.shape))), divided, consumers.get(divided.name, [])
    if len(readers) == 1 and readers[0].op == "Transpose" and divided.name not in graph.outputs:
        perm = permutation(readers[0])
        packed = graph.tensor(readers[0].outputs[0])
        readers = consumers.get(packed.name, [])
    if not readers or packed.name in graph.outputs or 0 in packed.shape:
        return False
    moved: list[Node] = []
    for reader in readers:
        parts = list(_parts(graph, reader, packed))
        splits = [_part_of(graph, reshape, perm, box) for _, box in parts]
        if not parts or None in splits:
            return False
        for (name, box), split in zip(parts, splits, strict=True):
            assert split is not None
            moved += _selected_part(graph, reshape, perm, graph.tensor(name), box, split, reader)
    graph.nodes = [node for node in graph.nodes if not any(node is reader for reader in readers)]
    at = graph.nodes.index(reshape)
    graph.nodes[at:at] = moved
    return True


def _parts(graph: Graph, reader: Node, packed: Tensor) -> Iterator[tuple[str, Box]]:
    """The parts of a tensor that a node selects: names of its results, and the box of each; none for other nodes."""
    if reader.inputs[0] != packed.name or reader.op not in ("Split", "Slice", "Gather"):
        return
    for number, name in enumerate(reader.outputs):
        places = places_of(graph, reader, number)
        if name and places is not None and is_box(places) and all(places):
            yield name, box_of(places)


class _Cut(Struct, frozen=True):
    """The position of a part in the tensor.

    Attributes:
        axis: axis of the divided tensor that is cut.
        source: axis of the tensor before, which the Reshape split.
        first, end: range along `source`.
    """

    axis: int
    source: int
    first: int
    end: int


def _part_of(graph: Graph, reshape: Node, perm: list[int], box: Box) -> _Cut | None:
    """The position of a box as a part, None unless it is part of the first axis that the Reshape made of one."""
    before, after = (graph.tensor(name).shape for name in (reshape.inputs[0], reshape.outputs[0]))
    cut = [k for k, (first, end) in enumerate(box) if end - first != after[perm[k]]]
    if len(cut) != 1 or math.prod(after) == 0:
        return None
    axis, (first, end) = perm[cut[0]], box[cut[0]]
    for source, size in enumerate(before):
        if math.prod(before[:source]) == math.prod(after[:axis]) and size > after[axis] and size % after[axis] == 0:
            step = size // after[axis]
            return _Cut(axis, source, first * step, end * step) if end > first else None
    return None


def _selected_part(
    graph: Graph, reshape: Node, perm: list[int], result: Tensor, box: Box, cut: _Cut, reader: Node
) -> list[Node]:
    """The part of the packed tensor, divided and transposed, without an axis of size one, so heads look as usual."""
    x, divided = graph.tensor(reshape.inputs[0]), graph.tensor(reshape.outputs[0])
    count = box[perm.index(cut.axis)][1] - box[perm.index(cut.axis)][0]
    kept = [k for k in range(len(divided.shape)) if k != cut.axis or count > 1]
    sizes = [count if k == cut.axis else divided.shape[k] for k in kept]
    order = [kept.index(p) for p in perm if p in kept]

    nodes: list[Node] = []
    mover = Mover(graph, nodes, origin=reader.origin, stem=result.name)
    part = mover.slice(x.name, cut.source, cut.first, cut.end)
    heads = mover.reshape(part, sizes)
    turned = mover.transpose(heads, order)
    replace(mover, name=reader.name).reshape(turned, result.shape, result.name)
    return nodes
