"""The integer rule of Concat."""

from __future__ import annotations

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.passes.integer_rules.rule import integer_rule
from tilewright.compiler.passes.integer_rules.site import Site


@integer_rule("Concat")
def concat(site: Site) -> list[Node] | None:
    before: list[Node] = []
    if not any(site.activation(i) is not None for i in range(len(site.node.inputs))):
        return None
    operands = [site.operand(i, before) for i in range(len(site.node.inputs))]
    if any(t is None for t in operands):
        return None
    tensors = [t for t in operands if t is not None]
    tables = tuple(None if t is None else t.tobytes() for t in map(site.requantizing_table, tensors))
    axis = int(site.node.attrs["axis"])
    return [*before, site.make(QConcat(axis=axis, tables=tables), [t.name for t in tensors])]
