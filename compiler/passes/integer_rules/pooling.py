"""AveragePool, GlobalAveragePool and means."""

from __future__ import annotations

import math

from compiler.graph import Node, Tensor
from compiler.ops.pooling import QAveragePool, QGlobalAveragePool
from compiler.passes.integer_rules.rule import integer_rule
from compiler.passes.integer_rules.site import Site
from compiler.quantization import limits
from isa import numerics


@integer_rule("AveragePool")
def average_pool(site: Site) -> list[Node] | None:
    """Padding counts in the divisor where count_include_pad says so, the overhang of ceil mode included.

    (The float AveragePool does not count the overhang; onnxruntime's QLinearAveragePool does.)
    """
    x, attrs = site.activation(0), site.node.attrs
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


@integer_rule("ReduceMean")
def reduce_mean(site: Site) -> list[Node] | None:
    """A mean over all dimensions but the first and one other; that one becomes the channels by a Transpose.

    onnxruntime has no integer kernel for it.
    """
    x = site.activation(0)
    axes = site.graph.const(site.node.inputs[1]) if site.has(1) else None
    if x is None or axes is None or x.dtype != site.out.dtype:
        return None
    rank, keep = len(x.shape), bool(site.node.attrs.get("keepdims", 1))
    reduced = sorted(int(a) % rank for a in axes)
    kept = [i for i in range(rank) if i not in reduced]
    if rank < 3 or len(kept) != 2 or kept[0] != 0:
        return None
    reason = _why_floats(site, x, math.prod(x.shape[i] for i in reduced))
    if kept[1] == 1:
        return [site.make(QGlobalAveragePool(keepdims=keep, reason=reason), [x.name])]
    if keep:
        return None
    perm = [0, kept[1], *reduced]
    name = site.graph.unique(f"{x.name}.transposed")
    site.graph.add(Tensor(name, tuple(x.shape[p] for p in perm), x.dtype, None, x.quant))
    move = Node("Transpose", [x.name], [name], {"perm": perm}, name)
    return [move, site.make(QGlobalAveragePool(keepdims=False, reason=reason), [name])]


def _why_floats(site: Site, x: Tensor, n: int) -> str:
    """Why a mean of n elements may differ from onnxruntime's, which is one of floats; empty if it cannot."""
    assert x.quant is not None
    tie = numerics.mean_may_tie(x.quant.scale, int(x.quant.zero_point), site.out_quant.scale, n, *limits(x.dtype))
    return site.in_floats if tie else ""
