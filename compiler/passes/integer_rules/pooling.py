"""Integer rules of AveragePool, GlobalAveragePool, means and sums."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tilewright.compiler.graph.graph import Node, Tensor
from tilewright.compiler.graph.moves import Mover
from tilewright.compiler.graph.ops.pooling import QAveragePool, QGlobalAveragePool
from tilewright.compiler.graph.quantization import limits
from tilewright.compiler.passes.integer_rules.rule import integer_rule
from tilewright.compiler.passes.integer_rules.site import Site
from tilewright.isa import numerics


@integer_rule("AveragePool")
def average_pool(site: Site) -> list[Node] | None:
    """The rule of AveragePool. Padding counts in the divisor with count_include_pad, the overhang of ceil mode
    included.

    (The float AveragePool does not count the overhang; onnxruntime's QLinearAveragePool does.)
    """
    x, attrs = site.activation(0, signed=True), site.node.attrs
    dilated = any(d != 1 for d in attrs.get("dilations", []))
    if x is None or dilated or x.dtype != site.out.dtype or not site.fused:
        return None
    kernel, strides, pads = list(attrs["kernel_shape"]), list(attrs["strides"]), list(attrs["pads"])
    if attrs.get("ceil_mode"):
        rank = len(kernel)
        for i in range(rank):
            covered = (site.out.shape[2 + i] - 1) * strides[i] + kernel[i]
            pads[rank + i] = covered - x.shape[2 + i] - pads[i]
    include = bool(attrs.get("count_include_pad", 0))
    op = QAveragePool(kernel=tuple(kernel), strides=tuple(strides), pads=tuple(pads), count_include_pad=include)
    return [site.make(op, [x.name])]


@integer_rule("GlobalAveragePool")
def global_average_pool(site: Site) -> list[Node] | None:
    x = site.activation(0)
    if x is None or x.dtype != site.out.dtype:
        return None
    reason = "" if site.fused else _why_floats(site, x, math.prod(x.shape[2:]))
    return [site.make(QGlobalAveragePool(keepdims=True, reason=reason), [x.name])]


@integer_rule("ReduceMean", "ReduceSum")
def reduce_mean(site: Site) -> list[Node] | None:
    """The rule of a mean or a sum over any dimensions: a Transpose brings them to the end, and a Reshape into the place
    of planes.

    onnxruntime has no integer kernel for it.
    """
    x = site.activation(0)
    axes = site.graph.const(site.node.inputs[1]) if site.has(1) else None
    if x is None or axes is None or axes.size == 0 or x.dtype != site.out.dtype or 0 in x.shape:
        return None
    assert x.quant is not None
    rank, keep, divided = len(x.shape), bool(site.node.attrs.get("keepdims", 1)), site.node.op == "ReduceMean"
    reduced = sorted({int(a) % rank for a in axes.reshape(-1)})
    kept = [i for i in range(rank) if i not in reduced]
    op = QGlobalAveragePool(
        factor=None if divided else float(np.float32(x.quant.scale) / np.float32(site.out_quant.scale)),
        reason=_why_floats(site, x, math.prod(x.shape[i] for i in reduced), divided),
    )
    planes = len(kept) == 2 and kept[0] == 0
    if planes and kept[1] == 1:
        return [site.make(replace(op, keepdims=keep), [x.name])]
    nodes: list[Node] = []
    mover = Mover(site.graph, nodes)
    name = mover.transpose(x.name, [*kept, *reduced])
    pooled = tuple(x.shape[i] for i in kept)
    if not planes:
        pooled = 1, math.prod(pooled)
        name = mover.reshape(name, (*pooled, math.prod(x.shape[i] for i in reduced)))
    made = site.make(replace(op, keepdims=False), [name])
    nodes.append(made)
    if pooled != site.out.shape:
        made.outputs = [site.graph.like(site.out, f"{site.out.name}.flat", pooled)]
        replace(mover, name=made.name, origin=made.origin).reshape(made.outputs[0], site.out.shape, site.out.name)
    return nodes


def _why_floats(site: Site, x: Tensor, n: int, divided: bool = True) -> str:
    """The reason why a mean of n elements may differ from onnxruntime's float one; empty if it cannot."""
    assert x.quant is not None
    zero, bounds = int(x.quant.zero_point), limits(x.dtype)
    tie = numerics.mean_may_tie(x.quant.scale, zero, site.out_quant.scale, n, *bounds, divided)
    return site.in_floats if tie else ""
