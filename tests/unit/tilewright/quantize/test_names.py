"""Names in float models that are those of a quantised model's scales and values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.errors import UsageError
from tilewright.quantize import names, quantize_onnx
from tilewright.quantize.observe import run, session


def _model(constant: str, inside: str = "soft", output: str = "y") -> onnx.ModelProto:
    """Two convolutions and a product by a constant, which stays in floats; `a` is quantised."""
    random = np.random.default_rng(0)
    constants = {name: random.normal(size=shape) / 3 for name, shape in (("v", (8, 3, 3, 3)), ("w", (8, 8, 3, 3)))}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["b"], pads=[1] * 4),
        helper.make_node("Softplus", ["b"], [inside]),
        helper.make_node("Mul", [inside, constant], [output]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info(output, TensorProto.FLOAT, [1, 8, 8, 8])
    values = [
        numpy_helper.from_array(v.astype(np.float32), k) for k, v in (constants | {constant: np.ones(()) * 3}).items()
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _samples() -> list[dict[str, np.ndarray]]:
    return [{"x": np.random.default_rng(i).normal(size=(1, 3, 8, 8)).astype(np.float32)} for i in range(6)]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("constant", "inside", "output"),
    [
        ("a_scale", "soft", "y"),
        ("a_zero_point", "soft", "y"),
        ("w_quantized", "a_QuantizeLinear_Output", "y"),
        ("k", "x_DequantizeLinear_Output", "a_scale"),
    ],
)  # fmt: skip
def test_same_network_by_other_names(constant: str, inside: str, output: str) -> None:
    samples = _samples()
    plain, named = (quantize_onnx(m, samples) for m in (_model("k"), _model(constant, inside, output)))
    (one,), (other,) = ([run(session(q.model), x)[n] for n in names_] for q, names_, x in
                        ((plain, ["y"], samples[0]), (named, [output], samples[0])))  # fmt: skip
    assert np.array_equal(one, other)


def test_names_stay_where_nothing_is_meant() -> None:
    model = _model("k")
    before = model.SerializeToString()
    names.clear_names(model)
    assert model.SerializeToString() == before
    model = _model("k_scale", "x_scaled")
    names.clear_names(model)
    assert [x.name for x in model.graph.initializer] == ["v", "w", "k_scale_"]
    assert list(model.graph.node[-1].input) == ["x_scaled", "k_scale_"]


def test_an_input_and_an_output_that_cannot_both_stay() -> None:
    with pytest.raises(UsageError, match=r"inputs or outputs 'x' and 'x_scale'.*rename one of them"):
        names.clear_names(_model("k", output="x_scale"))
