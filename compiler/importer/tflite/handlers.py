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


def handles(*ops: str, table: dict[str, Handler] = HANDLERS) -> Callable[[Handler], Handler]:
    """Registers a function as the importer of `ops`."""

    def register(handler: Handler) -> Handler:
        for op in ops:
            table[op] = handler
        return handler

    return register


def handler_of(op: str, quantised: bool) -> Handler | None:
    """The handler of an operator, by whether it has 8-bit quantised activations; None if there is none."""
    first, second = (HANDLERS, PLAIN) if quantised else (PLAIN, HANDLERS)
    return first.get(op) or second.get(op)
