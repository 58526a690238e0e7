"""Small graphs that once differed: what onnxruntime leaves in floats between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.common import onnx_models
from tests.reference.quantized_models import Model


def _equal(m: Model, cpu_only: bool) -> None:
    proto, feeds = m.build(), m.feeds()
    want = onnx_models.run(proto, feeds)
    got = tw.Device("functional").run(tw.compile(proto, "tiny", cpu_only=cpu_only, cache=False), feeds)
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)


@pytest.mark.parametrize("cpu_only", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("ending", ["relu", "clip", "twice"])
def test_float_ties(op: str, ending: str, dtype: type, cpu_only: bool) -> None:
    m = Model(dtype, seed=1)
    least = int(np.iinfo(dtype).min)
    shape = (2, 8, 15, 15)
    y = m.op(op, m.input(shape, 0.05, least + 120), m.input(shape, 0.05, least + 120))
    if ending == "relu":
        y = m.op("Relu", y)
    if ending == "clip":
        y = m.op("Clip", y, m.const(0, np.float32), m.const(3, np.float32))
    m.output(m.requantized(y, 0.02, least + 77))
    if ending == "twice":
        m.output(m.requantized(y, 0.04, least + 33))
    _equal(m, cpu_only)


def test_reasons() -> None:
    """A product that onnxruntime computes in floats says so; one that it fuses does not."""
    found = []
    for zero in (-128, 0):
        m = Model(np.int8, seed=1)
        y = m.op("Relu", m.op("Conv", m.input((1, 8, 6, 6)), m.weights((8, 8, 3, 3))))
        m.output(m.op("MaxPool", m.requantized(y, 0.5, zero), kernel_shape=[2, 2]))
        program = tw.compile_program(m.build(), "tiny", keep="all", cache=False)
        found.append([t.reason for t in program.tensors if "in floats" in t.reason])
    assert not found[0]
    assert len(found[1]) == 1 and "Conv in floats" in found[1][0]


def test_a_tensor_concatenated_with_itself() -> None:
    """Its channels are no multiple of the block, so the second copy cannot follow the first on the NPU."""
    m = Model(np.int8, seed=1)
    x = m.input((1, 6, 5, 5), 0.05, 3)
    m.output(m.requantized(m.op("Concat", x, x, axis=1), 0.04, 1))
    _equal(m, cpu_only=False)
