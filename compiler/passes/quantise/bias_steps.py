"""Gives biases of matrix products the step of the sums where onnxruntime adds their integers unchanged, whatever scale
and zero point they have.

    DQ(a), DQ(w) -> Gemm with DQ(b), or MatMul and an Add of DQ(b)
    =>  b dequantised with f32(sa * sw), the step of the sums, where onnxruntime makes its QGemm of these nodes

It does so where both operands have zero points and it can write the result: that of a single QuantizeLinear, or floats
that no QuantizeLinear reads, be it behind a Relu or Clip. With a product of more than two dimensions it moves a Reshape
in between, and the result is floats for every reader.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Quant
from tilewright.compiler.graph.quantization import NO_ZERO_POINT, bias_scale
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.passes.annotate import quant_of
from tilewright.compiler.passes.weights import product_and_vector


def bias_steps(graph: Graph) -> None:
    producers, consumers = graph.producers(), graph.consumers()
    nodes: list[Node] = []
    for node in graph:
        product, index = _product_of(node, graph, producers, consumers)
        bias = producers.get(node.inputs[index]) if product is not None else None
        if product is not None and bias is not None and _has_integer_product(graph, node, consumers):
            found = _with_step(graph, product, bias, producers)
            if found is not None:
                nodes.append(found)
                node.inputs[index] = found.outputs[0]
        nodes.append(node)
    graph.nodes = nodes
    graph.prune()


def _product_of(
    node: Node, graph: Graph, producers: dict[str, Node], consumers: dict[str, list[Node]]
) -> tuple[Node | None, int]:
    """The product whose bias an input of the node is, and the index of that input."""
    if node.op == "Gemm" and len(node.inputs) > 2 and node.inputs[2]:
        plain = float(node.attrs.get("alpha", 1.0)) == 1.0 == float(node.attrs.get("beta", 1.0))
        return (node if plain else None), 2
    return product_and_vector(graph, node, producers, consumers) or (None, 0)


def _has_integer_product(graph: Graph, node: Node, consumers: dict[str, list[Node]]) -> bool:
    """True if onnxruntime makes an integer product of the node, by the readers of its result."""
    result = node.outputs[0]
    readers = consumers.get(result, [])
    if len(graph.tensor(result).shape) > 2:
        return True
    quantised = [reader for reader in readers if reader.op == "QuantizeLinear"]
    if quantised:
        return len(readers) == 1 and result not in graph.outputs
    if len(readers) != 1 or result in graph.outputs or readers[0].op not in ("Relu", "Clip"):
        return True
    return not any(reader.op == "QuantizeLinear" for reader in consumers.get(readers[0].outputs[0], []))


def _with_step(graph: Graph, product: Node, bias: Node, producers: dict[str, Node]) -> Node | None:
    """The bias's DequantizeLinear with the step of the sums; None where it has that, or these are other products."""
    tensor, given = graph.tensor(bias.inputs[0]), quant_of(graph, bias) if bias.op == "DequantizeLinear" else None
    if given is None or tensor.data is None or tensor.dtype != np.int32:
        return None
    sources = [producers.get(name) for name in product.inputs[:2]]
    quants = []
    for source in sources:
        found = quant_of(graph, source) if source is not None and source.op == "DequantizeLinear" else None
        if source is None or found is None or NO_ZERO_POINT in source.attrs:
            return None
        if graph.tensor(source.inputs[0]).dtype not in EIGHT_BIT:
            return None
        quants.append(found)
    weights = graph.tensor(sources[1].inputs[0])  # type: ignore[union-attr]
    activations = graph.tensor(sources[0].inputs[0])  # type: ignore[union-attr]
    if weights.data is None or not quants[0].per_tensor or (activations.dtype == np.int8 and weights.dtype == np.uint8):
        return None
    scale = bias_scale(np.asarray(quants[0].scale * quants[1].scale, np.float32))
    same = given.scale.size == scale.size and np.array_equal(given.scale.reshape(-1), scale.reshape(-1))
    if same and not np.any(given.zero_point):
        return None
    if scale.size not in (1, tensor.size):
        return None
    axis = None if scale.size == 1 else len(tensor.shape) - 1
    scale = scale.reshape(()) if axis is None else scale.reshape(-1)
    quant = Quant.of(scale, np.zeros(scale.shape, np.int32), axis)
    name = bias.inputs[0]
    inputs = [
        graph.constant(name, tensor.data, quant),
        graph.constant(f"{name}.scale", quant.scale),
        graph.constant(f"{name}.zero_point", quant.zero_point.astype(np.int32)),
    ]
    made = graph.unique(bias.outputs[0])
    graph.add(type(tensor)(made, tensor.shape, np.dtype(np.float32)))
    return Node("DequantizeLinear", inputs, [made], dict(bias.attrs) | {"axis": axis or 0}, bias.name)
