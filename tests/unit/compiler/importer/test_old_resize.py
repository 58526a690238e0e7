"""Upsample and Resize of opsets before 11, and Resize to the size that there is, as onnxruntime computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright as tw
from tests.common import onnx_models

DOWN = [0.6, 0.5, 0.3, 0.75, 0.9, 0.34, 0.21, 0.4999, 1 / 3, 2 / 3]
UP = [1, 1.1, 1.14, 1.3, 4 / 3, 1.5, 2, 2.5, 3.7]


def _model(
    op: str, opset: int, shape: list[int], scales: list[float], dtype: type = np.float32, **attrs: Any
) -> onnx.ModelProto:
    values = np.asarray(scales, np.float32)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    if op == "Upsample" and opset < 9:
        node = helper.make_node(op, ["x"], ["y"], scales=values.tolist(), **attrs)
    else:
        node = helper.make_node(op, ["x", "s"] if opset < 11 else ["x", "", "s"], ["y"], **attrs)
    graph = helper.make_graph(
        [node],
        "resize",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(values, "s")] * (len(node.input) > 1),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 5
    return model


def _equal(model: onnx.ModelProto) -> None:
    value = model.graph.input[0].type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(value.elem_type)
    x = np.random.default_rng(1).normal(0, 40, [d.dim_value for d in value.shape.dim]).astype(dtype)
    expected = onnx_models.session(model).run(None, {"x": x})[0]
    got = tw.Device("functional").run(tw.compile(model, cache=False), {"x": x})["y"]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize("seed", range(12))
def test_nearest(seed: int, dtype: type) -> None:
    """Scales of both directions in one node, also such that an axis keeps its size."""
    r = np.random.default_rng(seed)
    shape = [[1, 2, 5, 7], [2, 6], [7], [1, 2, 4, 5, 6]][seed % 4]
    scales = [float(r.choice([*DOWN, *UP])) if i > len(shape) - 3 or seed % 3 == 0 else 1.0 for i in range(len(shape))]
    _equal(_model("Resize", 10, shape, scales, dtype, mode="nearest"))
    _equal(_model("Upsample", 7 + seed % 2 * 2, shape, [max(s, 1.1) for s in scales], dtype, mode="nearest"))


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(6))
def test_linear(seed: int) -> None:
    r = np.random.default_rng(seed)
    scales = r.choice([*DOWN, *UP], 2).tolist()
    _equal(_model("Resize", 10, [1, 2, 5, 7], [1, 1, *scales], mode="linear"))
    _equal(_model("Upsample", 9, [1, 2, 5, 7], [1, 1, *(max(s, 1.1) for s in scales)], mode="linear"))


def test_ceiling_of_shorter_axes() -> None:
    """The example in ONNX's text of opset 10."""
    model = _model("Resize", 10, [1, 1, 2, 4], [1, 1, 0.6, 0.6], mode="nearest")
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    assert tw.Device("functional").run(tw.compile(model, cache=False), {"x": x})["y"].tolist() == [[[[1, 3]]]]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("how", ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric"])
def test_to_the_same_size(how: str, mode: str) -> None:
    """onnxruntime copies, though the scales say otherwise."""
    _equal(_model("Resize", 13, [1, 2, 5, 7], [1, 1, 1.1, 1.1], coordinate_transformation_mode=how, mode=mode))
