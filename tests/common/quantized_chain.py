"""A small quantised network, built by hand: convolutions in QDQ form with a float tail, seeded."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.common.onnx_models import model_of


def quantized_chain(
    layers: int = 2, channels: int = 8, size: int = 8, tail: str = "", batch: object = 1
) -> onnx.ModelProto:
    """x -> Q -> (DQ, Conv, Relu, Q) * layers -> DQ -> tail -> y. Scales are powers of two: every rounding is exact.

    Args:
        tail: an operator of one float input that ends the network; "" for none.
        batch: size of the first dimension, or a name for an open one.
    """
    random = np.random.default_rng(layers * 100 + channels)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q0"], "q0")]
    constants: dict[str, object] = {
        "s": np.float32(0.0625),
        "z": np.int8(0),
        "ws": np.float32(0.0078125),
        "wz": np.int8(0),
    }
    for i in range(layers):
        constants[f"w{i}"] = random.integers(-90, 90, (channels, channels, 3, 3), np.int8)
        nodes += [
            helper.make_node("DequantizeLinear", [f"q{i}", "s", "z"], [f"d{i}"], f"d{i}"),
            helper.make_node("DequantizeLinear", [f"w{i}", "ws", "wz"], [f"v{i}"], f"v{i}"),
            helper.make_node("Conv", [f"d{i}", f"v{i}"], [f"c{i}"], f"conv{i}", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{i}"], [f"r{i}"], f"relu{i}"),
            helper.make_node("QuantizeLinear", [f"r{i}", "s", "z"], [f"q{i + 1}"], f"q{i + 1}"),
        ]
    last = "t" if tail else "y"
    nodes.append(helper.make_node("DequantizeLinear", [f"q{layers}", "s", "z"], [last], "out"))
    if tail:
        nodes.append(helper.make_node(tail, ["t"], ["y"], "tail"))
    shape = [batch, channels, size, size]
    kind = onnx.TensorProto.INT64 if tail == "NonZero" else onnx.TensorProto.FLOAT
    return model_of(nodes, {"x": (onnx.TensorProto.FLOAT, shape)}, {"y": (kind, None)}, constants)


def input_of(channels: int = 8, size: int = 8, seed: int = 0, batch: int = 1) -> dict[str, np.ndarray]:
    """An input of the network."""
    shape = (batch, channels, size, size)
    return {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}
