"""Elementwise ops whose form changed: legacy broadcasting, Clip, PRelu, Cast, constants."""

from __future__ import annotations

import numpy as np
import onnx

from tilewright.compiler.errors import CompileError, StagingError, UnsupportedError
from tilewright.compiler.graph.graph import Tensor
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.onnx.onnx_ops import numpy_dtype


@handles("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Greater", "Less", "Equal")
def binary(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports binary ops: opset 6 aligns B with A at `axis`; the normal form is NumPy's broadcasting."""
    a, b = node.input(0), node.input(1)
    if node.version < 7 and node.attrs.get("broadcast"):
        rank, own = len(builder.shape(a)), builder.shape(b)
        axis = node.attrs.get("axis", rank - len(own))
        axis += rank if axis < 0 else 0
        tail = rank - axis - len(own)
        if tail > 0:
            b = builder.reshaped(b, own + (1,) * tail)
    builder.emit(node.op, [a, b], node.outputs)


@handles("Clip")
def clip(builder: OnnxBuilder, node: OnnxNode) -> None:
    x = node.input(0)
    if node.version >= 11:
        builder.emit("Clip", node.inputs, node.outputs)
        return
    dtype = builder.tensor(x).dtype
    bounds = [builder.constant(k, node.attrs[k], dtype) if k in node.attrs else "" for k in ("min", "max")]
    builder.emit("Clip", [x, *bounds], node.outputs)


@handles("PRelu")
def prelu(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports PRelu: opset 6 has one slope, or one per channel."""
    x, slope = node.inputs
    rank, own = len(builder.shape(x)), builder.shape(slope)
    if node.version < 7 and len(own) == 1 and rank > 1:
        slope = builder.reshaped(slope, [*own, *[1] * (rank - 2)])
    builder.emit("PRelu", [x, slope], node.outputs)


@handles("Cast")
def cast(builder: OnnxBuilder, node: OnnxNode) -> None:
    to = node.attrs.get("to")
    if isinstance(to, str):
        to = getattr(onnx.TensorProto, to, 0)
    numpy_dtype(int(to or 0), f"{node.label}: attribute to={to}")
    builder.emit("Cast", node.inputs, node.outputs, {**node.attrs, "to": int(to or 0)})


@handles("CastLike")
def cast_like(builder: OnnxBuilder, node: OnnxNode) -> None:
    to = int(onnx.helper.np_dtype_to_tensor_dtype(builder.tensor(node.input(1)).dtype))
    attrs = {k: v for k, v in node.attrs.items() if k != "to"}
    builder.emit("Cast", [node.input(0)], node.outputs, {**attrs, "to": to})


@handles("Constant")
def constant(builder: OnnxBuilder, node: OnnxNode) -> None:
    if len(node.attrs) != 1:
        raise CompileError(f"{node.label}: needs exactly one value attribute, not {sorted(node.attrs)}")
    ((key, value),) = node.attrs.items()
    kinds = {"value": None, "value_int": np.int64, "value_ints": np.int64, "value_float": np.float32,
             "value_floats": np.float32, "value_string": np.object_, "value_strings": np.object_}  # fmt: skip
    if key not in kinds:
        raise UnsupportedError(f"{node.label}: {key} is not supported; accepted: {', '.join(kinds)}")
    array = np.asarray(value) if kinds[key] is None else np.asarray(value, kinds[key])
    if array.dtype.kind in "OUS":
        raise StagingError(f"{node.label} is a constant of strings; a compiled program takes numbers and booleans")
    if node.output(0) in builder.graph.tensors:
        raise CompileError(f"{node.label} makes {node.output(0)!r}, which exists already")
    builder.graph.add(Tensor(node.output(0), tuple(array.shape), array.dtype, array))
