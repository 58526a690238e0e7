"""Products of com.microsoft with dynamically quantised activations, as `quantize_dynamic` writes them."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode

MS = "com.microsoft"


@handles("MatMulIntegerToFloat", domain=MS)
def mat_mul_integer_to_float(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs A, B, a_scale, b_scale, a_zero, b_zero, bias; f32(acc) * f32(a_scale * b_scale) + bias."""
    _finish(builder, node, integer_product(builder, *node.inputs[:6], *[""] * (6 - len(node.inputs))), node.input(6))


@handles("DynamicQuantizeMatMul", domain=MS)
def dynamic_quantize_mat_mul(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs A (float), B, b_scale, b_zero, bias."""
    q, scale, zero = _quantized(builder, node.input(0))
    real = integer_product(builder, q, node.input(1), scale, node.input(2), zero, node.input(3))
    _finish(builder, node, real, node.input(4))


@handles("DynamicQuantizeLSTM", domain=MS)
def dynamic_quantize_lstm(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs X [steps, batch, size], W [directions, size, 4*hidden], R [directions, hidden, 4*hidden], B, lengths, h,
    c, peepholes, then scales and zero points of W and R: one per direction, or one per column.

    All inputs are quantised at once, with one product for all steps; the kernel quantises the states, step by step.
    """
    default = ["Sigmoid", "Tanh", "Tanh"]
    directions = 2 if node.attrs.get("direction", "forward") == "bidirectional" else 1
    node.accept("direction", "forward", "reverse", "bidirectional")
    node.accept("input_forget", 0)
    for key in ("clip", "activation_alpha", "activation_beta"):
        if node.attrs.get(key):
            raise UnsupportedError(f"{node.label}: {key}={node.attrs[key]} is not supported")
    kinds = [str(v) for v in node.attrs.get("activations") or default * directions]
    if kinds != default * directions:
        raise UnsupportedError(f"{node.label}: activations={kinds} are not supported; {default} are")
    for k, what in ((4, "sequence_lens"), (7, "peepholes")):
        if node.input(k):
            raise UnsupportedError(f"{node.label}: {what} {node.input(k)!r} are not supported")
    weights = [builder.need_const(node.input(k), what) for k, what in ((1, "W"), (2, "R"))]
    scales = [_columns(builder, node, k, w, np.float32) for k, w in zip((8, 10), weights)]
    zeros = [_columns(builder, node, k, w, w.dtype) for k, w in zip((9, 11), weights)]
    steps, batch, size = builder.shape(node.input(0))
    w, r = weights
    hidden = r.shape[1] if r.ndim == 3 else 0
    if w.shape != (directions, size, 4 * hidden) or r.shape != (directions, hidden, 4 * hidden):
        raise CompileError(f"{node.label}: W {list(w.shape)} and R {list(r.shape)} do not fit {[steps, batch, size]}")
    q, scale, zero = _quantized(builder, node.input(0))
    y: list[str] = []
    h: list[str] = []
    c: list[str] = []
    for d in range(directions):
        axis = lambda name: builder.emit("Gather", [name, builder.constant("d", d, np.int64)], attrs={"axis": 0})  # noqa: B023
        at = [builder.constant("W", w[d]), zero, builder.constant("W_zero", zeros[0][d].reshape(-1)[0])]
        acc = builder.emit("MatMulInteger", [q, *at])
        projected = _scaled(builder, acc, scale, builder.constant("W_scale", scales[0][d]))
        if node.input(3):
            whole = builder.need_const(node.input(3), "B")[d]
            bias = whole[: 4 * hidden] + whole[4 * hidden :]
        else:
            bias = np.zeros(4 * hidden, np.float32)
        states = [axis(name) if name else builder.constant("state", np.zeros((batch, hidden), np.float32))
                  for name in (node.input(5), node.input(6))]  # fmt: skip
        r_zero = zeros[1][d].reshape(-1)[0]
        inputs = [projected, builder.constant("R", r[d]), builder.constant("bias", bias),
                  builder.constant("R_scale", scales[1][d]), builder.constant("R_zero", r_zero), *states]  # fmt: skip
        reverse = int(d == 1 or node.attrs.get("direction") == "reverse")
        names = [builder.fresh() for _ in range(3)]
        builder.emit(
            "DynamicQuantizedLSTM", inputs, names, {"shape": [steps, batch, hidden], "reverse": reverse}
        )  # fmt: skip
        for found, name, place in zip((y, h, c), names, (1, 0, 0)):
            found.append(builder.emit("Unsqueeze", [name, builder.ints("axes", [place])]))
    for parts, name, place in zip((y, h, c), node.outputs, (1, 0, 0)):
        if name:
            builder.emit("Concat", parts, [name], {"axis": place})


def _columns(builder: OnnxBuilder, node: OnnxNode, k: int, weights: np.ndarray, dtype: object) -> np.ndarray:
    """Scales or zero points of the columns: [directions, columns]. onnxruntime has one zero point per direction."""
    value = builder.need_const(node.input(k), "scale and zero point")
    shape = (weights.shape[0], weights.shape[-1])
    if value.shape not in (shape, shape[:1]):
        raise CompileError(f"{node.label}: {node.input(k)!r} has shape {list(value.shape)}, not {list(shape[:1])}")
    found = np.broadcast_to(value.reshape(shape[0], -1), shape).astype(dtype)  # type: ignore[call-overload]
    if dtype == weights.dtype and np.any(found != found[:, :1]):
        raise UnsupportedError(f"{node.label}: zero points {node.input(k)!r} that differ within a direction")
    return np.ascontiguousarray(found)


def _quantized(builder: OnnxBuilder, name: str) -> tuple[str, str, str]:
    """Quantises a tensor to uint8; returns it, its scale and its zero point."""
    names = [builder.fresh() for _ in range(3)]
    builder.emit("DynamicQuantizeLinear", [name], names)
    return names[0], names[1], names[2]


def _scaled(builder: OnnxBuilder, acc: str, a_scale: str, b_scale: str) -> str:
    scale = builder.emit("Mul", [a_scale, b_scale])
    return builder.emit("Mul", [builder.emit("Cast", [acc], attrs={"to": 1}), scale])


def integer_product(builder: OnnxBuilder, a: str, b: str, a_scale: str, b_scale: str, a_zero: str, b_zero: str) -> str:
    """Emits f32(acc) * f32(a_scale * b_scale) of the int32 sums of a x b, both less their zero points."""
    return _scaled(builder, builder.emit("MatMulInteger", [a, b, a_zero, b_zero]), a_scale, b_scale)


def _finish(builder: OnnxBuilder, node: OnnxNode, real: str, addend: str) -> None:
    builder.emit("Add" if addend else "Identity", [real, addend] if addend else [real], node.outputs)
