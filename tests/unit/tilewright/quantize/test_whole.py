"""Language models quantised as a whole: the layers, how near the floats they are, and the turns that a token takes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.common import onnx_models
from tests.common.onnx_models import model_of
from tilewright import zoo
from tilewright.errors import UsageError
from tilewright.isa.program import CpuStep, NpuStep
from tilewright.quantize import quantize, whole
from tilewright.quantize.accuracy import Accuracy
from tilewright.quantize.layers import Kind, Network
from tilewright.zoo.llama import prompts

SIZES = {"layers": 2, "width": 96, "heads": 3, "kv_heads": 1, "hidden": 128, "window": 32, "context": 64}
"""Heads of two blocks of channels, of which each half is one."""


def norm(square: str = "Pow", axis: int = -1, more: bool = False) -> onnx.ModelProto:
    """A product of x / sqrt(mean(x^2) + e) * scale, marked as whole.

    Args:
        square: "Pow" or "Mul".
        more: something else reads the root, too.
    """
    node = helper.make_node
    nodes = [
        node("Pow", ["x", "two"], ["s"], "square") if square == "Pow" else node("Mul", ["x", "x"], ["s"], "square"),
        node("ReduceMean", ["s", "axes"], ["m"], "mean", keepdims=1), node("Add", ["m", "e"], ["a"], "add"),
        node("Sqrt", ["a"], ["r"], "root"), node("Div", ["x", "r"], ["d"], "divide"),
        node("Mul", ["d", "scale"], ["n"], "scaled"), node("MatMul", ["n", "w"], ["y"], "product"),
    ]  # fmt: skip
    outputs = {"y": (TensorProto.FLOAT, [1, 5, 8])} | ({"r": (TensorProto.FLOAT, [1, 5, 1])} if more else {})
    constants = {
        "two": np.float32(2), "axes": np.array([axis]), "e": np.float32(1e-5), "scale": np.ones(8, np.float32),
        "w": np.ones((8, 8), np.float32),
    }  # fmt: skip
    model = onnx.shape_inference.infer_shapes(
        model_of(nodes, {"x": (TensorProto.FLOAT, [1, 5, 8])}, outputs, constants)  # type: ignore[arg-type]
    )
    whole.mark(model)
    return model


def norms(model: onnx.ModelProto) -> list[tuple[list[str], list[str]]]:
    """The inputs of each norm among a model's layers, and the ops of its nodes."""
    return [(x.inputs, [n.op_type for n in x.nodes]) for x in Network(model).layers if x.kind is Kind.NORM]


@pytest.mark.parametrize("square", ["Pow", "Mul"])
def test_norm_is_one_layer(square: str) -> None:
    model = norm(square)
    assert norms(model) == [(["x"], [square, "ReduceMean", "Add", "Sqrt", "Div", "Mul"])]
    whole.unmark(model)
    assert norms(model) == [] and not whole.is_whole(model)


@pytest.mark.parametrize("others", [{"axis": 1}, {"more": True}])
def test_what_is_no_norm_of_rows(others: dict[str, int]) -> None:
    assert norms(norm(**others)) == []  # type: ignore[arg-type]


@pytest.mark.medium
def test_everything_between_token_and_logits_has_8_bits() -> None:
    """Sums, norms, RoPE and scores lie between integers, and the logits are near those of the float model."""
    float_model = zoo.build("micro_llama", cache=False, **SIZES)
    plain = Accuracy(ranges="minmax", equalise=False, fit=False, target=None)
    model = quantize(float_model, prompts(float_model, 4), check=False, accuracy=plain, whole=True).model
    assert not whole.is_whole(model)
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    readers: dict[str, set[str]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, set()).add(node.op_type)
    for node in model.graph.node:
        if node.op_type in ("Concat", "Softmax", "MatMul") and node.output[0] in readers and "axis" not in node.name:
            if makers.get(node.input[0]) == "DequantizeLinear":
                assert node.output[0] == "logits" or readers[node.output[0]] == {"QuantizeLinear"}, node.name
        if node.op_type in ("Softmax", "Pow", "Neg", "Sigmoid"):
            assert makers[node.input[0]] == "DequantizeLinear", node.name
    sample = prompts(float_model, 1, seed=7)[0]
    wanted, found = (onnx_models.run(m, sample)["logits"] for m in (float_model, model))
    assert 10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()) > 15


@pytest.mark.medium
def test_token_takes_one_turn() -> None:
    """The CPU looks up rows of tables before it, and makes floats of the logits behind; these are onnxruntime's."""
    model = zoo.build_quantized("micro_llama", cache=False, **SIZES, whole=True)
    program = tw.compile_program(model, shapes={"input_ids": [1, 1]}, states="auto", cache=False)
    assert sum(isinstance(step, NpuStep) for step in program.steps) == 1
    ops = [op.split()[0] for step in program.steps if isinstance(step, CpuStep) for op in step.ops]
    assert not any(op.startswith("Q") and op != "QuantizeLinear" for op in ops)
    device = tw.Device("functional")
    state = {name: value for name, value in prompts(model, 1)[0].items() if name.startswith("past")}
    for position, token in enumerate([40, 7, 33, 40]):
        feeds = {"input_ids": np.array([[token]]), "position_ids": np.array([[position]])}
        outputs = onnx_models.run(model, feeds | state)
        state = {name: outputs[name.replace("past_key_values", "present")] for name in state}
        np.testing.assert_array_equal(device.run(program, feeds)["logits"], outputs["logits"])


def test_whole_is_for_onnx_models() -> None:
    from tilewright.quantize.options import QuantizeOptions

    with pytest.raises(UsageError, match="whole and accuracy are for ONNX models"):
        QuantizeOptions(whole=True).check_tflite()
