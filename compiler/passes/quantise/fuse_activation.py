"""Fuses clamping tables into the output range of the op before.

    QLut(op(...)),  table = clip(q, lo, hi), same scale on both sides   =>   op(...) with out_min = lo, out_max = hi

if nothing else reads the op's result. The tensor behind the table keeps its name. Relu and Clip between a float op and
its QuantizeLinear are fused by `fuse_quantization` already; a Relu the quantiser absorbed into the zero point needs
nothing: saturation is the clamp.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.elementwise import QLut
from tilewright.compiler.graph.ops.quantized_op import Clamped
from tilewright.compiler.graph.quantization import limits


def fuse_activation(graph: Graph) -> None:
    producers, consumers = graph.producers(), graph.consumers()
    dropped: set[int] = set()
    for node in graph:
        bounds = clamp_bounds(graph, node)
        if bounds is None:
            continue
        source = producers.get(node.inputs[0])
        name = node.inputs[0]
        if source is None or not isinstance(source.quantized, Clamped):
            continue
        if name in graph.outputs or len(consumers[name]) != 1:
            continue
        source.quantized = source.quantized.clamped(*bounds)
        source.outputs = [node.outputs[0]]
        source.origin = (*source.origin, *node.origin)
        producers[node.outputs[0]] = source
        dropped.add(id(node))
    graph.nodes = [n for n in graph if id(n) not in dropped]
    graph.prune()


def clamp_bounds(graph: Graph, node: Node) -> tuple[int, int] | None:
    """(lo, hi) if the node is a table that only clamps, with the same quantisation in and out."""
    if not isinstance(node.quantized, QLut):
        return None
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.outputs[0])
    if x.quant is None or not x.quant.same_as(y.quant) or x.dtype != y.dtype:
        return None
    least, most = limits(y.dtype)
    values = node.quantized.array.view(y.dtype)
    every = np.arange(256, dtype=np.uint8).view(y.dtype)
    low, high = int(values.min()), int(values.max())
    if (low, high) == (least, most) or not np.array_equal(np.clip(every, low, high), values):
        return None
    return low, high
