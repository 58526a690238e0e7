"""Raises a table above data movement, to the op that can apply it in its own pass over the data.

    QLut(move(op(...)))   =>   move(QLut(op(...)))        op: a quantised op; move: one or several in a row

if nothing else reads the tensors in between. Looking up commutes with moving elements. So the scaling of queries and
keys behind the split into heads joins the product before it.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.elementwise import QLut

#: Ops that have one operand besides constants and make every element of the result from one of it.
_MOVES = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Identity"})


def raise_tables(graph: Graph) -> None:
    producers, consumers = graph.producers(), graph.consumers()
    outputs = set(graph.outputs)

    def only_reader(name: str) -> bool:
        return name not in outputs and len(consumers.get(name, ())) == 1

    for node in list(graph.nodes):
        if not isinstance(node.quantized, QLut):
            continue
        moves: list[Node] = []
        source = producers.get(node.inputs[0])
        while source is not None and source.op in _MOVES and only_reader(source.outputs[0]):
            moves.append(source)
            source = producers.get(source.inputs[0])
        if not moves or source is None or source.quantized is None or isinstance(source.quantized, QLut):
            continue
        if only_reader(moves[-1].inputs[0]):
            _raise(graph, node, moves[::-1])
            producers, consumers = graph.producers(), graph.consumers()


def _raise(graph: Graph, table: Node, moves: list[Node]) -> None:
    """Puts `table`, which reads the last of `moves`, before the first of them."""
    y = graph.tensor(table.outputs[0])
    source = graph.tensor(moves[0].inputs[0])
    value = graph.add(replace(y, name=graph.unique(y.name), shape=source.shape))
    raised = replace(table, inputs=[source.name], outputs=[value.name])
    for move in moves:  # tensors in between hold other values now, so they get other names
        move.inputs[0] = value.name
        shape = graph.tensor(move.outputs[0]).shape
        value = y if move is moves[-1] else graph.add(replace(y, name=graph.unique(y.name), shape=shape))
        move.outputs = [value.name]
    graph.nodes.remove(table)
    graph.nodes.insert(graph.nodes.index(moves[0]), raised)
    graph.prune()
