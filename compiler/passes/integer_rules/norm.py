"""Integer rules of norms of rows and of planes with constant scale and bias, and of LpNormalization by lengths."""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.moves import Mover
from tilewright.compiler.graph.ops.norm import QNorm, QPlaneNorm
from tilewright.compiler.passes.integer_rules.rule import integer_rule
from tilewright.compiler.passes.integer_rules.site import Site


@integer_rule("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def norm(site: Site) -> list[Node] | None:
    """The rule of QNorm, where the axis is the last and there is but one result."""
    x, attrs = site.activation(0), site.node.attrs
    epsilon = float(attrs.get("epsilon", 1e-5))
    if x is None or x.dtype != site.out.dtype or not site.plain or not x.shape or any(site.node.outputs[1:]):
        return None
    if int(attrs.get("axis", -1)) % len(x.shape) != len(x.shape) - 1:
        return None
    if not 0 <= epsilon < math.inf:
        return None
    inputs = [x.name]
    for index in (1, 2):
        if index == 1 or site.has(index):
            values = site.constant(index)
            if values is None or not (values.size == 1 or values.size == x.shape[-1] == values.shape[-1]):
                return None  # not one value for all or one for each channel
            row = np.broadcast_to(values.reshape(-1), x.shape[-1:]).copy()
            inputs.append(site.graph.constant(f"{site.node.inputs[index]}.row", row))
    centred = site.node.op == "LayerNormalization"
    return [site.make(QNorm(epsilon=epsilon, centred=centred), inputs)]


@integer_rule("InstanceNormalization", "GroupNormalization")
def plane_norm(site: Site) -> list[Node] | None:
    """The rule of QPlaneNorm, where scale and bias are constants, one for each channel."""
    x, attrs = site.activation(0), site.node.attrs
    epsilon = float(attrs.get("epsilon", 1e-5))
    if x is None or x.dtype != site.out.dtype or not site.plain or len(x.shape) < 3 or 0 in x.shape:
        return None
    if not 0 <= epsilon < math.inf:
        return None
    groups = int(attrs.get("num_groups", x.shape[1]))
    inputs = [x.name]
    for index in (1, 2):
        values = site.constant(index)
        if values is None or values.shape != x.shape[1:2]:
            return None
        inputs.append(site.graph.constant(f"{site.node.inputs[index]}.channels", values))
    return [site.make(QPlaneNorm(epsilon=epsilon, groups=groups), inputs)]


@integer_rule("LpNormalization")
def unit_length(site: Site) -> list[Node] | None:
    """The rule of rows divided by their lengths: a norm by the root mean square, times 1 / sqrt(n).

    Rows of zeros stay zeros; an epsilon too small for any other row sees to that. Channels of planes come last by moves
    that leave the NPU's bytes in place.
    """
    x, rank = site.activation(0), len(site.out.shape)
    axis = int(site.node.attrs.get("axis", -1)) % max(rank, 1)
    if x is None or x.dtype != site.out.dtype or not site.plain or int(site.node.attrs.get("p", 2)) != 2:
        return None
    planes = rank == 4 and axis == 1
    if 0 in x.shape or not (planes or axis == rank - 1):
        return None
    assert x.quant is not None
    channels = x.shape[axis]
    scale = np.full(channels, 1 / math.sqrt(channels), np.float32)
    factors = site.graph.constant(f"{site.out.name}.length", scale)
    op = QNorm(epsilon=float(x.quant.scale) ** 2 / channels * 2.0**-30, centred=False)
    if not planes:
        return [site.make(op, [x.name, factors])]
    n, c, h, w = x.shape
    nodes: list[Node] = []
    mover = Mover(site.graph, nodes, stem=f"{site.out.name}.rows")
    rows = mover.reshape(mover.transpose(x.name, [0, 2, 3, 1]), (n, h * w, c))
    norm = site.make(op, [rows, factors])
    norm.outputs = [site.graph.like(site.out, f"{site.out.name}.rows", (n, h * w, c))]
    nodes.append(norm)
    mover.transpose(mover.reshape(norm.outputs[0], (n, h, w, c)), [0, 3, 1, 2], site.out.name)
    return nodes
