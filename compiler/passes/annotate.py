"""Scale and zero point onto the tensors that QuantizeLinear writes and DequantizeLinear reads.

Ops that move elements, or pick the largest or smallest, leave them as they are: they are carried through those.
"""

from __future__ import annotations

import numpy as np

from compiler.graph import Graph, Node, Quant
from compiler.quantization import is_activation
from compiler.tensor import NARROW

MOVES = {
    "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather", "GatherElements", "GatherND",
    "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Split", "Pad", "Resize", "ReverseSequence", "Compress",
    "Identity",
}  # fmt: skip
MONOTONE = {"MaxPool", "ReduceMax", "ReduceMin"}
"""Ops that move elements of their first input; and those that pick the largest or smallest."""


def quant_of(graph: Graph, node: Node) -> Quant | None:
    """Scale and zero point of a QuantizeLinear or DequantizeLinear; None where they are not constant or not affine."""
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

    A constant dequantised in several ways becomes one constant for each. Another tensor read with two meanings keeps
    the first; its other readers stay float.
    """
    for node in graph:
        quant = quant_of(graph, node)
        if quant is None:
            continue
        tensor = graph.tensor(node.outputs[0] if node.op == "QuantizeLinear" else node.inputs[0])
        if tensor.quant is None:
            tensor.quant = quant
        elif tensor.data is not None and not quant.same_as(tensor.quant):
            node.inputs[0] = graph.constant(tensor.name, tensor.data, quant)
    for node in graph:
        _carry(graph, node, forward=True)
    for node in reversed(graph.nodes):
        _carry(graph, node, forward=False)


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
