"""Softmax."""

from __future__ import annotations

import numpy as np

from compiler.graph import Node
from compiler.ops.softmax import QSoftmax
from compiler.passes.integer_rules.rule import integer_rule
from compiler.passes.integer_rules.site import Site


@integer_rule("Softmax")
def softmax(site: Site) -> list[Node] | None:
    """QSoftmax with `levels`: y = sat(RNE(softmax(x) * levels) + zy).

    onnxruntime scales by floor(f32(1 / sy)), an integer: 254 for the usual sy = 1/255 in float32, which is why the
    plain 1 / sy is wrong in some 0.3 % of elements there.
    """
    x = site.activation(0)
    if x is None or x.dtype != site.out.dtype or not site.fused:
        return None
    axis = int(site.node.attrs.get("axis", -1)) % len(x.shape)
    levels = float(np.floor(np.float32(1) / np.float32(site.out_quant.scale)))
    return [site.make(QSoftmax(axis=axis, levels=levels), [x.name])]
