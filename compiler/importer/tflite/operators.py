"""`import_op`: one operator of a file, by the tables of handlers."""

from __future__ import annotations

from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importer.tflite.builder import TfliteBuilder
from tilewright.compiler.importer.tflite.handlers import WIDE, handler_of
from tilewright.compiler.importer.tflite.schema import FileOp, is_builtin


def import_op(b: TfliteBuilder, op: FileOp) -> None:
    """Emits the nodes of an operator. Raises UnsupportedError: not accepted; CompileError: inconsistent."""
    b.op = op
    wide = b.wide()
    handler = WIDE.get(op.name) if wide else handler_of(op.name, b.quantised())
    if handler is None:
        what = "" if is_builtin(op.name) else ": a custom operator, whose kernel comes with the program it is made for"
        what = " with 16-bit activations" if wide else what
        raise UnsupportedError(f"{op.label} is not supported{what}; docs/tflite.md lists what is")
    for t in (b.model.tensors[i] for i in op.outputs):
        if t.dtype is None and op.name != "VAR_HANDLE":
            raise b.refuse(f"output {t.name!r} of type {t.type_name} is not supported")
    handler(b, op)
