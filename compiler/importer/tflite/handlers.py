"""Registries of import handlers by TFLite operator, filled by the family files, and `import_op`, which finds one.

`HANDLERS` holds the operators with a rule of their own for 8-bit tensors, and those that are the same for all types.
`PLAIN` holds operators on floats and integers; it also takes 8-bit operands without a rule, by way of floats. `WIDE`
holds the operators of 16-bit activations, and `COMPLEX` those that read or make complex numbers; these have no other
handlers.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importer.tflite.builder import TfliteBuilder
from tilewright.compiler.importer.tflite.schema import FileOp, is_builtin

Handler = Callable[[TfliteBuilder, FileOp], None]
HANDLERS: dict[str, Handler] = {}
PLAIN: dict[str, Handler] = {}
WIDE: dict[str, Handler] = {}
COMPLEX: dict[str, Handler] = {}
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


def import_op(b: TfliteBuilder, op: FileOp) -> None:
    """Emits the nodes of an operator. Raises UnsupportedError: not accepted; CompileError: inconsistent."""
    b.op = op
    wide, is_complex = b.wide(), b.is_complex()
    tables = [COMPLEX] if is_complex else [WIDE] if wide else [HANDLERS, PLAIN] if b.quantised() else [PLAIN, HANDLERS]
    handler = next((table[op.name] for table in tables if op.name in table), None)
    if handler is None:
        what = "" if is_builtin(op.name) else ": a custom operator, whose kernel comes with the program it is made for"
        what = " with complex numbers" if is_complex else " with 16-bit activations" if wide else what
        raise UnsupportedError(f"{op.label} is not supported{what}; docs/tflite.md lists what is")
    for t in (b.model.tensors[i] for i in op.outputs):
        if t.dtype is None and op.name != "VAR_HANDLE" and not is_complex:
            raise b.refuse(f"output {t.name!r} of type {t.type_name} is not supported")
    handler(b, op)
