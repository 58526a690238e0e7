"""Networks for simulated boards, where the way of each byte takes long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from tests.common.paths import ROOT
from tests.reference.quantized_models import Model


def digits_model() -> Path:
    """The digits network."""
    return ROOT / "examples/digits/digits_int8.onnx"


def small_model() -> onnx.ModelProto:
    """A network of 3 KB: Conv, Add and MaxPool."""
    m = Model(np.int8, seed=1)
    x = m.input((1, 8, 8, 8), 0.05, 3)
    y = m.requantized(m.op("Conv", x, m.weights((8, 8, 3, 3)), pads=[1] * 4), 0.05, 1)
    y = m.requantized(m.op("Add", x, y), 0.06, 2)
    m.output(m.requantized(m.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]), 0.06, 2))
    return m.build()


#: Networks by name.
MODELS = {"digits": digits_model, "small": small_model}
