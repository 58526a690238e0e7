"""The branches and bodies of ONNX nodes, and what they take from the graphs around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The subgraphs among a node's attributes."""
    return [graph for a in node.attribute for graph in (*([a.g] if a.HasField("g") else []), *a.graphs)]


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, each followed by those inside of it."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def reads_of(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """Names the nodes take from outside, those inside subgraphs included, in order of first use."""
    made: set[str] = set()
    found: dict[str, None] = {}
    for node in nodes:
        for name in (*node.input, *(n for graph in subgraphs(node) for n in captured(graph))):
            if name and name not in made:
                found[name] = None
        made.update(node.output)
    return list(found)


def captured(graph: onnx.GraphProto) -> list[str]:
    """Names a subgraph takes from the graphs around it."""
    own = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    made = {o for node in graph.node for o in node.output}
    handed = [o.name for o in graph.output if o.name not in made]
    return [name for name in dict.fromkeys([*reads_of(graph.node), *handed]) if name not in own]
