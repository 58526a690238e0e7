"""Small float networks, and samples, for tests of accuracy."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.quantize.prepare import prepare


def samples(count: int, seed: int = 0, size: int = 12) -> list[dict[str, np.ndarray]]:
    """Smooth pictures with an offset, as photographs have."""
    random = np.random.default_rng([seed, count])
    found = []
    for _ in range(count):
        picture = random.normal(size=(1, 3, size, size)).cumsum(axis=2).cumsum(axis=3) / size
        found.append({"x": (picture + random.normal() + 0.5).astype(np.float32)})
    return found


def deep(depth: int = 8, width: int = 16, spread: float = 1.0, seed: int = 0) -> onnx.ModelProto:
    """Convolutions with hard swish, every other one depthwise, and a product at the end.

    Args:
        spread: the channels' gains lie between 1 / spread and spread.
    """
    random = np.random.default_rng(seed)
    nodes, weights, name, channels = [], [], "x", 3

    def add(stem: str, value: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(value.astype(np.float32), stem))
        return stem

    for i in range(depth):
        depthwise = i % 2 == 1
        shape = (width, 1, 3, 3) if depthwise else (width, channels, 1, 1)
        values = random.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        values *= spread ** random.uniform(-1, 1, size=(width, 1, 1, 1))
        inputs = [name, add(f"w{i}", values), add(f"b{i}", random.normal(size=width) * 0.1)]
        nodes.append(helper.make_node("Conv", inputs, [f"c{i}"], f"conv{i}", pads=[int(depthwise)] * 4,
                                      group=width if depthwise else 1))  # fmt: skip
        nodes.append(helper.make_node("HardSwish", [f"c{i}"], [f"h{i}"], f"swish{i}"))
        name, channels = f"h{i}", width
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["p"], "pool"))
    nodes.append(helper.make_node("Flatten", ["p"], ["f"], "flatten"))
    nodes.append(helper.make_node("Gemm", ["f", add("wg", random.normal(size=(width, 10))), add("bg", np.zeros(10))],
                                  ["y"], "gemm"))  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])
    graph = helper.make_graph(nodes, "deep", [x], [y], weights)
    return prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
