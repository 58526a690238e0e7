"""One quantised tensor that is read with several scales and zero points, as onnxruntime's integer ops read it."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.common import onnx_models
from tests.reference.quantized_models import Model
from tilewright.isa.program import NpuStep

MEANINGS = [
    ((0.05, 3), (0.08, -5), (0.1, 2)),
    ((0.05, 3), (0.05, -4), (0.05, 1)),
    ((0.1, 0), (0.05, 1), (0.2, 0)),
    ((0.16, 1), (0.08, 1), (0.1, 1)),
]


def _read_as(m: Model, quantized: str, meaning: tuple[float, int]) -> str:
    zero = meaning[1] + (128 if m.dtype == np.uint8 else 0)
    return str(m.op("DequantizeLinear", quantized, m.const(meaning[0], np.float32), m.const(zero, m.dtype)))


def _equal(m: Model) -> None:
    proto = m.build()
    value = proto.graph.input[0]
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    feeds = {
        value.name: np.random.default_rng(1).permutation(np.arange(-130, 254)).reshape(shape).astype(np.float32) / 20
    }
    onnx_models.assert_equal(proto, feeds)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("meanings", MEANINGS[1:3])
@pytest.mark.parametrize("op", ["Add", "Mul", "Sub", "MatMul"])
def test_two_meanings_in_one_op(op: str, meanings: list[tuple[float, int]], dtype: type) -> None:
    m = Model(dtype, seed=1)
    m.input((1, 6, 8, 8), meanings[0][0], meanings[0][1] + (128 if dtype == np.uint8 else 0))
    q = m.nodes[-2].output[0]
    a, b = _read_as(m, q, meanings[0]), _read_as(m, q, meanings[1])
    for operands in ((a, b), (b, a), (b, b)):
        y = m.op(op, *operands)
        m.output(m.requantized(y, meanings[2][0], meanings[2][1] + (128 if dtype == np.uint8 else 0)))
    _equal(m)


@pytest.mark.medium
def test_products_with_two_meanings() -> None:
    """Both are integers on the NPU."""
    m = Model(np.int8, seed=2)
    m.input((1, 6, 8, 8), 0.05, 3)
    q = m.nodes[-2].output[0]
    for meaning in MEANINGS[0][:2]:
        m.output(m.requantized(m.op("Conv", _read_as(m, q, meaning), m.weights((8, 6, 3, 3))), 0.3, 4))
    _equal(m)
    program = tw.compile_program(m.build(), "tiny", cache=False)
    assert any(isinstance(step, NpuStep) for step in program.steps)
    assert sum("QConv" in layer.op for layer in program.layers if layer.where == "npu") == 2, program.notes
