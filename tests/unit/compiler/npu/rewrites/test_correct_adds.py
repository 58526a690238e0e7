"""Adds without exact constants run on the NPU with a correction: onnxruntime's bytes on all pairs of operands."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.common import onnx_models
from tests.reference.quantized_models import Model
from tilewright.compiler.npu.layers.add_constants import find_add_constants
from tilewright.isa.config import PRESETS
from tilewright.isa.program import NpuStep

Type = tuple[float, int]
#: Scales and zero points of a, b and y, each found by trying random ones; the first is an Add of the zoo's DeiT.
CASES: dict[str, tuple[type, tuple[Type, Type, Type]]] = {
    "two pairs": (np.int8, ((0.11479934304952621, 4), (0.01697796955704689, 5), (0.11991409957408905, -3))),
    "three pairs": (np.uint8, ((0.03998469188809395, 205), (0.01875378005206585, 194), (0.07147691398859024, 165))),
    "clamped": (np.uint8, ((0.3166036307811737, 180), (0.021388262510299683, 202), (0.02045026421546936, 61))),
}


def made_by_the_npu(m: Model, kind: Type, x: str) -> str:
    """Adds a convolution with weights of 1, so that the NPU makes the values of x."""
    ones = m.op("DequantizeLinear", m.const(np.ones((16, 1, 1, 1)), np.int8), m.const(1.0, np.float32))
    return m.requantized(m.op("Conv", x, ones, group=16), *kind)


@pytest.mark.medium
@pytest.mark.parametrize(("name", "constant"), [
    ("two pairs", False), ("three pairs", True), ("clamped", False),
    pytest.param("three pairs", False, marks=pytest.mark.long),
])  # fmt: skip
def test_all_pairs(name: str, constant: bool) -> None:
    dtype, (a, b, y) = CASES[name]
    stored = [(*t, 128 if dtype == np.uint8 else 0) for t in (a, b, y)]
    assert find_add_constants(*stored, -128, 127) is None
    pairs = np.stack(np.divmod(np.arange(1 << 16), 256)).reshape(2, 1, 16, 64, 64) + np.iinfo(dtype).min
    values = [((q - zero) * np.float32(scale)).astype(np.float32) for q, (scale, zero) in zip(pairs, (a, b))]
    m = Model(dtype)
    operands = [made_by_the_npu(m, a, m.input(values[0].shape, *a))]
    if constant:
        scale, zero = (m.const(v, t) for v, t in zip(b, (np.float32, dtype)))
        operands.append(m.op("DequantizeLinear", m.const(pairs[1], dtype), scale, zero))
    else:
        operands.append(made_by_the_npu(m, b, m.input(values[1].shape, *b)))
    m.output(m.requantized(m.op("Add", *operands), *y))
    model = m.build()
    feeds = dict(zip((i.name for i in model.graph.input), values))
    program = tw.compile_program(model, "base", cache=False)
    assert sum(isinstance(step, NpuStep) for step in program.steps) == 1
    assert not any("Add" in note for note in program.notes), program.notes
    expected = onnx_models.run(model, feeds)
    for device in ("functional", "cycle"):
        for output, found in tw.Device(device, PRESETS["base"]).run(program, feeds).items():
            np.testing.assert_array_equal(found, expected[output])


@pytest.mark.medium
def test_without_tables_it_stays_on_the_cpu() -> None:
    dtype, (a, b, y) = CASES["two pairs"]
    m = Model(dtype)
    operands = [made_by_the_npu(m, t, m.input((1, 16, 4, 4), *t)) for t in (a, b)]
    m.output(m.requantized(m.op("Add", *operands), *y))
    config = PRESETS["tiny"].with_(name="no_tables", lut_tables=0)
    program = tw.compile_program(m.build(), config, cache=False)
    assert any("no integer constants reproduce this Add" in note for note in program.notes)
