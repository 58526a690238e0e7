"""Registries of import handlers by TFLite operator, filled by the family files.

`HANDLERS` holds the operators with a rule of their own for 8-bit tensors, and those that are the same for all types.
`PLAIN` holds operators on floats and integers; it also takes 8-bit operands without a rule, by way of floats. `WIDE`
holds the operators of 16-bit activations, which have no other handlers.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.compiler.importer.tflite.builder import TfliteBuilder
from tilewright.compiler.importer.tflite.schema import FileOp

Handler = Callable[[TfliteBuilder, FileOp], None]
HANDLERS: dict[str, Handler] = {}
PLAIN: dict[str, Handler] = {}
WIDE: dict[str, Handler] = {}
MOVES: set[str] = set()
"""Operators whose results are elements of their operands, of whatever type."""


def handles(*ops: str, table: dict[str, Handler] = HANDLERS, wide: bool = False) -> Callable[[Handler], Handler]:
    """Registers a function as the importer of `ops`; with `wide` also of 16-bit activations."""

    def register(handler: Handler) -> Handler:
        for op in ops:
            table[op] = handler
            if wide:
                WIDE[op] = handler
        return handler

    return register


def moves(*ops: str) -> Callable[[Handler], Handler]:
    """Registers a function as the importer of `ops`, which move elements of any type."""
    MOVES.update(ops)
    return handles(*ops, wide=True)


def handler_of(op: str, quantised: bool) -> Handler | None:
    """The handler of an operator, by whether it has 8-bit quantised activations; None if there is none."""
    first, second = (HANDLERS, PLAIN) if quantised else (PLAIN, HANDLERS)
    return first.get(op) or second.get(op)
