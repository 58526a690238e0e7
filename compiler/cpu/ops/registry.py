"""The table of operators."""

from __future__ import annotations

from collections.abc import Callable

from compiler.cpu.fuse import Context

Rule = Callable[[Context], None]
OPS: dict[str, Rule] = {}


def op(*names: str) -> Callable[[Rule], Rule]:
    """Registers the rule of the named operators."""

    def register(rule: Rule) -> Rule:
        for name in names:
            OPS[name] = rule
        return rule

    return register
