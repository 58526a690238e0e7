"""What the quantisation passes share: reading scales off Q/DQ nodes, and the float32 rules of the tables.

quantize(x)   = sat(RNE(f32(x / s)) + z)            s, x float32
dequantize(q) = f32(f32(q - z) * s)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.graph import Graph, Node, Quant, Tensor
from isa import numerics

EIGHT_BIT = (np.dtype(np.int8), np.dtype(np.uint8))

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
    if scale is None or zero is None or scale.dtype != np.float32 or zero.dtype.kind not in "iu" or scale.ndim > 1:
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
    """An op that moves 8-bit integers leaves their scale and zero point as they are."""
    if node.op not in MOVES and node.op not in MONOTONE:
        return
    data, results = graph.tensor(node.inputs[0]), [graph.tensor(n) for n in node.outputs if n]
    if forward and is_activation(data):
        for tensor in results:
            if tensor.quant is None and tensor.dtype == data.dtype:
                tensor.quant = data.quant
    elif not forward and data.quant is None and is_activation(results[0]) and data.dtype == results[0].dtype:
        data.quant = results[0].quant


def is_activation(tensor: Tensor | None) -> bool:
    """True for an 8-bit tensor with one scale."""
    return tensor is not None and tensor.dtype in EIGHT_BIT and tensor.quant is not None and tensor.quant.per_tensor


def limits(dtype: np.dtype) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def quantize(x: Any, quant: Quant, dtype: np.dtype) -> np.ndarray:
    """float32 -> 8 bit, per tensor. NaN becomes the lower limit, as the saturating conversion of x86 does."""
    values = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        known = np.where(np.isnan(values), np.float32(-np.inf), values)
        return np.asarray(numerics.quantize(known, quant.scale, int(quant.zero_point), dtype))


def dequantize(q: np.ndarray, quant: Quant) -> np.ndarray:
    """8 bit -> float32, per tensor."""
    with np.errstate(over="ignore"):
        return np.asarray(numerics.dequantize(q, quant.scale, quant.zero_point), np.float32)


def requantize_table(source: Quant, source_dtype: np.dtype, target: Quant, target_dtype: np.dtype) -> np.ndarray:
    """uint8[256]: byte of the target for each byte of the source, by dequantise then quantise."""
    every = np.arange(256, dtype=np.uint8).view(source_dtype)
    return quantize(dequantize(every, source), target, target_dtype).view(np.uint8)
