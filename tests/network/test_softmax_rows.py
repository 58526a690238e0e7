"""Softmax between products on the NPU, element by element with onnxruntime.

python -m tests.network.test_softmax_rows 200     so many rows of 50 to 512 elements for each of many scales
"""

from __future__ import annotations

import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.isa.config import preset


def attention(n: int, rows: int, scale: float, levels: int) -> onnx.ModelProto:
    """int8 [rows, n] times the identity, which leaves it as it is, Softmax, and a product with ones."""
    constants = {
        "s": np.float32(scale), "z": np.int8(0), "one": np.float32(1), "eye": np.eye(n, dtype=np.int8),
        "sp": np.float32(1 / levels), "zp": np.int8(-128), "so": np.float32(0.01), "ones": np.ones((n, 1), np.int8),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["xf"]), node("DequantizeLinear", ["eye", "one", "z"], ["ef"]),
        node("MatMul", ["xf", "ef"], ["m"]), node("QuantizeLinear", ["m", "s", "z"], ["mq"]),
        node("DequantizeLinear", ["mq", "s", "z"], ["mf"]), node("Softmax", ["mf"], ["p"], axis=-1),
        node("QuantizeLinear", ["p", "sp", "zp"], ["pq"]), node("DequantizeLinear", ["pq", "sp", "zp"], ["pf"]),
        node("DequantizeLinear", ["ones", "one", "z"], ["of"]), node("MatMul", ["pf", "of"], ["y"]),
        node("QuantizeLinear", ["y", "so", "zp"], ["yq"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "attention", [helper.make_tensor_value_info("x", TensorProto.INT8, [rows, n])],
        [helper.make_tensor_value_info(name, TensorProto.INT8, [rows, c]) for name, c in (("pq", n), ("yq", 1))],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def compare(n: int, rows: int, scale: float, levels: int, spread: float, seed: int) -> tuple[int, int]:
    """Number of results of the Softmax, and of those that differ from onnxruntime's."""
    model = attention(n, rows, scale, levels)
    x = np.clip(np.random.default_rng(seed).normal(0, spread, (rows, n)), -128, 127).astype(np.int8)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    want = session.run(["pq"], {"x": x})[0]
    program = tw.compile(model, preset("base"))
    assert [layer.where for layer in program.layers if "QSoftmax" in layer.op] == ["npu"]
    got = tw.Device("functional", preset("base")).run(program, {"x": x})["pq"]
    return got.size, int((got != want).sum())


@pytest.mark.parametrize(
    ("n", "scale", "levels", "spread"),
    [(2, 0.1, 255, 40), (50, 0.05, 255, 25), (197, 0.02, 256, 40), (300, 0.3, 255, 9)],
)
def test_equals_onnxruntime(n: int, scale: float, levels: int, spread: float) -> None:
    elements, differing = compare(n, 100, scale, levels, spread, n)
    assert elements == 100 * n and differing == 0


def main(rows: int) -> None:
    rng = np.random.default_rng(1)
    total = off = 0
    for seed in range(40):
        n, scale = int(rng.integers(50, 513)), float(np.exp(rng.uniform(np.log(0.01), np.log(0.3))))
        elements, differing = compare(n, rows, scale, int(rng.choice([255, 256])), float(rng.uniform(5, 60)), seed)
        total, off = total + elements, off + differing
    print(f"{off} of {total} elements differ")


if __name__ == "__main__":
    main(int(sys.argv[1]))
