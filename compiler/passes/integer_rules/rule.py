"""The registry of rules that make integer ops of float ones."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.passes.integer_rules.site import Site

Rule = Callable[[Site], list[Node] | None]
RULES: dict[str, list[Rule]] = {}
"""Rules by float op; the first that fits is taken. A later registration is tried first, as the more special case."""


def integer_rule(*ops: str) -> Callable[[Rule], Rule]:
    """Registers a rule for the float ops named: from a `Site` to the nodes that replace it, None where it does not fit.

    A rule may depend only on the op, its DequantizeLinears and its QuantizeLinear.
    """

    def register(rule: Rule) -> Rule:
        for op in ops:
            RULES.setdefault(op, []).insert(0, rule)
        return rule

    return register
