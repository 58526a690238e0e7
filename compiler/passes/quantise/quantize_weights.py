"""Quantises float weights between quantised activations to int8, equal to onnxruntime's.

    DQ(x) -> Conv, ConvTranspose or Gemm with float constant W -> (Relu, Clip)* -> Q
    =>  W replaced by DequantizeLinear(int8 constant), one scale and zero point from the least and greatest weight:
        lo = min(W, 0), hi = max(W, 0), s = f32(f32(hi - lo) / 255), z = RNE(f32(-128 - f32(lo / s)))

The bias stays float here; `fuse_quantization` rounds it to multiples of sx * s. Between 16-bit activations, where that
pass does nothing, this one does.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.quantization import AS_LITERT, is_activation, quantize
from tilewright.compiler.passes.annotate import quant_of

_OPS = {"Conv", "ConvTranspose", "Gemm"}
_SIXTEEN_BIT = {np.dtype(np.int16), np.dtype(np.uint16)}


def quantize_weights(graph: Graph) -> None:
    producers, consumers = graph.producers(), graph.consumers()
    nodes: list[Node] = []
    for node in graph:
        if node.op in _OPS and _between_quantised(graph, node, producers, consumers):
            weights = graph.const(node.inputs[1])
            if weights is not None and weights.dtype == np.float32 and weights.size and np.isfinite(weights).all():
                nodes.append(_dequantized(graph, node, weights))
                source = graph.tensor(producers[node.inputs[0]].inputs[0])
                if source.dtype in _SIXTEEN_BIT and len(node.inputs) > 2 and node.inputs[2]:
                    _round_bias(graph, node, source, nodes[-1])
        nodes.append(node)
    graph.nodes = nodes
    graph.prune()


def _between_quantised(graph: Graph, node: Node, producers: dict[str, Node], consumers: dict[str, list[Node]]) -> bool:
    """True if a DequantizeLinear makes the input and one QuantizeLinear, behind Relu and Clip, takes the result."""
    source = producers.get(node.inputs[0])
    if source is None or source.op != "DequantizeLinear" or quant_of(graph, source) is None:
        return False
    read = graph.tensor(source.inputs[0])
    wide = read.dtype in _SIXTEEN_BIT and read.quant is not None and read.quant.per_tensor
    if not (wide or is_activation(read)):
        return False
    if len(node.inputs) > 2 and node.inputs[2]:
        bias = graph.const(node.inputs[2])
        if bias is None or bias.ndim != 1:
            return False
    while True:
        users = consumers.get(node.outputs[0], [])
        if len(users) != 1 or node.outputs[0] in graph.outputs:
            return False
        if users[0].op == "QuantizeLinear":
            return not users[0].attrs.get(AS_LITERT)
        if users[0].op not in ("Relu", "Clip"):
            return False
        node = users[0]


def _dequantized(graph: Graph, node: Node, weights: np.ndarray) -> Node:
    low, high = np.float32(min(weights.min(), 0)), np.float32(max(weights.max(), 0))
    scale = np.float32(np.float32(high - low) / np.float32(255))
    scale = scale if scale > 0 else np.float32(1)
    zero = np.clip(np.rint(np.float32(-128) - low / scale), -128, 127)
    quant = Quant.of(scale, int(zero))
    name = node.inputs[1]
    integers = graph.constant(f"{name}.int8", quantize(weights, quant, np.dtype(np.int8)), quant)
    inputs = [
        integers,
        graph.constant(f"{name}.scale", np.asarray(scale)),
        graph.constant(f"{name}.zero_point", np.asarray(zero, np.int8)),
    ]
    real = graph.unique(f"{name}.dequantized")
    graph.add(Tensor(real, weights.shape, weights.dtype))
    node.inputs = [node.inputs[0], real, *node.inputs[2:]]
    return Node("DequantizeLinear", inputs, [real], {"axis": 0, "block_size": 0}, node.name)


def _round_bias(graph: Graph, node: Node, source: Tensor, weights: Node) -> None:
    """Rounds the bias to a multiple of the step of the products."""
    bias, scale = graph.const(node.inputs[2]), graph.const(weights.inputs[1])
    assert bias is not None and scale is not None and source.quant is not None
    step = np.float32(source.quant.scale) * np.float32(scale)
    limits = np.iinfo(np.int32)
    steps = np.clip(np.rint((bias.astype(np.float32) / step).astype(np.float64)), limits.min, limits.max)
    node.inputs[2] = graph.constant(f"{node.inputs[2]}.rounded", steps.astype(np.float32) * step)
