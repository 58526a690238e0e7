"""Queries that share a head of keys or values multiply it as it is, instead of copies of it.

    QMatMul(x, [Transpose] Reshape(QTake(Reshape(cache), each head n times)))
      =>  Reshape(QMatMul(Reshape(x, [.., heads, n, rows, K]), [Transpose] Reshape(cache, [.., heads, 1, K, N])))

Only what lies in memory, a cache or an input, is taken: heads that the model makes in the same run are copied by the
NPU beside its products (`compiler.npu.rewrites.lower_copies`).
"""

from __future__ import annotations

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.moves import Mover, permutation
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.take import QTake
from tilewright.compiler.graph.states import SCATTERS


def group_heads(graph: Graph) -> None:
    """Replaces products with copied heads of a cache by products of groups of heads."""
    producers = graph.producers()
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _grouped(graph, producers, node) or [node]
    graph.nodes = nodes
    graph.prune()


def _grouped(graph: Graph, producers: dict[str, Node], node: Node) -> list[Node]:
    """Returns the nodes that replace a product; none if it stays."""
    op = node.quantized
    if not isinstance(op, QMatMul) or len(node.inputs) != 2:
        return []
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.outputs[0])
    copied = producers.get(node.inputs[1])
    exchanged = copied is not None and copied.op == "Transpose"
    if copied is not None and exchanged:
        if permutation(copied) != [0, 1, 3, 2]:
            return []
        copied = producers.get(copied.inputs[0])
    found = _copied_heads(graph, producers, copied)
    if found is None or len(x.shape) != 4 or len(y.shape) != 4:
        return []
    cache, count = found
    batch, heads, rows, depth = graph.tensor(cache).shape
    if x.shape[:2] != (batch, heads * count):
        return []
    made: list[Node] = []
    mover = Mover(graph, made)
    queries = mover.reshape(x.name, (batch, heads, count, *x.shape[2:]))
    shared = mover.reshape(cache, (batch, heads, 1, rows, depth))
    if exchanged:
        shared = mover.transpose(shared, [0, 1, 2, 4, 3])
    product = graph.like(y, f"{y.name}.groups", (batch, heads, count, *y.shape[2:]))
    made.append(Node.of(op, [queries, shared], [product], node.name, node.origin))
    mover.reshape(product, y.shape, y.name)
    return made


def _copied_heads(graph: Graph, producers: dict[str, Node], node: Node | None) -> tuple[str, int] | None:
    """Returns the cache [batch, heads, rows, depth] of which a Reshape has each head several times in a row, and how
    often; None for another node."""
    take = producers.get(node.inputs[0]) if node is not None and node.op == "Reshape" else None
    spread = producers.get(take.inputs[0]) if take is not None and isinstance(take.quantized, QTake) else None
    if node is None or take is None or spread is None or spread.op != "Reshape":
        return None
    assert isinstance(take.quantized, QTake)
    cache, indices = spread.inputs[0], take.quantized.indices
    maker = producers.get(cache)
    while maker is not None and maker.op in ("QuantizeLinear", "DequantizeLinear"):
        maker = producers.get(maker.inputs[0])
    in_memory = maker is None or maker.op in SCATTERS
    shape = graph.tensor(cache).shape
    if not in_memory or len(shape) != 4 or len(indices) != 5 or indices[2] is None:
        return None
    count = len(indices[2])
    alone = all(i is None for at, i in enumerate(indices) if at != 2) and not any(indices[2])
    batch, heads, rows, depth = shape
    wide, joined = graph.tensor(spread.outputs[0]).shape, graph.tensor(node.outputs[0]).shape
    if not alone or wide != (batch, heads, 1, rows, depth) or joined != (batch, heads * count, rows, depth):
        return None
    return cache, count
