"""Recognises movement of 8-bit tensors that selects indices along each axis independently, as QTake.

    Resize, mode nearest                =>  QTake, where nothing outside of the input is read
    Slice with steps                    =>  QTake
    Pad with values of the tensor       =>  QTake
    Tile, Expand                        =>  QTake

A Slice without steps and a Split stay: they are parts of their operand, which the NPU reads in place.
"""

from __future__ import annotations

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.moves import is_box, places_of
from tilewright.compiler.graph.ops.take import QTake
from tilewright.compiler.graph.quantization import is_activation


def recognise_takes(graph: Graph) -> None:
    changed = False
    for position, node in enumerate(graph.nodes):
        take = _take(graph, node)
        if take is not None:
            graph.nodes[position] = Node.of(take, [node.inputs[0]], list(node.outputs), node.name, node.origin)
            changed = True
    if changed:
        graph.prune()


def _take(graph: Graph, node: Node) -> QTake | None:
    if node.op not in ("Resize", "Slice", "Pad", "Tile", "Expand"):
        return None
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.outputs[0])
    if x.data is not None or not is_activation(x) or x.dtype != y.dtype:
        return None
    if x.quant is None or not x.quant.same_as(y.quant) or 0 in x.shape or 0 in y.shape:
        return None
    places = places_of(graph, node)
    if places is None or (node.op == "Slice" and is_box(places)):
        return None
    whole = (range(n) for n in x.shape)
    return QTake(indices=tuple(None if run == full else tuple(run) for run, full in zip(places, whole, strict=True)))
