"""LayerNormalization and RMSNormalization with constant scale and bias."""

from __future__ import annotations

import math

import numpy as np

from compiler.graph import Node
from compiler.ops.norm import QNorm
from compiler.passes.integer_rules.rule import integer_rule
from compiler.passes.integer_rules.site import Site


@integer_rule("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def norm(site: Site) -> list[Node] | None:
    """QNorm, where the axis is the last and there is but one result."""
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
