"""The registry of operator rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.graph.ops import QuantizedOp

Rule = Callable[[Context], None]
Q = TypeVar("Q", bound=QuantizedOp)
RULES: dict[str, Rule] = {}


def op(*names: str) -> Callable[[Rule], Rule]:
    """Registers the rule of the named operators."""

    def register(rule: Rule) -> Rule:
        for name in names:
            RULES[name] = rule
        return rule

    return register


def quantized(kind: type[Q]) -> Callable[[Callable[[Context, Q], None]], Callable[[Context, Q], None]]:
    """Registers the kernel of a quantised op; it is called with the op's attributes."""

    def register(kernel: Callable[[Context, Q], None]) -> Callable[[Context, Q], None]:
        def rule(ctx: Context) -> None:
            attributes = ctx.node.quantized
            assert isinstance(attributes, kind)
            kernel(ctx, attributes)

        RULES[kind.name] = rule
        return kernel

    return register
