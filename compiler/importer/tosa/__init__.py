"""Imports TOSA, the operators that MLIR's front ends lower models to, as `Graph`s (`docs/guide/mlir.md`).

TOSA has integers with zero points and no scales: 8-bit tensors get the scale 1. Arithmetic is that of the
specification. Every operation is emitted for the CPU; where the NPU has an op that provably does the same, that op is
emitted beside it, and `Graph.prune` drops what is not needed. Control flow is ONNX's (`model`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.importer.onnx import LoadedModel, import_onnx
from tilewright.compiler.importer.tosa import (  # noqa: F401  (they fill the handler tables)
    elementwise,
    movement,
    products,
    reduction,
    rescale,
    run,
)
from tilewright.compiler.importer.tosa.builder import HANDLERS
from tilewright.compiler.importer.tosa.model import CONTROL, model_of
from tilewright.compiler.importer.tosa.reading import read
from tilewright.compiler.importer.tosa.records import Shapes, TosaModule
from tilewright.compiler.limits import check_nodes, check_shape

__all__ = ["OPERATIONS", "import_tosa", "tosa_model"]

OPERATIONS = (*HANDLERS, *CONTROL)
"""Names of the operations that are read."""


def import_tosa(
    text: str,
    name: str,
    shapes: Shapes | None = None,
    constants: Mapping[str, Any] | None = None,
    staged: bool = False,
) -> Graph:
    """Reads a TOSA program.

    Args:
        text: MLIR text.
        name: name of its file.
        shapes: of arguments whose batch is left open; 1 if not given.
        constants: values of arguments to fix now.
        staged: large branches and long loops are refused (StagingError), not run in vain and written out.

    Raises:
        CompileError: damaged text, with the place. UnsupportedError: valid MLIR that is not supported.
        StagingError: loops that end by values of the inputs.
    """
    module = _read(text, shapes)
    graph = import_onnx(LoadedModel(name, model_of(module, name)), None, dict(constants or {}), staged)
    if module.open and not shapes:
        graph.notes.append(f"the batch is left open and becomes 1; --shape {module.inputs[0]}=N,... sets another")
    return graph


def tosa_model(text: str, name: str, shapes: Shapes | None = None) -> onnx.ModelProto:
    """A TOSA program as an ONNX model, which is compiled in parts while it runs.

    Raises:
        CompileError: damaged text, with the place. UnsupportedError: valid MLIR that is not supported.
    """
    return model_of(_read(text, shapes), name)


def _read(text: str, shapes: Shapes | None) -> TosaModule:
    """The program. Raises UnsupportedError for inputs that no program takes."""
    module = read(text, OPERATIONS, shapes)
    check_nodes("the graph", len(module.body.ops))
    for label, number in zip(module.inputs, module.body.arguments):
        t = module.types[number]
        if t.element == "shape" or t.element == "i48":
            raise UnsupportedError(f"input {label!r} is {t}; tensors of up to 32 bits are accepted")
        check_shape("input", label, t.shape)
    return module
