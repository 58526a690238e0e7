"""`import_op`: one operator of a file, by the tables of handlers."""

from __future__ import annotations

import numpy as np

from compiler.errors import UnsupportedError
from compiler.importer.tflite.builder import TfliteBuilder
from compiler.importer.tflite.handlers import handler_of
from compiler.importer.tflite.schema import FileOp, is_builtin


def import_op(b: TfliteBuilder, op: FileOp) -> None:
    """Appends what an operator does. Raises UnsupportedError: not accepted; CompileError: inconsistent."""
    b.op = op
    handler = handler_of(op.name, b.quantised())
    if handler is None:
        what = "" if is_builtin(op.name) else ": a custom operator, whose kernel comes with the program it is made for"
        raise UnsupportedError(f"{op.label} is not supported{what}; docs/tflite.md lists what is")
    for t in (b.model.tensors[i] for i in op.outputs):
        if t.dtype is None and op.name != "VAR_HANDLE":
            raise b.refuse(f"output {t.name!r} of type {t.type_name} is not supported")
        if t.dtype == np.int16 and t.quant is not None:
            what = "8-bit and float32 activations are supported: quantise the float model with int8 activations"
            raise b.refuse(f"output {t.name!r} has 16-bit steps; {what}")
    handler(b, op)
