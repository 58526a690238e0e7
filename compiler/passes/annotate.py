"""Sets scale and zero point on the tensors that QuantizeLinear writes and DequantizeLinear reads.

Ops that move elements, or pick the largest or smallest, do not change them: they are carried through those ops.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Quant
from tilewright.compiler.graph.ops.elementwise import IDENTITY_TABLE, QLut
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.graph.tensor import NARROW

MOVES = {
    "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather", "GatherElements", "GatherND",
    "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Split", "Pad", "Resize", "ReverseSequence", "Compress",
    "Identity",
}  # fmt: skip
MONOTONE = {"MaxPool", "ReduceMax", "ReduceMin"}
"""Ops that move elements of their first input; and those that pick the largest or smallest."""


def quant_of(graph: Graph, node: Node) -> Quant | None:
    """Scale and zero point of a QuantizeLinear or DequantizeLinear; None where they are not constant or affine."""
    if node.op not in ("QuantizeLinear", "DequantizeLinear") or node.attrs.get("block_size"):
        return None
    scale, zero = graph.const(node.inputs[1]), graph.const(node.inputs[2])
    if scale is None or zero is None or scale.dtype != np.float32 or scale.ndim > 1:
        return None
    if zero.dtype.kind not in "iu" and zero.dtype not in NARROW:
        return None
    axis = int(node.attrs.get("axis", 1))
    rank = len(graph.tensor(node.inputs[0]).shape)
    return Quant.of(scale, zero, axis % rank if scale.ndim and rank else None)


def annotate(graph: Graph) -> None:
    """Sets `quant` on every tensor a Q writes or a DQ reads.

    A constant dequantised in several ways becomes one constant for each. Another tensor of 8 bits that is read with two
    scales or zero points keeps the first; for each other one a table copies its bytes.
    """
    copies: dict[tuple[str, bytes, bytes], Node] = {}
    for node in list(graph):
        quant = quant_of(graph, node)
        if quant is None:
            continue
        tensor = graph.tensor(node.outputs[0] if node.op == "QuantizeLinear" else node.inputs[0])
        if tensor.quant is None:
            tensor.quant = quant
        elif tensor.data is not None and not quant.same_as(tensor.quant):
            node.inputs[0] = graph.constant(tensor.name, tensor.data, quant)
        elif node.op == "DequantizeLinear" and is_activation(tensor) and quant.per_tensor:
            if not quant.same_as(tensor.quant):
                key = tensor.name, quant.scale.tobytes(), quant.zero_point.tobytes()
                copy = copies[key] = copies.get(key) or _copied(graph, node, quant)
                node.inputs[0] = copy.outputs[0]
    for node in graph:
        _carry(graph, node, forward=True)
    for node in reversed(graph.nodes):
        _carry(graph, node, forward=False)


def _copied(graph: Graph, before: Node, quant: Quant) -> Node:
    """A table in front of a DequantizeLinear that gives its bytes this scale and zero point."""
    tensor = graph.tensor(before.inputs[0])
    name = graph.like(tensor, tensor.name)
    graph.tensor(name).quant = quant
    copy = Node.of(QLut(table=IDENTITY_TABLE), [tensor.name], [name], name)
    graph.nodes.insert(graph.nodes.index(before), copy)
    return copy


def _carry(graph: Graph, node: Node, forward: bool) -> None:
    """Copies scale and zero point across an op that only moves 8-bit integers."""
    if node.op not in MOVES and node.op not in MONOTONE:
        return
    data, results = graph.tensor(node.inputs[0]), [graph.tensor(n) for n in node.outputs if n]
    if forward and is_activation(data):
        for tensor in results:
            if tensor.quant is None and tensor.dtype == data.dtype:
                tensor.quant = data.quant
    elif not forward and data.quant is None and is_activation(results[0]) and data.dtype == results[0].dtype:
        data.quant = results[0].quant
