"""Gemm and MatMul."""

from __future__ import annotations

import numpy as np

from compiler.graph import Graph, Node, Tensor
from compiler.ops.product import QMatMul
from compiler.passes.integer_rules.rule import integer_rule
from compiler.passes.integer_rules.site import Site
from compiler.passes.weights import add_weights, constant_bias, constant_weights


@integer_rule("Gemm")
def gemm(site: Site) -> list[Node] | None:
    """alpha = beta = 1. Transposed constants are transposed now, a transposed A by a Transpose of its integers."""
    attrs = site.node.attrs
    if float(attrs.get("alpha", 1.0)) != 1.0 or (site.has(2) and float(attrs.get("beta", 1.0)) != 1.0):
        return None
    return _product(site, bool(attrs.get("transA")), bool(attrs.get("transB")))


@integer_rule("MatMul")
def mat_mul(site: Site) -> list[Node] | None:
    return _product(site, False, False)


def _product(site: Site, trans_a: bool, trans_b: bool) -> list[Node] | None:
    graph = site.graph
    a, source_b = site.activation(0), site.dequantizer(1)
    if a is None or source_b is None or len(a.shape) < 2:
        return None
    shape_b = graph.tensor(source_b.inputs[0]).shape
    if len(shape_b) < 2:
        return None
    before: list[Node] = []
    left = _transposed(graph, a, before) if trans_a else a.name
    weights = constant_weights(graph, source_b, axis=0 if trans_b else len(shape_b) - 1)
    b = site.activation(1)
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
    if site.has(2):
        assert a.quant is not None
        channels = site.out.shape[-1]
        bias = constant_bias(graph, site.node.inputs[2], site.producers, a.quant, quant, channels)
        if bias is None:
            return None
        inputs.append(graph.constant(f"{site.node.inputs[2]}.int32", bias))
    reason = site.why_floats(a, graph.tensor(right), source_b)
    return [*before, site.make(QMatMul(reason=reason), inputs)]


def _transposed(graph: Graph, tensor: Tensor, before: list[Node]) -> str:
    name = graph.unique(f"{tensor.name}.transposed")
    graph.add(Tensor(name, tensor.shape[::-1], tensor.dtype, None, tensor.quant))
    before.append(Node("Transpose", [tensor.name], [name], {"perm": [1, 0]}, name))
    return name
