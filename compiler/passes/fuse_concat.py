"""Concatenation takes the requantisation of its operands.

QConcat(QLut(x), ...)           =>  QConcat(x, ...) with the table of x composed     (no other reader of the QLut)
QConcat(QConcat(a, b), c)       =>  QConcat(a, b, c)                                 (same axis, no other reader)
"""

from __future__ import annotations

import numpy as np

from compiler.graph import Graph, Node

IDENTITY = np.arange(256, dtype=np.uint8)


def fuse_concat(graph: Graph) -> None:
    changed = True
    while changed:
        changed = False
        producers, consumers = graph.producers(), graph.consumers()
        for node in graph:
            if node.op == "QConcat" and _absorb(graph, node, producers, consumers):
                changed = True
                break
        graph.prune()


def _absorb(graph: Graph, node: Node, producers: dict[str, Node], consumers: dict[str, list[Node]]) -> bool:
    for i, name in enumerate(node.inputs):
        source = producers.get(name)
        if source is None or name in graph.outputs or len(consumers[name]) > 1 or node.inputs.count(name) > 1:
            continue
        table = node.attrs["tables"][i]
        outer = IDENTITY if table is None else table
        if source.op == "QLut":
            inner, names = [source.attrs["table"]], source.inputs
        elif source.op == "QConcat" and source.attrs["axis"] == node.attrs["axis"]:
            inner, names = source.attrs["tables"], source.inputs
        else:
            continue
        composed = [outer if t is None else outer[t] for t in inner]
        tables = [None if np.array_equal(t, IDENTITY) else t for t in composed]
        node.inputs[i : i + 1] = names
        node.attrs["tables"] = [*node.attrs["tables"][:i], *tables, *node.attrs["tables"][i + 1 :]]
        node.origin = (*source.origin, *node.origin)
        return True
    return False
