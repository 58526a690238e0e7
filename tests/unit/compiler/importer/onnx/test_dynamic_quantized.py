"""Models by onnxruntime's `quantize_dynamic`, and onnxruntime's optimised forms of them, equal it in every bit."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

import tilewright as tw
from tests.common import onnx_models

Arrays = dict[str, np.ndarray]


def weights(seed: int, **shapes: tuple[int, ...]) -> Arrays:
    r = np.random.default_rng(seed)
    return {name: r.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}


def lstm(direction: str, batch: int, **more: Any) -> tuple[list[onnx.NodeProto], tuple[int, ...], Arrays]:
    count = 2 if direction == "bidirectional" else 1
    constants = weights(1, w=(count, 64, 12), r=(count, 64, 16), b=(count, 128), **more)
    inputs = ["x", "w", "r", "b", "", *more]
    node = helper.make_node("LSTM", inputs, ["y", "h", "c"], hidden_size=16, direction=direction)
    return [node], (9, batch, 12), constants


N = helper.make_node
CASES: dict[str, Any] = {
    "matmul": ([N("MatMul", ["x", "w"], ["m"]), N("Add", ["m", "b"], ["y"])], (2, 5, 40),
               weights(0, w=(40, 24), b=(24,))),
    "gemms": ([N("Gemm", ["x", "w", "b"], ["m"], transB=1), N("Relu", ["m"], ["a"]), N("Gemm", ["a", "v", "d"], ["y"])],
              (5, 40), weights(0, w=(24, 40), b=(24,), v=(24, 10), d=(10,))),
    "convolutions": ([N("Conv", ["x", "w", "b"], ["m"], strides=[2, 2]), N("Relu", ["m"], ["a"]),
                      N("Conv", ["a", "v"], ["y"], group=4, pads=[1, 1, 1, 1])],
                     (1, 8, 19, 19), weights(0, w=(16, 8, 3, 3), b=(16,), v=(16, 4, 3, 3))),
    "activations": ([N("Conv", ["x", "w"], ["m"]), N("Sigmoid", ["m"], ["s"]), N("Mul", ["m", "s"], ["a"]),
                     N("Conv", ["a", "v"], ["n"]), N("Tanh", ["n"], ["t"]), N("Conv", ["t", "u"], ["y"])],
                    (1, 8, 9, 9), weights(0, w=(16, 8, 3, 3), v=(16, 16, 1, 1), u=(8, 16, 3, 3))),
    "lstm": lstm("forward", 2),
    "lstm_reverse": lstm("reverse", 1),
    "lstm_both": lstm("bidirectional", 3, h0=(2, 3, 16), c0=(2, 3, 16)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> Any:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def quantised(case: Any, folder: Path, kind: QuantType, per_channel: bool) -> Path:
    nodes, shape, constants = case
    outputs = dict.fromkeys((o for o in nodes[-1].output), (TensorProto.FLOAT, None))
    model = onnx_models.model_of(nodes, {"x": shape}, outputs, constants, opset=17)
    onnx.save(model, folder / "float.onnx")
    quantize_dynamic(folder / "float.onnx", folder / "int8.onnx", weight_type=kind, per_channel=per_channel)
    return folder / "int8.onnx"


@pytest.mark.medium
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt8], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_every_bit(name: str, kind: QuantType, per_channel: bool, tmp_path: Path) -> None:
    """The file itself, and the one onnxruntime's optimiser makes of it (DynamicQuantizeMatMul, ...)."""
    path, r = quantised(CASES[name], tmp_path, kind, per_channel), np.random.default_rng(2)
    feeds = {"x": r.normal(0, 1, CASES[name][1]).astype(np.float32)}
    want = onnx_models.run(path, feeds, optimized=tmp_path / "optimised.onnx")
    for file in (path, tmp_path / "optimised.onnx"):
        program = tw.compile(file, "tiny", cache=False)
        with tw.Device("functional") as device:
            got = device.run(program, feeds)
        for output, value in want.items():
            np.testing.assert_array_equal(got[output], value)


def test_constant_inputs_have_a_scale_too(tmp_path: Path) -> None:
    """All zeros, and values on one side of 0."""
    path = quantised(CASES["lstm"], tmp_path, QuantType.QInt8, False)
    for x in (np.zeros((9, 2, 12), np.float32), np.full((9, 2, 12), 3, np.float32)):
        program = tw.compile(path, "tiny")
        with tw.Device("functional") as device:
            got, want = device.run(program, {"x": x}), onnx_models.run(path, {"x": x})
        np.testing.assert_array_equal(got["y"], want["y"])


def test_what_an_lstm_may_not_have_is_named(tmp_path: Path) -> None:
    path = quantised(CASES["lstm"], tmp_path, QuantType.QInt8, False)
    model = onnx.load(path)
    (node,) = model.graph.node
    node.input[4] = "lengths"
    model.graph.initializer.append(numpy_helper.from_array(np.array([9, 4], np.int32), "lengths"))
    with pytest.raises(tw.TilewrightError, match="sequence_lens 'lengths' are not supported"):
        tw.compile(model, "tiny")
    node.input[4] = ""
    node.attribute.append(helper.make_attribute("clip", 2.0))
    with pytest.raises(tw.TilewrightError, match="clip=2"):
        tw.compile(model, "tiny")
