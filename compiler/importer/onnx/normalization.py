"""Group normalisation, local response normalisation, and onnxruntime's norms from before ONNX had them."""

from __future__ import annotations

import numpy as np
import onnx

from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode


@handles("GroupNormalization")
def group_normalization(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports GroupNormalization: opset 18 has scale and bias per group; the normal form has them per channel."""
    inputs = list(node.inputs)
    groups, channels = node.positive("num_groups", 0), builder.shape(node.input(0))[1]
    if channels % groups:
        raise CompileError(f"{node.label}: num_groups={groups} must divide the {channels} channels")
    if node.version < 21:
        for i in (1, 2):
            if builder.shape(inputs[i]) != (channels,) or groups == channels:
                column = builder.reshaped(inputs[i], [groups, 1])
                wide = builder.emit("Expand", [column, builder.ints("shape", [groups, channels // groups])])
                inputs[i] = builder.reshaped(wide, [channels])
    builder.emit("GroupNormalization", inputs, node.outputs, node.attrs)


@handles("LayerNormalization", domain="com.microsoft")
def layer_normalization(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports ONNX's LayerNormalization in a model of an older opset."""
    builder.passthrough(node)


@handles("SimplifiedLayerNormalization", domain="com.microsoft")
def simplified_layer_normalization(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports RMSNormalization and its multiplier. Inputs X, scale; outputs Y, inv_std_var."""
    axis, epsilon = int(node.attrs.get("axis", -1)), float(node.attrs.get("epsilon", 1e-5))
    x = builder.tensor(node.input(0))
    if not -len(x.shape) <= axis < len(x.shape):
        raise CompileError(f"{node.label}: axis={axis} must be within the {len(x.shape)} axes of {x.name!r}")
    builder.emit("RMSNormalization", node.inputs[:2], [node.output(0)], {"axis": axis, "epsilon": epsilon})
    if node.output(1):
        wide = builder.emit("Cast", [x.name], attrs={"to": int(onnx.TensorProto.FLOAT)})
        axes = builder.ints("axes", range(axis % len(x.shape), len(x.shape)))
        mean = builder.emit("ReduceMean", [builder.emit("Mul", [wide, wide]), axes], attrs={"keepdims": 1})
        shifted = builder.emit("Add", [mean, builder.constant("epsilon", epsilon, np.float32)])
        builder.emit("Reciprocal", [builder.emit("Sqrt", [shifted])], [node.output(1)])


@handles("LRN")
def local_response(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Checks the size of an LRN and emits the node unchanged."""
    node.positive("size", 0)
    builder.passthrough(node)
