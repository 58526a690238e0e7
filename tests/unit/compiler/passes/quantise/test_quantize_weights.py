"""`quantize_weights`: float weights between quantised activations, in the bytes of onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tests.common.onnx_models import graph_of

ZERO = {"int8": -3, "uint8": 120, "int16": 0, "uint16": 32768}


def network(op: str, kind: str, bias: bool, relu: bool) -> onnx.ModelProto:
    """DequantizeLinear, an op with float weights, QuantizeLinear."""
    r = np.random.default_rng(len(kind))
    scale = 0.03 if kind.endswith("int8") else 1.5e-4
    values: dict[str, np.ndarray] = {"s": np.float32(scale), "z": np.array(ZERO[kind], kind)}
    shape, out = ([1, 6, 9, 9], [1, 8, 9, 9]) if op == "Conv" else ([4, 6], [4, 8])
    values["w"] = r.normal(0, 0.1, (8, 6, 3, 3) if op == "Conv" else (6, 8)).astype(np.float32)
    if bias:
        values["b"] = r.normal(0, 0.3, 8).astype(np.float32)
    attrs = {"pads": [1] * 4} if op == "Conv" else {}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node(op, ["d", "w", *["b"] * bias], ["c"], **attrs),
        *[helper.make_node("Relu", ["c"], ["r"])] * relu,
        helper.make_node("QuantizeLinear", ["r" if relu else "c", "s", "z"], ["e"]),
        helper.make_node("DequantizeLinear", ["e", "s", "z"], ["y"]),
    ]
    graph = graph_of(nodes, {"x": shape}, {"y": out})
    graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in values.items())
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    return model


@pytest.mark.medium
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", list(ZERO))
@pytest.mark.parametrize("op", ["Conv", "Gemm"])
def test_bytes_of_the_reference(op: str, kind: str, bias: bool, relu: bool) -> None:
    report = tw.check(network(op, kind, bias, relu))
    assert report.ok and not report.mismatches, report.summary()
