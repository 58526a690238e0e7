"""Attention with a mask is quantised whatever the mask is written as, close to onnxruntime's float results."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.common.onnx_models import model_of
from tilewright.quantize import quantize
from tilewright.quantize.accuracy import Accuracy
from tilewright.quantize.layers import Network
from tilewright.quantize.masks import MASKED, Masks

LENGTH, WIDTH = 6, 16
LEAST = float(np.finfo(np.float32).min)


def attention(kind: str, value: float) -> onnx.ModelProto:
    """Attention over rows of x, each of which sees those up to itself: by a constant that is added or chosen, by one
    made of an input, or by the concatenation with a constant."""
    random, node = np.random.default_rng(0), helper.make_node
    later = np.triu(np.ones((LENGTH, LENGTH), bool), 1)
    constants: dict[str, object] = {
        name: (random.standard_normal((WIDTH, WIDTH)) * 0.3).astype(np.float32) for name in ("wq", "wk")
    }
    inputs: dict[str, tuple[int, list[object]]] = {"x": (TensorProto.FLOAT, [1, LENGTH, WIDTH])}
    masked = [node("Add", ["s", "mask"], ["sm"], "masked")]
    if kind == "added":
        constants["mask"] = np.where(later, np.float32(value), np.float32(0))
    elif kind == "chosen":
        masked = [node("Where", ["later", "value", "s"], ["sm"], "masked")]
        constants |= {"later": later, "value": np.float32(value)}
    else:
        inputs["seen"] = (TensorProto.BOOL, [LENGTH, LENGTH])
        masked.insert(0, node("Where", ["seen", "zero", "value"], ["mask"], "mask"))
        constants |= {"zero": np.float32(0), "value": np.float32(value)}
    nodes = [
        node("MatMul", ["x", "wq"], ["q"], "q"), node("MatMul", ["x", "wk"], ["k"], "k"),
        node("Transpose", ["k"], ["kt"], "kt", perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["s"], "s"), *masked,
        node("Softmax", ["sm"], ["p"], "p", axis=-1), node("MatMul", ["p", "x"], ["y"], "y"),
    ]  # fmt: skip
    return model_of(nodes, inputs, {"y": (TensorProto.FLOAT, None)}, constants)  # type: ignore[arg-type]


def samples(kind: str) -> dict[str, np.ndarray]:
    found = {"x": np.random.default_rng(1).standard_normal((8, 1, LENGTH, WIDTH)).astype(np.float32)}
    if kind == "input":
        found["seen"] = np.broadcast_to(np.tril(np.ones((LENGTH, LENGTH), bool)), (8, LENGTH, LENGTH)).copy()
    return found


@pytest.mark.medium
@pytest.mark.parametrize("value", [-np.inf, LEAST, -1e9, -1e4])
@pytest.mark.parametrize("kind", ["added", "chosen", "input"])
def test_masks_keep_the_steps_of_scores(kind: str, value: float) -> None:
    """Nothing need stay in floats: scores and probabilities have 8 bits."""
    model, given = attention(kind, value), samples(kind)
    result = quantize(model, given, check=False, accuracy=Accuracy(target=None, fit=False))
    quantised = {node.input[0] for node in result.model.graph.node if node.op_type == "QuantizeLinear"}
    assert "s_QuantizeLinear_Input" in quantised and quantised & {"p", "p_QuantizeLinear_Input"}
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    before, after = (
        onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for m in (model, result.model)
    )
    signal = error = 0.0
    for number in range(8):
        sample = {name: array[number] for name, array in given.items()}
        wanted, found = (session.run(["y"], sample)[0] for session in (before, after))
        signal, error = signal + float((wanted**2).sum()), error + float(((wanted - found) ** 2).sum())
    assert error < 1e-3 * signal


@pytest.mark.medium
def test_what_is_verified_has_a_mask() -> None:
    """onnxruntime and our compiler agree on it."""
    result = quantize(attention("added", -np.inf), samples("added"))
    assert result.verified is not None and result.noise is not None and result.noise.worst > 20


def test_rows_that_are_masked_whole_have_no_range() -> None:
    network = Network(onnx.shape_inference.infer_shapes(attention("input", -np.inf)))
    masks = Masks(network)
    value = np.array([[3, -np.inf, 1], [-np.inf] * 3, [-2, -1e4, -1e5]], np.float32)
    floor = np.float32(np.log(512 * 3))
    assert masks.unmasked("sm", value).tolist() == pytest.approx([3, 3 - floor, 1, -2, -2 - floor, -2 - floor])
    assert masks.unmasked("mask", value).tolist() == [3, 1, -2]
    assert masks.unmasked("q", value) is value
    seen = masks.seen("sm", value)
    assert seen is not None and seen.tolist() == (value > MASKED).tolist() and masks.seen("q", value) is None


@pytest.mark.parametrize(("op", "value"), [("Mul", np.inf), ("Add", np.inf), ("Add", np.nan), ("Concat", -np.inf)])
def test_other_constants_without_steps_stay_floats(op: str, value: float) -> None:
    node = helper.make_node
    attributes = {"axis": 0} if op == "Concat" else {}
    nodes = [
        node("MatMul", ["x", "w"], ["a"], "a"), node(op, ["a", "c"], ["b"], "b", **attributes),
        node("MatMul", ["b", "w"], ["y"], "y"),
    ]  # fmt: skip
    constants = {"w": np.eye(4, dtype=np.float32), "c": np.array([[1, value, 1, 2]], np.float32)}
    model = model_of(nodes, {"x": (TensorProto.FLOAT, [1, 4])}, {"y": (TensorProto.FLOAT, None)}, constants)
    network = Network(onnx.shape_inference.infer_shapes(model))
    assert [layer.op for layer in network.layers] == ["MatMul", "MatMul"]
