"""Fuses the requantisation of operands into concatenation.

QConcat(QLut(x), ...)           =>  QConcat(x, ...) with the table of x composed     (no other reader of the QLut)
QConcat(QConcat(a, b), c)       =>  QConcat(a, b, c)                                 (same axis, no other reader)
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.ops.elementwise import IDENTITY_TABLE, QLut


def fuse_concat(graph: Graph) -> None:
    producers, consumers = graph.producers(), graph.consumers()
    for node in graph:
        # What is absorbed stays among the readers of its operands, in the place of the node.
        while isinstance(node.quantized, QConcat) and _absorb(graph, node, producers, consumers):
            pass
    graph.prune()


def _absorb(graph: Graph, node: Node, producers: dict[str, Node], consumers: dict[str, list[Node]]) -> bool:
    whole = node.quantized
    assert isinstance(whole, QConcat)
    for i, name in enumerate(node.inputs):
        source = producers.get(name)
        if source is None or name in graph.outputs or len(consumers[name]) > 1 or node.inputs.count(name) > 1:
            continue
        match source.quantized:
            case QLut(table=table):
                inner: tuple[bytes | None, ...] = (table,)
            case QConcat(axis=whole.axis, tables=tables):
                inner = tables
            case _:
                continue
        composed = [_composed(t, whole.tables[i]) for t in inner]
        node.inputs[i : i + 1] = source.inputs
        node.quantized = replace(whole, tables=(*whole.tables[:i], *composed, *whole.tables[i + 1 :]))
        node.origin = (*source.origin, *node.origin)
        return True
    return False


def _composed(first: bytes | None, then: bytes | None) -> bytes | None:
    """Composes two tables; None represents unchanged bytes."""
    table = bytes((then or IDENTITY_TABLE)[byte] for byte in first or IDENTITY_TABLE)
    return None if table == IDENTITY_TABLE else table
