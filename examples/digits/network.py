"""The digits network: its data, its shape in one table, and its ONNX form.

input float32 [N, 1, 8, 8]
stem          3x3 convolution to 16 channels              [N, 16, 8, 8]
first         residual block, two 3x3 convolutions        [N, 16, 8, 8]
down          3x3 convolution, stride 2                   [N, 32, 4, 4]
second        residual block, two 3x3 convolutions        [N, 32, 4, 4]
separable     depthwise 3x3, pointwise to 64              [N, 64, 4, 4]
head          global average pool, dense                  [N, 10]
output float32 [N, 10]: scores of the digits
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from tilewright.zoo.builder import Builder, Value

HERE = Path(__file__).resolve().parent
FLOAT_MODEL = HERE / "digits_float.onnx"
INT8_MODEL = HERE / "digits_int8.onnx"
TEST_SET = HERE / "digits_test.npz"

# name: (input channels, output channels, kernel, stride, groups); each is followed by batch norm in training.
CONVOLUTIONS = {
    "stem": (1, 16, 3, 1, 1),
    "first.a": (16, 16, 3, 1, 1),
    "first.b": (16, 16, 3, 1, 1),
    "down": (16, 32, 3, 2, 1),
    "second.a": (32, 32, 3, 1, 1),
    "second.b": (32, 32, 3, 1, 1),
    "separable.depthwise": (32, 32, 3, 1, 32),
    "separable.pointwise": (32, 64, 1, 1, 1),
}
FEATURES, CLASSES = 64, 10


def build(weights: Mapping[str, np.ndarray], batch: int = 1) -> onnx.ModelProto:
    """The network as float ONNX; `weights` has `<name>.weight` and `<name>.bias` of every convolution and of `head`."""
    b = Builder("digits")

    def conv(x: Value, name: str) -> Value:
        _, channels, kernel, stride, groups = CONVOLUTIONS[name]
        n, _, height, width = x.shape
        names = [b.constant(weights[f"{name}.{part}"], f"{name}.{part}") for part in ("weight", "bias")]
        return b.op(
            "Conv",
            [x, *names],
            (n, channels, -(-height // stride), -(-width // stride)),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=groups,
        )

    def residual(x: Value, name: str) -> Value:
        y = b.activate(conv(x, f"{name}.a"), "relu")
        return b.add(conv(y, f"{name}.b"), x, "relu")

    x = b.activate(conv(b.input((batch, 1, 8, 8)), "stem"), "relu")
    x = residual(x, "first")
    x = b.activate(conv(x, "down"), "relu")
    x = residual(x, "second")
    x = b.activate(conv(x, "separable.depthwise"), "relu")
    x = b.activate(conv(x, "separable.pointwise"), "relu")
    x = b.global_pool(x, flatten=True)
    names = [b.constant(weights[f"head.{part}"], f"head.{part}") for part in ("weight", "bias")]
    return b.finish(b.op("Gemm", [x, *names], (batch, CLASSES), transB=1))


def load_test_set() -> tuple[np.ndarray, np.ndarray]:
    """The held-back images float32 [360, 1, 8, 8] in 0..1 and their labels int64 [360]."""
    with np.load(TEST_SET) as data:
        return data["images"].astype(np.float32) / np.float32(16), data["labels"].astype(np.int64)
