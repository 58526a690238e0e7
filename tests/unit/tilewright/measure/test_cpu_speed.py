"""The side of `bench --cpu` that runs onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tilewright.common.errors import UsageError
from tilewright.measure.cpu_speed import bound_session


def model_of(*nodes: onnx.NodeProto, x: list[onnx.ValueInfoProto], y: onnx.ValueInfoProto) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", x, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_outputs_are_in_place() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    model = model_of(helper.make_node("Neg", ["x"], ["y"]), x=[x], y=y)
    run, outputs = bound_session(model, {"x": np.array([1, -2], np.float32)}, 1)
    run()
    assert np.array_equal(outputs()[0], np.array([-1, 2], np.float32))


def test_outputs_that_do_not_fit_in_place_are_one_message() -> None:
    """The sizes of the output are others in every run."""
    random = helper.make_node("RandomUniform", [], ["r"], shape=[10000], low=-1.0)
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [2, None])
    positive = helper.make_node("Relu", ["r"], ["p"])
    model = model_of(random, positive, helper.make_node("NonZero", ["p"], ["y"]), x=[], y=y)
    with pytest.raises(UsageError, match=r"^onnxruntime cannot run the model: [^\n]*NonZero[^\n]*$"):
        bound_session(model, {}, 1)
