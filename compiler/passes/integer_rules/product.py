"""Integer rules of Gemm and MatMul."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.quantization import NO_ZERO_POINT
from tilewright.compiler.passes.integer_rules.rule import integer_rule
from tilewright.compiler.passes.integer_rules.site import Site
from tilewright.compiler.passes.weights import add_weights, constant_bias, constant_weights, product_and_vector


@integer_rule("Gemm")
def gemm(site: Site) -> list[Node] | None:
    """The rule of Gemm, alpha = beta = 1. Transposed constants are transposed now, A by a Transpose of its integers."""
    attrs = site.node.attrs
    if float(attrs.get("alpha", 1.0)) != 1.0 or (site.has(2) and float(attrs.get("beta", 1.0)) != 1.0):
        return None
    return _product(site, bool(attrs.get("transA")), bool(attrs.get("transB")))


@integer_rule("MatMul")
def mat_mul(site: Site) -> list[Node] | None:
    return _product(site, False, False)


@integer_rule("Add")
def product_and_bias(site: Site) -> list[Node] | None:
    """The rule of a MatMul of rows of any rank with constant weights, and a vector for its columns behind it, as torch
    writes its linear layers. With a bias of more dimensions onnxruntime stays in floats.
    """
    pair = product_and_vector(site.graph, site.node, site.producers, site.consumers)
    if pair is None:
        return None
    product, index = pair
    found = replace(site, node=product)
    weights = found.dequantizer(1)
    if weights is None or not site.graph.tensor(weights.inputs[0]).is_const:
        return None
    # onnxruntime moves a Reshape behind a product of more dimensions, which hides a Relu or Clip from it
    more = len(site.graph.tensor(product.outputs[0]).shape) > 2
    hidden = more and site.consumers[site.node.outputs[0]] != [site.quantizer] and site.alone
    return _product(found, False, False, site.node.inputs[index], hidden)


def _product(
    site: Site, trans_a: bool, trans_b: bool, bias_name: str = "", in_floats: bool = False
) -> list[Node] | None:
    """Makes the integer product.

    Args:
        bias_name: bias that another node adds to the product.
        in_floats: True if onnxruntime does not see the QuantizeLinear behind.
    """
    graph = site.graph
    a, source_b = site.activation(0, signed=True), site.dequantizer(1)
    if a is None or source_b is None or len(a.shape) < 2:
        return None
    shape_b = graph.tensor(source_b.inputs[0]).shape
    if len(shape_b) < 2:
        return None
    before: list[Node] = []
    left = _transposed(graph, a, before) if trans_a else a.name
    weights = constant_weights(graph, source_b, axis=0 if trans_b else len(shape_b) - 1)
    b = site.activation(1, signed=True)
    if weights is not None and len(shape_b) == 2:
        data, quant = weights
        if trans_b:
            data = np.ascontiguousarray(data.T)
            quant = type(quant)(quant.scale, quant.zero_point, None if quant.per_tensor else 1)
            right = graph.constant(f"{source_b.inputs[0]}.transposed", data, quant)
        else:
            right = add_weights(graph, source_b, data, quant)
    elif b is not None:
        assert b.quant is not None
        quant = b.quant
        right = _transposed(graph, b, before) if trans_b else b.name
    else:
        return None
    inputs = [left, right]
    bias_name = site.node.inputs[2] if site.has(2) else bias_name
    reason = site.why_floats(a, source_b)
    no_gemm = (bias_name or site.node.op == "Gemm") and any(_without_zero_point(site, i) for i in (0, 1))
    if in_floats or no_gemm:
        reason = site.in_floats
    if bias_name:
        assert a.quant is not None
        alone = site.alone and not in_floats
        bias = constant_bias(graph, bias_name, site.producers, a.quant, quant, site.out.shape[-1], alone)
        integers = None if bias is None else site.bias(bias, a.quant, quant, reason)
        if integers is None:
            return None
        inputs.append(graph.constant(f"{bias_name}.int32", integers))
    return [*before, site.make(QMatMul(reason=reason), inputs)]


def _without_zero_point(site: Site, index: int) -> bool:
    source = site.dequantizer(index)
    return source is not None and NO_ZERO_POINT in source.attrs


def _transposed(graph: Graph, tensor: Tensor, before: list[Node]) -> str:
    name = graph.unique(f"{tensor.name}.transposed")
    graph.add(Tensor(name, tensor.shape[::-1], tensor.dtype, None, tensor.quant))
    before.append(Node("Transpose", [tensor.name], [name], {"perm": [1, 0]}, name))
    return name
