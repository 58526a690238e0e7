"""Group normalisation, local response normalisation."""

from __future__ import annotations

from compiler.errors import CompileError
from compiler.importer.builder import OnnxBuilder
from compiler.importer.handlers import handles
from compiler.importer.onnx_node import OnnxNode


@handles("GroupNormalization")
def group_normalization(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Opset 18 has scale and bias per group; the normal form has them per channel."""
    inputs = list(node.inputs)
    groups, channels = node.positive("num_groups", 0), builder.shape(node.input(0))[1]
    if channels % groups:
        raise CompileError(f"{node.label}: num_groups={groups} must divide the {channels} channels")
    if node.version < 21:
        for i in (1, 2):
            if builder.shape(inputs[i]) != (channels,) or groups == channels:
                column = builder.emit(
                    "Reshape", [inputs[i], builder.ints("shape", [groups, 1])], attrs={"allowzero": 1}
                )
                wide = builder.ints("shape", [groups, channels // groups])
                column = builder.emit("Expand", [column, wide])
                inputs[i] = builder.emit("Reshape", [column, builder.ints("shape", [channels])], attrs={"allowzero": 1})
    builder.emit("GroupNormalization", inputs, node.outputs, node.attrs)


@handles("LRN")
def local_response(builder: OnnxBuilder, node: OnnxNode) -> None:
    """As it is."""
    node.positive("size", 0)
    builder.passthrough(node)
