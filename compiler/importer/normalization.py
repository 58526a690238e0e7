"""Group normalisation."""

from __future__ import annotations

from compiler.errors import CompileError
from compiler.importer.builder import OnnxBuilder
from compiler.importer.handlers import handles
from compiler.importer.onnx_node import OnnxNode


@handles("GroupNormalization")
def group_normalization(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Opset 18 has scale and bias per group; the normal form has them per channel."""
    inputs = list(node.inputs)
    if node.version < 21:
        groups, channels = int(node.attrs.get("num_groups", 0)), builder.shape(node.input(0))[1]
        if groups < 1 or channels % groups:
            raise CompileError(f"{node.label}: num_groups={groups} must divide the {channels} channels")
        for i in (1, 2):
            if builder.shape(inputs[i]) != (channels,) or groups == channels:
                column = builder.emit(
                    "Reshape", [inputs[i], builder.ints("shape", [groups, 1])], attrs={"allowzero": 1}
                )
                wide = builder.ints("shape", [groups, channels // groups])
                column = builder.emit("Expand", [column, wide])
                inputs[i] = builder.emit("Reshape", [column, builder.ints("shape", [channels])], attrs={"allowzero": 1})
    builder.emit("GroupNormalization", inputs, node.outputs, node.attrs)
