"""Scales of 0, negative and subnormal ones, of weights and activations: the bytes of onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright as tw
from tests.common import onnx_models
from tests.common.onnx_models import model_of
from tilewright.isa.program import Program

CHANNELS = 4
SCALES = {
    "one dead": [0.01, 0, 0.02, 0.01],
    "first dead": [0, 0.01, 0.02, 0.01],
    "last dead": [0.01, 0.01, 0.02, 0],
    "all dead": [0, 0, 0, 0],
    "one negative": [0.01, -0.01, 0.02, 0.01],
    "all negative": [-0.01, -0.02, -0.015, -0.01],
    "both": [0, -0.01, 0, 0.02],
    "tiny": [0.01, 1e-40, -1e-38, 0.01],
    "dead": 0.0,
    "negative": -0.01,
}
PRODUCTS: dict[str, tuple[str, list[int], list[int], int, dict[str, int]]] = {
    "conv": ("Conv", [4, 4, 3, 3], [1, 4, 7, 7], 0, {}),
    "depthwise": ("Conv", [4, 1, 3, 3], [1, 4, 7, 7], 0, {"group": 4}),
    "gemm": ("Gemm", [16, 4], [5, 16], 1, {}),
    "transposed gemm": ("Gemm", [4, 16], [5, 16], 0, {"transB": 1}),
    "matmul": ("MatMul", [16, 4], [5, 16], 1, {}),
}
SX, SY = np.float32(0.05), np.float32(0.3)


def between(
    op: str, inputs: list[str], x: np.ndarray, dtype: type, sx: float, sy: float, constants: dict[str, Any],
    before: tuple[onnx.NodeProto, ...] = (), **attrs: Any,
) -> onnx.ModelProto:  # fmt: skip
    """x -> Q -> DQ -> op -> Q -> DQ -> y."""
    least = int(np.iinfo(dtype).min)
    constants = {
        "sx": np.float32(sx),
        "sy": np.float32(sy),
        "zx": dtype(least + 130),
        "zy": dtype(least + 133),
    } | constants
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        *before,
        helper.make_node(op, inputs, ["f"], **attrs),
        helper.make_node("QuantizeLinear", ["f", "sy", "zy"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "sy", "zy"], ["y"]),
    ]
    return model_of(nodes, {"x": x}, {"y": (onnx.TensorProto.FLOAT, None)}, constants, opset=17)


def equal(model: onnx.ModelProto, x: np.ndarray) -> Program:
    program = tw.compile_program(model, "tiny", cache=False)
    got = tw.Device("functional").run(program, {"x": x})["y"]
    np.testing.assert_array_equal(got, onnx_models.run(model, {"x": x})["y"])
    return program


@pytest.mark.medium
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("scales", SCALES)
def test_weights(product: str, scales: str) -> None:
    """Every bias and both types; random bytes with the least one among them, whose negation is no byte."""
    op, shape, rows, axis, attrs = PRODUCTS[product]
    generator = np.random.default_rng(0)
    x = (3 * generator.standard_normal(rows)).astype(np.float32)
    sw = np.array(SCALES[scales], np.float32)
    weights = generator.integers(-128, 128, shape).astype(np.int8)
    weights.reshape(-1)[::5] = -128
    bias = generator.integers(-2000, 2000, CHANNELS).astype(np.int32)
    cases = [(np.int8, "none"), (np.uint8, "int32"), (np.int8, "float")]
    if op == "MatMul":
        cases = [(np.int8, "none"), (np.uint8, "none")]
    for dtype, kind in cases:
        constants = {"w": weights, "sw": sw, "zw": np.zeros(sw.shape, np.int8)}
        along = {"axis": axis} if sw.ndim else {}
        before = [helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], **along)]
        if kind == "int32":
            step = SX * sw
            constants |= {"b": bias, "sb": step, "zb": np.zeros(sw.shape, np.int32)}
            along = {"axis": 0} if sw.ndim else {}
            before.append(helper.make_node("DequantizeLinear", ["b", "sb", "zb"], ["bd"], **along))
        elif kind == "float":
            constants["bd"] = (bias * 5e-4).astype(np.float32)
        inputs = ["xd", "wd"] if kind == "none" else ["xd", "wd", "bd"]
        program = equal(between(op, inputs, x, dtype, SX, SY, constants, tuple(before), **attrs), x)
        assert next(t.where for t in program.tensors if t.name == "yq") == "npu", program.notes


def test_one_dead_channel_of_qlinear_conv() -> None:
    """The form of operators, with a bias whose scale is the product of the others."""
    generator = np.random.default_rng(1)
    x = generator.integers(-128, 128, (1, 4, 6, 6)).astype(np.int8)
    constants = {
        "sx": SX, "zx": np.int8(3), "w": generator.integers(-128, 128, (4, 4, 3, 3)).astype(np.int8),
        "sw": np.array([0.01, 0, -0.02, -1e-40], np.float32), "zw": np.zeros(4, np.int8), "sy": SY, "zy": np.int8(5),
        "b": np.array([500, -3000, 700, 90], np.int32),
    }  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"], ["y"])
    equal(model_of([node], {"x": x}, {"y": (onnx.TensorProto.INT8, None)}, constants, opset=13), x)


PAIRS = [(0, 0.1), (-0.05, 0.1), (0.05, 0), (0.05, -0.1), (-0.05, -0.05), (0, 0)]
OPS: dict[str, dict[str, Any]] = {
    "Relu": {}, "Sigmoid": {}, "Add": {}, "Sub": {}, "Mul": {}, "Max": {}, "Concat": {"axis": 1},
    "MatMul": {}, "MaxPool": {"kernel_shape": [2, 2]}, "AveragePool": {"kernel_shape": [2, 2]},
    "ReduceMean": {"axes": [2, 3]}, "ReduceMax": {"axes": [2]}, "ReduceMin": {"axes": [2]},
    "GlobalMaxPool": {}, "Transpose": {"perm": [0, 2, 3, 1]}, "Conv": {},
}  # fmt: skip
TWO = ("Add", "Sub", "Mul", "Max", "Concat", "MatMul")


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("op", OPS)
def test_activations(op: str, dtype: type) -> None:
    """A negative scale reverses the order of integers: what asks for it is computed in floats."""
    generator = np.random.default_rng(2)
    x = (3 * generator.standard_normal((1, 4, 8, 8))).astype(np.float32)
    for sx, sy in PAIRS:
        constants: dict[str, Any] = {"s2": np.float32(0.07)}
        before: list[onnx.NodeProto] = []
        inputs = ["xd"]
        if op in TWO:
            before = [
                helper.make_node("Transpose", ["x"], ["x2"], perm=[0, 1, 3, 2]),
                helper.make_node("QuantizeLinear", ["x2", "s2", "zx"], ["q2"]),
                helper.make_node("DequantizeLinear", ["q2", "s2", "zx"], ["d2"]),
            ]
            inputs.append("d2")
        if op == "Conv":
            constants["w"] = generator.standard_normal((4, 4, 3, 3)).astype(np.float32)
            inputs.append("w")
        equal(between(op, inputs, x, dtype, sx, sy, constants, tuple(before), **OPS[op]), x)


@pytest.mark.parametrize("scale", [0.0, -0.05])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places(op: str, scale: float) -> None:
    x = np.random.default_rng(3).standard_normal((1, 4, 8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node(op, ["d"], ["y"], axis=1),
    ]
    constants = {"s": np.float32(scale), "z": np.int8(3)}
    equal(model_of(nodes, {"x": x}, {"y": (onnx.TensorProto.INT64, None)}, constants, opset=17), x)
