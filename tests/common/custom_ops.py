"""Models with ops of a domain of their own, which kernels run."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.common.onnx_models import model_of


def pyramid_model(dtype: Any = np.int8, **attributes: Any) -> onnx.ModelProto:
    """Convolution, com.me::Pyramid, convolution, all quantised."""
    random = np.random.default_rng(1)
    zero = 100 if dtype == np.uint8 else 3
    constants: dict[str, Any] = {
        "s": np.float32(0.05), "z": dtype(zero), "ws": np.float32(0.01), "wz": np.int8(0), "s2": np.float32(0.6),
        "s3": np.float32(3), "w1": random.integers(-128, 128, (24, 3, 3, 3), np.int8),
        "w2": random.integers(-128, 128, (2, 20, 24, 3, 3), np.int8),
        "w3": random.integers(-128, 128, (10, 20, 1, 1), np.int8),
    }  # fmt: skip
    dequantize = lambda q, s, z: helper.make_node("DequantizeLinear", [q, s, z], [f"{q}.f"])
    quantize = lambda x, s: helper.make_node("QuantizeLinear", [x, s, "z"], [f"{x}.q"])
    nodes = [
        quantize("x", "s"), dequantize("x.q", "s", "z"), *(dequantize(w, "ws", "wz") for w in ("w1", "w2", "w3")),
        helper.make_node("Conv", ["x.q.f", "w1.f"], ["a"], pads=[1] * 4), quantize("a", "s2"),
        dequantize("a.q", "s2", "z"),
        helper.make_node("Pyramid", ["a.q.f", "w2.f"], ["b"], "levels", domain="com.me", **attributes),
        quantize("b", "s3"), dequantize("b.q", "s3", "z"),
        helper.make_node("Conv", ["b.q.f", "w3.f"], ["c"]), quantize("c", "s3"), dequantize("c.q", "s3", "z"),
    ]  # fmt: skip
    return model_of(nodes, {"x": (TensorProto.FLOAT, [1, 3, 12, 12])}, {"c.q.f": (TensorProto.FLOAT, None)}, constants)
