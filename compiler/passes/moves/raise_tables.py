"""Raises a table, or the Add of a mask, above data movement, to the op that can apply it in its own pass over data.

    QLut(move(op(...)))            =>   move(QLut(op(...)))        op: a quantised op; move: one or several in a row
    QAdd(Reshape(product), mask)   =>   Reshape(QAdd(product, mask))        where the Reshape keeps rows and columns

if nothing else reads the tensors in between. Looking up commutes with moving elements, and so does adding what is the
same for all heads. So the scaling of queries and keys behind the split into heads joins the product before it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.elementwise import QAdd, QLut
from tilewright.compiler.graph.ops.product import QMatMul

#: Ops that have one operand besides constants and make every element of the result from one of it.
_MOVES = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Identity"})


def raise_tables(graph: Graph) -> None:
    producers, consumers = graph.producers(), graph.consumers()
    outputs = set(graph.outputs)

    def only_reader(name: str) -> bool:
        return name not in outputs and len(consumers.get(name, ())) == 1

    for node in list(graph.nodes):
        if not isinstance(node.quantized, (QLut, QAdd)):
            continue
        for at in range(len(node.inputs)):
            moves: list[Node] = []
            source = producers.get(node.inputs[at])
            while source is not None and source.op in _MOVES and only_reader(source.outputs[0]):
                moves.append(source)
                source = producers.get(source.inputs[0])
            if not moves or source is None or source.quantized is None or not only_reader(source.outputs[0]):
                continue
            if isinstance(node.quantized, QLut):
                commutes = not isinstance(source.quantized, QLut)
            else:
                commutes = _is_masked(graph, node, at, moves) and _is_product(source, producers)
            if commutes:
                raised = _raise(graph, node, at, moves[::-1])
                producers |= {made.outputs[0]: made for made in (raised, *moves)}
                for name in raised.inputs:
                    readers = consumers.get(name, [])
                    consumers[name] = [raised if one is node or one is moves[-1] else one for one in readers]
                consumers |= {made.outputs[0]: [reader] for made, reader in pairwise((raised, *moves[::-1]))}
                break
    graph.prune()


def _is_masked(graph: Graph, add: Node, at: int, moves: list[Node]) -> bool:
    """True if the other operand of a sum than `at` is the same for all heads, which Reshapes alone divide."""
    x, mask = graph.tensor(moves[-1].inputs[0]).shape, graph.tensor(add.inputs[1 - at]).shape
    y = graph.tensor(add.outputs[0]).shape
    kept = len(x) > 2 and x[-2:] == y[-2:] == graph.tensor(add.inputs[at]).shape[-2:]
    reshaped = all(move.op == "Reshape" for move in moves)
    return kept and reshaped and len(mask) <= len(x) and math.prod(mask[:-2]) == 1 < math.prod(x[:-2])


def _is_product(node: Node, producers: dict[str, Node]) -> bool:
    """True for a product of matrices, and for a table behind one."""
    maker = producers.get(node.inputs[0])
    behind = isinstance(node.quantized, QLut) and maker is not None and isinstance(maker.quantized, QMatMul)
    return behind or isinstance(node.quantized, QMatMul)


def _raise(graph: Graph, node: Node, at: int, moves: list[Node]) -> Node:
    """Puts a node, whose operand `at` is the result of the last of `moves`, before the first of them; returns it."""
    y = graph.tensor(node.outputs[0])
    source = graph.tensor(moves[0].inputs[0])
    value = graph.add(replace(y, name=graph.unique(y.name), shape=source.shape))
    inputs = [source.name if number == at else name for number, name in enumerate(node.inputs)]
    raised = replace(node, inputs=inputs, outputs=[value.name])
    for move in moves:  # tensors in between hold other values now, so they get other names
        move.inputs[0] = value.name
        shape = graph.tensor(move.outputs[0]).shape
        value = y if move is moves[-1] else graph.add(replace(y, name=graph.unique(y.name), shape=shape))
        move.outputs = [value.name]
    for move in moves if len(inputs) > 1 else ():  # behind the other operand of a sum
        graph.nodes.remove(move)
        graph.nodes.insert(graph.nodes.index(node), move)
    graph.nodes.remove(node)
    graph.nodes.insert(graph.nodes.index(moves[0]), raised)
    return raised
