"""Branches and bodies of ONNX nodes, the names they capture from enclosing graphs, and topological order of nodes."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, MutableSequence

import onnx


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The subgraphs among a node's attributes."""
    return [graph for a in node.attribute for graph in (*([a.g] if a.HasField("g") else []), *a.graphs)]


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, each followed by those of its subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def reads_of(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """The names that the nodes read from outside, those inside subgraphs included, in order of first use."""
    made: set[str] = set()
    found: dict[str, None] = {}
    for node in nodes:
        for name in (*node.input, *(n for graph in subgraphs(node) for n in captured(graph))):
            if name and name not in made:
                found[name] = None
        made.update(node.output)
    return list(found)


def captured(graph: onnx.GraphProto) -> list[str]:
    """The names that a subgraph captures from enclosing graphs."""
    own = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    made = {o for node in graph.node for o in node.output}
    handed = [o.name for o in graph.output if o.name not in made]
    return [name for name in dict.fromkeys([*reads_of(graph.node), *handed]) if name not in own]


def sort_model(model: onnx.ModelProto) -> None:
    """Sorts the nodes of all graphs and functions of a model, in place, into topological order.

    ONNX requires that order; onnxruntime runs models without it. Nodes already in order stay unchanged, and so do those
    of a cycle, which the checker reports.
    """
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        _sort(nodes)


def _sort(nodes: MutableSequence[onnx.NodeProto]) -> None:
    for node in nodes:
        for graph in subgraphs(node):
            _sort(graph.node)
    made = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = [{made[name] for name in reads_of([node]) if name in made} for node in nodes]
    if all(before < index for index, some in enumerate(needs) for before in some):
        return
    users: list[list[int]] = [[] for _ in nodes]
    for index, some in enumerate(needs):
        for before in some:
            users[before].append(index)
    ready = [index for index, some in enumerate(needs) if not some]  # a heap: the order of the model where there is one
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users[index]:
            needs[user].discard(index)
            if not needs[user]:
                heapq.heappush(ready, user)
    if len(order) == len(needs):
        kept = list(nodes)
        del nodes[:]
        nodes.extend(kept[index] for index in order)
