"""The integer rule of Softmax."""

from __future__ import annotations

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.softmax import QSoftmax
from tilewright.compiler.passes.integer_rules.rule import integer_rule
from tilewright.compiler.passes.integer_rules.site import Site
from tilewright.isa import numerics


@integer_rule("Softmax")
def softmax(site: Site) -> list[Node] | None:
    """The rule of QSoftmax with onnxruntime's `levels`; none where they are more than its int32 holds."""
    x = site.activation(0)
    if x is None or x.dtype != site.out.dtype or not site.fused:
        return None
    axis = int(site.node.attrs.get("axis", -1)) % len(x.shape)
    levels = float(numerics.softmax_levels(site.out_quant.scale))
    if levels >= 2.0**31:
        return None
    return [site.make(QSoftmax(axis=axis, levels=levels), [x.name])]
