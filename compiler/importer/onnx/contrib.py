"""Import handlers of onnxruntime's com.microsoft domain, written in ONNX's own ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.convolution import conv_attrs
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.importer.onnx.pooling import pool_attrs
from tilewright.compiler.importer.onnx.quantized import bias, operand, result, transposed
from tilewright.compiler.importer.onnx.reduction import normal_axes, softmax

MS = "com.microsoft"


def _dtype(builder: OnnxBuilder, name: str) -> np.dtype:
    return builder.tensor(name).dtype


@handles("QLinearAdd", "QLinearMul", domain=MS)
def qlinear_binary(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs A, A_scale, A_zero, B, B_scale, B_zero, C_scale, C_zero."""
    y = builder.emit(node.op.removeprefix("QLinear"), [operand(builder, node, 0), operand(builder, node, 3)])
    result(builder, node, y, 6, _dtype(builder, node.input(0)))


@handles("QLinearSigmoid", "QLinearLeakyRelu", domain=MS)
def qlinear_unary(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs X, X_scale, X_zero, Y_scale, Y_zero."""
    y = builder.emit(node.op.removeprefix("QLinear"), [operand(builder, node, 0)], attrs=node.attrs)
    result(builder, node, y, 3, _dtype(builder, node.input(0)))


@handles("QLinearSoftmax", domain=MS)
def qlinear_softmax(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports QLinearSoftmax, with the inputs of QLinearSigmoid; `opset` decides if the axis alone or everything after
    it is normalised.
    """
    version = int(node.attrs.get("opset", 13))
    x = operand(builder, node, 0)
    axis = int(node.attrs.get("axis", 1 if version < 13 else -1))
    inner = OnnxNode("Softmax", [x], [builder.fresh()], {"axis": axis}, node.name, "", version)
    softmax(builder, inner)
    result(builder, node, inner.outputs[0], 3, _dtype(builder, node.input(0)))


@handles("QLinearAveragePool", "QLinearGlobalAveragePool", domain=MS)
def qlinear_average_pool(builder: OnnxBuilder, node: OnnxNode) -> None:
    last, op = bool(node.attrs.pop("channels_last", 0)), node.op.removeprefix("QLinear")
    x = operand(builder, node, 0)
    x = transposed(builder, x, to_last=False) if last else x
    y = builder.emit(op, [x], attrs=pool_attrs(builder, node, x, average=True) if op == "AveragePool" else None)
    y = transposed(builder, y, to_last=True) if last else y
    result(builder, node, y, 3, _dtype(builder, node.input(0)))


@handles("NhwcMaxPool", domain=MS)
def nhwc_max_pool(builder: OnnxBuilder, node: OnnxNode) -> None:
    x = transposed(builder, node.input(0), to_last=False)
    y = transposed(
        builder, builder.emit("MaxPool", [x], attrs=pool_attrs(builder, node, x, average=False)), to_last=True
    )
    builder.emit("Identity", [y], node.outputs)


@handles("QLinearConcat", domain=MS)
def qlinear_concat(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs Y_scale, Y_zero, then data, scale, zero for each operand."""
    parts = [operand(builder, node, i) for i in range(2, len(node.inputs), 3)]
    axis = normal_axes(node, [int(node.attrs["axis"])], len(builder.shape(parts[0])))[0]
    y = builder.emit("Concat", parts, attrs={"axis": axis})
    result(builder, node, y, 0, _dtype(builder, node.input(2)))


@handles("QLinearReduceMean", domain=MS)
def qlinear_reduce_mean(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs data, data_scale, data_zero, reduced_scale, reduced_zero."""
    x = operand(builder, node, 0)
    rank = len(builder.shape(x))
    axes = normal_axes(node, list(node.attrs["axes"]), rank) if node.attrs.get("axes") else list(range(rank))
    attrs = {"keepdims": int(node.attrs.get("keepdims", 1)), "noop_with_empty_axes": 0}
    y = builder.emit("ReduceMean", [x, builder.ints("axes", axes)], attrs=attrs)
    result(builder, node, y, 3, _dtype(builder, node.input(0)))


@handles("QLinearWhere", domain=MS)
def qlinear_where(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs condition, X, X_scale, X_zero, Y, Y_scale, Y_zero, Z_scale, Z_zero."""
    y = builder.emit("Where", [node.input(0), operand(builder, node, 1), operand(builder, node, 4)])
    result(builder, node, y, 7, _dtype(builder, node.input(1)))


@handles("QGemm", domain=MS)
def q_gemm(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs A, a_scale, a_zero, B, b_scale, b_zero, C (int32), y_scale, y_zero; a float result without y_scale."""
    node.accept("alpha", 1.0)
    trans_b = int(node.attrs.get("transB", 0))
    a, b = operand(builder, node, 0), operand(builder, node, 3, axis=0 if trans_b else 1)
    c = bias(builder, node, node.input(6), node.input(1), node.input(4))
    attrs = {"transA": int(node.attrs.get("transA", 0)), "transB": trans_b}
    if not node.input(7):
        builder.emit("Gemm", [a, b, c], node.outputs, attrs)
        return
    result(builder, node, builder.emit("Gemm", [a, b, c], attrs=attrs), 7, _dtype(builder, node.input(0)))


# --- fused float ops of onnxruntime-optimised models ---


def _activation(builder: OnnxBuilder, node: OnnxNode, x: str, params: Sequence[float], outputs: list[str]) -> None:
    kind = node.attrs.get("activation", "")
    named: dict[str, dict[str, Any]] = {
        "": {}, "Relu": {}, "Tanh": {}, "Sigmoid": {},
        "LeakyRelu": dict(zip(("alpha",), params)),
        "HardSigmoid": dict(zip(("alpha", "beta"), params)),
        "Clip": {},
    }  # fmt: skip
    if kind not in named:
        accepted = ", ".join(k for k in named if k)
        raise UnsupportedError(f"{node.label}: activation={kind!r} is not supported; accepted: {accepted}")
    inputs = [x, *(builder.constant("bound", p, np.float32) for p in params[:2])] if kind == "Clip" else [x]
    builder.emit(kind or "Identity", inputs, outputs, named[kind])


@handles("FusedConv", domain=MS)
def fused_conv(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports activation(Conv(X, W, B) + Z). Inputs X, W, B, Z."""
    attrs = conv_attrs(builder, node, node.input(0), node.input(1))
    y = builder.emit("Conv", node.inputs[:3], attrs=attrs)
    if node.input(3):
        y = builder.emit("Add", [y, node.input(3)])
    _activation(builder, node, y, node.attrs.get("activation_params", []), node.outputs)


@handles("FusedGemm", domain=MS)
def fused_gemm(builder: OnnxBuilder, node: OnnxNode) -> None:
    attrs: dict[str, Any] = {k: node.attrs[k] for k in ("alpha", "beta", "transA", "transB") if k in node.attrs}
    y = builder.emit("Gemm", node.inputs, attrs=attrs)
    kind = node.attrs.get("activation", "")
    params = [node.attrs[k] for k in ("activation_alpha", "activation_beta") if k in node.attrs]
    _activation(builder, node, y, params if kind != "Clip" else params[:2], node.outputs)


@handles("FusedMatMul", "TransposeMatMul", domain=MS)
def fused_mat_mul(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports alpha * op(A) x op(B) with the last two axes transposed."""
    node.accept("transBatchA", 0)
    node.accept("transBatchB", 0)
    operands = []
    for name, flag in ((node.input(0), "transA"), (node.input(1), "transB")):
        rank = len(builder.shape(name))
        if node.attrs.get(flag) and rank > 1:
            perm = [*range(rank - 2), rank - 1, rank - 2]
            name = builder.emit("Transpose", [name], attrs={"perm": perm})
        operands.append(name)
    alpha = float(node.attrs.get("alpha", 1.0))
    if alpha == 1.0:
        builder.emit("MatMul", operands, node.outputs)
        return
    scale = builder.constant("alpha", alpha, _dtype(builder, operands[0]))
    builder.emit("Mul", [builder.emit("MatMul", operands), scale], node.outputs)


@handles("Gelu", "BiasGelu", "FastGelu", "QuickGelu", domain=MS)
def gelu(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Gelu and BiasGelu by erf, FastGelu by tanh, QuickGelu as x * sigmoid(alpha * x)."""
    x = node.input(0)
    if node.input(1):
        x = builder.emit("Add", [x, node.input(1)])
    if node.op == "QuickGelu":
        alpha = builder.constant("alpha", node.attrs.get("alpha", 1.702), _dtype(builder, x))
        gate = builder.emit("Sigmoid", [builder.emit("Mul", [x, alpha])])
        builder.emit("Mul", [x, gate], node.outputs)
        return
    builder.emit("Gelu", [x], node.outputs, {"approximate": "tanh" if node.op == "FastGelu" else "none"})
