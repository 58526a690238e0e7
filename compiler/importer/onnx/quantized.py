"""QuantizeLinear, DequantizeLinear, and ONNX's QLinear ops as DequantizeLinear -> op -> QuantizeLinear."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.graph.quantization import NO_ZERO_POINT, bias_scale
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.convolution import conv_attrs
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.onnx.onnx_ops import numpy_dtype


def check_scale(label: str, name: str, scale: np.ndarray) -> None:
    """Raises CompileError unless every scale is finite. Dead channels have a scale of 0."""
    values = np.asarray(scale, np.float64).reshape(-1)
    bad = values[~np.isfinite(values)]
    if bad.size:
        raise CompileError(f"{label}: scale {name!r} is {bad[0]:g}; scales must be finite")


def parameters(
    builder: OnnxBuilder, node: OnnxNode, data: str, scale: str, zero_point: str, axis: int, block: int = 0
) -> tuple[str, str]:
    """Checks one scale and zero point against the tensor they describe; one-element ones become scalars.

    Raises:
        CompileError: NaN or infinite scale; a shape that fits neither tensor nor axis.
    """
    shape, s, z = builder.shape(data), builder.tensor(scale), builder.tensor(zero_point)
    if s.data is not None:
        check_scale(node.label, scale, s.data)
    if s.size != z.size or (s.shape != z.shape and s.size != 1):
        raise CompileError(
            f"{node.label}: scale {scale!r} {list(s.shape)} and zero point {zero_point!r} {list(z.shape)} "
            "differ in shape"
        )
    if block:
        return scale, zero_point
    if s.size != 1 or (s.shape and shape and s.data is None):
        if len(s.shape) > 1:
            raise CompileError(
                f"{node.label}: scale {scale!r} has shape {list(s.shape)}; a scalar or one per channel is accepted"
            )
        if s.size != 1 and (not -len(shape) <= axis < len(shape) or shape[axis] != s.size):
            raise CompileError(
                f"{node.label}: scale {scale!r} has {s.size} values for axis {axis} of {data!r} {list(shape)}"
            )
        return scale, zero_point
    if s.shape and s.data is not None:
        scale = builder.constant(scale, s.data.reshape(()))
    if z.shape and z.data is not None:
        zero_point = builder.constant(zero_point, z.data.reshape(()))
    return scale, zero_point


def dequantize(
    builder: OnnxBuilder,
    node: OnnxNode,
    data: str,
    scale: str,
    zero_point: str,
    output: str = "",
    axis: int = 1,
    **attrs: Any,
) -> str:
    """Emits DequantizeLinear, with a zero point of 0 where none is given; returns the float tensor's name."""
    if not zero_point:
        zero_point = builder.constant("zero_point", np.zeros(builder.shape(scale), builder.tensor(data).dtype))
    if builder.tensor(zero_point).dtype != builder.tensor(data).dtype:
        raise CompileError(
            f"{node.label}: zero point {zero_point!r} is {builder.tensor(zero_point).dtype}, "
            f"its tensor {data!r} {builder.tensor(data).dtype}"
        )
    scale, zero_point = parameters(builder, node, data, scale, zero_point, axis, int(attrs.get("block_size", 0)))
    out = output or builder.fresh(f"{data}.float")
    return builder.emit("DequantizeLinear", [data, scale, zero_point], [out], {**attrs, "axis": axis})


def quantize(
    builder: OnnxBuilder,
    node: OnnxNode,
    data: str,
    scale: str,
    zero_point: str,
    output: str,
    axis: int = 1,
    **attrs: Any,
) -> str:
    """Emits QuantizeLinear; a missing zero point is 0 of the type `output_dtype` names, uint8 by default."""
    if not zero_point:
        kind = int(attrs.get("output_dtype", 0)) or 2
        dtype = numpy_dtype(kind, f"{node.label}: output_dtype={kind}")
        zero_point = builder.constant("zero_point", np.zeros(builder.shape(scale), dtype))
    scale, zero_point = parameters(builder, node, data, scale, zero_point, axis, int(attrs.get("block_size", 0)))
    return builder.emit(
        "QuantizeLinear", [data, scale, zero_point], [output], {**attrs, "axis": axis, "output_dtype": 0}
    )


