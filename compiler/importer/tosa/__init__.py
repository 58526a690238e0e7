"""Imports TOSA, the operators that MLIR's front ends lower models to, as `Graph`s (`docs/guide/mlir.md`).

TOSA has integers with zero points and no scales: 8-bit tensors get the scale 1. Arithmetic is that of the
specification. Every operation is emitted for the CPU; where the NPU has an op that provably does the same, that op is
emitted beside it, and `Graph.prune` drops what is not needed. Control flow is ONNX's (`model`).
"""

from __future__ import annotations

from pathlib import Path

from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.graph.graph import Graph, Quant, Tensor
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.importer.onnx import HANDLERS as NODES
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.tosa import (  # noqa: F401  (they fill the handler tables)
    elementwise,
    movement,
    products,
    reduction,
    rescale,
    run,
)
from tilewright.compiler.importer.tosa.builder import HANDLERS
from tilewright.compiler.importer.tosa.model import CONTROL, DOMAIN, TosaModel, model_of, wanted_zeros
from tilewright.compiler.importer.tosa.reading import read
from tilewright.compiler.importer.tosa.records import Shapes, TosaModule
from tilewright.compiler.limits import check_nodes, check_shape
from tilewright.compiler.onnx.onnx_ops import OPSET

__all__ = ["OPERATIONS", "TosaModel", "dynamic_tosa", "import_tosa"]

OPERATIONS = (*HANDLERS, *CONTROL)
"""Names of the operations that are read."""


def import_tosa(text: str, name: str, shapes: Shapes | None = None, staged: bool = False) -> Graph:
    """Reads a TOSA program.

    Args:
        text: MLIR text.
        name: name of its file, for the graph's.
        shapes: of arguments whose batch is left open; 1 if not given.
        staged: large branches and long loops are refused (StagingError), not run in vain and written out.

    Raises:
        CompileError: damaged text, with the place. UnsupportedError: valid MLIR that is not supported.
        StagingError: loops that end by values of the inputs.
    """
    module = _checked(read(text, OPERATIONS, shapes))
    model = model_of(module)
    graph = Graph(Path(name).stem, OPSET)
    zeros = wanted_zeros(module)
    for label, number in zip(module.inputs, module.body.arguments):
        t = module.types[number]
        quant = Quant.of(1.0, zeros.get(number, 0)) if t.dtype in EIGHT_BIT else None
        graph.add(Tensor(label, t.shape, t.dtype, None, quant))
        graph.inputs.append(label)
    for label, value in model.constants.items():
        graph.add(Tensor(label, value.shape, value.dtype, value))
    builder = OnnxBuilder(graph, name, {"": OPSET, DOMAIN: 1}, NODES, staged)
    for node in model.proto.graph.node:
        builder.node(node)
    made = graph.producers()
    for output in model.proto.graph.output:
        graph.outputs.append(output.name)
        if output.name in made:
            graph.tensor(output.name).quant = graph.tensor(made[output.name].inputs[0]).quant
    graph.prune()
    builder.note_reasons()
    if module.open and not shapes:
        graph.notes.append(f"the batch is left open and becomes 1; --shape {module.inputs[0]}=N,... sets another")
    graph.verify("import")
    return graph


def dynamic_tosa(text: str, shapes: Shapes | None = None) -> TosaModel:
    """A TOSA program as an ONNX model, for those that are compiled in parts while they run.

    Raises:
        CompileError: damaged text, with the place. UnsupportedError: valid MLIR that is not supported.
    """
    return model_of(_checked(read(text, OPERATIONS, shapes)))


def _checked(module: TosaModule) -> TosaModule:
    """The program. Raises UnsupportedError for inputs that no program takes."""
    check_nodes("the graph", len(module.body.ops))
    for label, number in zip(module.inputs, module.body.arguments):
        t = module.types[number]
        if t.element == "shape" or t.element == "i48":
            raise UnsupportedError(f"input {label!r} is {t}; tensors of up to 32 bits are accepted")
        check_shape("input", label, t.shape)
    return module
