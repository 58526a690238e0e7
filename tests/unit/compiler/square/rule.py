"""Makes QSquare of float ops. In the compiler this file would be `compiler/passes/integer_rules/square.py`."""

from __future__ import annotations

from tests.unit.compiler.square.op import QSquare
from tilewright.compiler.graph.graph import Node
from tilewright.compiler.passes.integer_rules import Site, integer_rule


@integer_rule("Mul")
def square(site: Site) -> list[Node] | None:
    """x * x."""
    x = site.activation(0)
    if x is None or site.activation(1) is not x or x.dtype != site.out.dtype:
        return None
    return [site.make(QSquare(), [x.name])]
