"""Models of float16 are quantised as such of float32."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.common.onnx_models import run
from tilewright.quantize import halves, quantize


def _model(kind: int, casts: bool) -> onnx.ModelProto:
    """Two products of halves, with constants in nodes and in a body.

    Args:
        casts: inputs and outputs are float32, as converters write it.
    """
    random = np.random.default_rng(0)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    held = [numpy_helper.from_array(random.normal(size=(8, 8)).astype(dtype), name) for name in "wv"]
    two = numpy_helper.from_array(np.array(2.0, dtype), "two")
    own = helper.make_graph(
        [helper.make_node("Constant", [], ["two"], value=two), helper.make_node("Mul", ["h", "two"], ["t"])],
        "body", [], [helper.make_tensor_value_info("t", kind, [1, 8])],
    )  # fmt: skip
    yes = helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True)))
    nodes = [
        yes, helper.make_node("MatMul", ["a", "w"], ["h"]),
        helper.make_node("If", ["yes"], ["d"], then_branch=own, else_branch=own),
        helper.make_node("Relu", ["d"], ["r"]), helper.make_node("MatMul", ["r", "v"], ["b"]),
    ]  # fmt: skip
    outside = TensorProto.FLOAT if casts else kind
    nodes.insert(0, helper.make_node("Cast", ["x"], ["a"], to=kind))
    nodes.append(helper.make_node("Cast", ["b"], ["y"], to=outside))
    info = lambda name: helper.make_tensor_value_info(name, outside, [1, 8])
    graph = helper.make_graph(nodes, "halves", [info("x")], [info("y")], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(("kind", "casts"), [(TensorProto.FLOAT16, False), (TensorProto.FLOAT16, True)])
def test_float16(kind: int, casts: bool) -> None:
    """The result takes and gives float32, is near the model in halves, and says what was done."""
    model = _model(kind, casts)
    samples = np.random.default_rng(1).normal(size=(8, 1, 8)).astype(np.float32 if casts else np.float16)
    found = quantize(model, samples, check=False)
    assert any("computes in float16" in line and "float32" in line for line in found.lines())
    made = found.model  # type: ignore[union-attr]
    kinds = {x.type.tensor_type.elem_type for x in [*made.graph.input, *made.graph.output]}
    assert kinds == {TensorProto.FLOAT} and any(x.op_type == "QuantizeLinear" for x in made.graph.node)
    wanted = np.array([run(model, {"x": x})["y"] for x in samples], np.float32)
    error = np.array([run(made, {"x": x.astype(np.float32)})["y"] for x in samples]) - wanted
    assert np.sum(np.square(error)) < 0.01 * np.sum(np.square(wanted))
    assert model == _model(kind, casts)  # the given one is left as it is


def test_bfloat16_is_widened() -> None:
    """onnxruntime has no products of bfloat16: constants and types are looked at."""
    model = _model(TensorProto.BFLOAT16, False)
    halves.widen(model)
    text = str(model)
    assert "bfloat16" not in text.lower() and f"elem_type: {TensorProto.BFLOAT16}" not in text
    assert {x.data_type for x in model.graph.initializer} == {TensorProto.FLOAT}
    onnx.checker.check_model(model, full_check=True)
