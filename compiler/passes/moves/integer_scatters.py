"""Scatters values into integers instead of floats.

    Q(Scatter(DQ(x), places, DQ(updates)))  =>  Scatter(x, places, updates)     one scale and zero point for all

The floats of the result have no other reader. So a cache of a quantised language model is bytes from end to end.
"""

from __future__ import annotations

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.graph.states import is_scatter
from tilewright.compiler.passes.annotate import quant_of


def integer_scatters(graph: Graph) -> None:
    producers, consumers = graph.producers(), graph.consumers()
    for node in list(graph.nodes):
        if not is_scatter(node):
            continue
        values = (0, 1) if node.op == "TensorScatter" else (0, 2)
        sources = [_integers(graph, producers.get(node.inputs[at])) for at in values]
        users = consumers.get(node.outputs[0], [])
        if None in sources or len(users) != 1 or users[0].op != "QuantizeLinear" or node.outputs[0] in graph.outputs:
            continue
        result = graph.tensor(users[0].outputs[0])
        wanted = quant_of(graph, users[0])
        tensors = [graph.tensor(name) for name in sources if name is not None]
        if wanted is None or any(t.dtype != result.dtype or not wanted.same_as(t.quant) for t in tensors):
            continue
        for at, tensor in zip(values, tensors, strict=True):
            node.inputs[at] = tensor.name
        graph.nodes.remove(users[0])
        node.outputs = [result.name]
        producers[result.name] = node
    graph.prune()


def _integers(graph: Graph, maker: Node | None) -> str | None:
    """The 8-bit tensor with one scale that a DequantizeLinear reads, None for other makers."""
    if maker is None or maker.op != "DequantizeLinear":
        return None
    quant, tensor = quant_of(graph, maker), graph.tensor(maker.inputs[0])
    fits = quant is not None and is_activation(tensor) and quant.same_as(tensor.quant)
    return tensor.name if fits else None