@handles("QuantizeLinear")
@handles("QuantizeLinear", domain="com.microsoft")
def quantize_linear(builder: OnnxBuilder, node: OnnxNode) -> None:
    attrs = {k: v for k, v in node.attrs.items() if k in ("axis", "saturate", "block_size", "output_dtype")}
    quantize(builder, node, node.input(0), node.input(1), node.input(2), node.output(0), **attrs)


@handles("DequantizeLinear")
@handles("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(builder: OnnxBuilder, node: OnnxNode) -> None:
    attrs = {k: v for k, v in node.attrs.items() if k in ("axis", "block_size")}
    dequantize(builder, node, node.input(0), node.input(1), node.input(2), node.output(0), **attrs)
    made = builder.graph.nodes[-1] if builder.graph.nodes else None
    if made is not None and made.op == "DequantizeLinear" and not node.input(2):
        made.attrs[NO_ZERO_POINT] = 1


def operand(builder: OnnxBuilder, node: OnnxNode, index: int, axis: int = 1) -> str:
    """Dequantises the operand whose data, scale and zero point are inputs `index`, `index + 1`, `index + 2`."""
    return dequantize(builder, node, node.input(index), node.input(index + 1), node.input(index + 2), axis=axis)


def result(builder: OnnxBuilder, node: OnnxNode, data: str, index: int, dtype: np.dtype) -> None:
    """Quantises to the node's output by the scale and zero point at `index` (zero point 0 of `dtype` if missing)."""
    zero = node.input(index + 1) or builder.constant("zero_point", np.zeros(builder.shape(node.input(index)), dtype))
    quantize(builder, node, data, node.input(index), zero, node.output(0))


def bias(builder: OnnxBuilder, node: OnnxNode, name: str, x_scale: str, w_scale: str) -> str:
    """Dequantises an int32 bias by `f32(x_scale * w_scale)`, per channel where the weights are."""
    if not name:
        return ""
    sx, sw = builder.const(x_scale), builder.const(w_scale)
    if sx is None or sw is None:
        raise UnsupportedError(f"{node.label}: a bias needs constant scales {x_scale!r} and {w_scale!r}")
    product = np.asarray(sx.astype(np.float32).reshape(-1)[0] * sw.astype(np.float32), np.float32)
    product = bias_scale(product)
    product = product.reshape(()) if product.size == 1 else product.reshape(-1)
    scale = builder.constant(f"{name}.scale", product)
    return dequantize(builder, node, name, scale, "", axis=len(builder.shape(name)) - 1)


def transposed(builder: OnnxBuilder, data: str, to_last: bool) -> str:
    """Moves the channel axis of `data` to the end, or from the end to axis 1."""
    rank = len(builder.shape(data))
    perm = [0, *range(2, rank), 1] if to_last else [0, rank - 1, *range(1, rank - 1)]
    return builder.emit("Transpose", [data], attrs={"perm": perm})


@handles("QLinearConv")
@handles("QLinearConv", domain="com.microsoft")
def qlinear_conv(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, B (int32)."""
    last = bool(node.attrs.pop("channels_last", 0))
    x, w = operand(builder, node, 0), operand(builder, node, 3, axis=0)
    x = transposed(builder, x, to_last=False) if last else x
    b = bias(builder, node, node.input(8), node.input(1), node.input(4))
    y = builder.emit("Conv", [x, w, b], attrs=conv_attrs(builder, node, x, w))
    y = transposed(builder, y, to_last=True) if last else y
    result(builder, node, y, 6, builder.tensor(node.input(0)).dtype)


@handles("QLinearMatMul")
def qlinear_mat_mul(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero; b's parameters may be one per column."""
    a = operand(builder, node, 0, axis=max(len(builder.shape(node.input(0))) - 2, 0))
    b = operand(builder, node, 3, axis=max(len(builder.shape(node.input(3))) - 1, 0))
    y = builder.emit("MatMul", [a, b])
    result(builder, node, y, 6, builder.tensor(node.input(0)).dtype)
