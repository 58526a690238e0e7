"""Imports TOSA, the operators that MLIR's front ends lower models to, as `Graph`s (`docs/guide/mlir.md`).

TOSA has integers with zero points and no scales: 8-bit tensors get the scale 1. Arithmetic is that of the
specification. Every operation is emitted for the CPU; where the NPU has an op that provably does the same, that op is
emitted beside it, and `Graph.prune` drops what is not needed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.importer.tosa import (  # noqa: F401  (they fill the handler table)
    control,
    elementwise,
    movement,
    products,
    reduction,
    rescale,
)
from tilewright.compiler.importer.tosa.builder import FILE, HANDLERS, TosaBuilder
from tilewright.compiler.importer.tosa.reading import read
from tilewright.compiler.importer.tosa.records import Block, Shapes, TosaModule
from tilewright.compiler.limits import check_nodes, check_shape
from tilewright.compiler.onnx.onnx_ops import OPSET

__all__ = ["HANDLERS", "import_tosa"]

#: Which operand has the zero point of which other, by operation.
_ZERO_POINTS = {
    "conv2d": {0: 3}, "conv3d": {0: 3}, "depthwise_conv2d": {0: 3}, "transpose_conv2d": {0: 3},
    "matmul": {0: 2, 1: 3}, "avg_pool2d": {0: 1}, "rescale": {0: 3}, "negate": {0: 1},
}  # fmt: skip
_MOVES = ("reshape", "transpose", "slice", "pad", "tile", "reverse", "max_pool2d", "identity", "concat", "clamp")


def import_tosa(text: str, name: str, shapes: Shapes | None = None) -> Graph:
    """Reads a TOSA program.

    Args:
        text: MLIR text.
        name: name of its file, for the graph's.
        shapes: of arguments whose batch is left open; 1 if not given.

    Raises:
        CompileError: damaged text, with the place. UnsupportedError: valid MLIR that is not supported.
    """
    module = read(text, tuple(HANDLERS), shapes)
    graph = _build(module, name)
    if module.open and not shapes:
        graph.notes.append(f"the batch is left open and becomes 1; --shape {module.inputs[0]}=N,... sets another")
    return graph


def _build(module: TosaModule, name: str) -> Graph:
    graph = Graph(Path(name).stem, OPSET)
    b = TosaBuilder(graph, module)
    _want_zeros(b, module.body)
    check_nodes("the graph", len(module.body.ops))
    for label, number in zip(module.inputs, module.body.arguments):
        t = module.types[number]
        if t.element == "shape" or t.element == "i48":
            raise UnsupportedError(f"input {label!r} is {t}; tensors of up to 32 bits are accepted")
        check_shape("input", label, t.shape)
        quant = Quant.of(1.0, b.zero(number)) if t.dtype in EIGHT_BIT else None
        graph.add(Tensor(label, t.shape, t.dtype, None, quant))
        graph.inputs.append(label)
        b.forms[number] = {FILE: label}
    control.run_block(b, module.body)
    for label, number in zip(module.outputs, module.body.returns):
        found = graph.tensor(b.form_of(number))
        label = label if label not in graph.tensors else graph.unique(label)
        graph.add(Tensor(label, found.shape, found.dtype, None, found.quant))
        graph.nodes.append(Node("Identity", [found.name], [label], {}, label))
        graph.outputs.append(label)
    graph.prune()
    emitted = {label for node in graph.nodes for label in node.origin}
    graph.notes += [f"{label}: {why}" for label, why in b.reasons.items() if label in emitted]
    graph.verify("import")
    return graph


def _want_zeros(b: TosaBuilder, block: Block) -> None:
    """Notes the zero points with which 8-bit values are read, through operations that only move them."""
    for op in reversed(block.ops):
        for inner in op.blocks:
            _want_zeros(b, inner)
        for operand, zero in _ZERO_POINTS.get(op.name, {}).items():
            if zero < len(op.operands) and operand < len(op.operands):
                value = b.module.constants.get(op.operands[zero])
                if value is not None and value.size == 1 and value.dtype in EIGHT_BIT:
                    _want(b, op.operands[operand], int(np.asarray(value).reshape(-1)[0]), op.name != "rescale")
        if op.name in _MOVES and op.results[0] in b.wanted:
            for operand in op.operands if op.name == "concat" else op.operands[:1]:
                _want(b, operand, b.wanted[op.results[0]], True)


def _want(b: TosaBuilder, number: int, zero: int, first: bool) -> None:
    """Notes a zero point; those of products count before those of a RESCALE."""
    t = b.module.types[number]
    if t.element in ("i8", "ui8") and (first or number not in b.wanted):
        b.wanted[number] = zero
