"""Small graphs that once differed: what onnxruntime leaves in floats between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.common import onnx_models
from tests.reference.quantized_models import Model
from tests.reference.random_quantized import random_quantized_graph
from tilewright.isa.program import NpuStep
from verification.fuzz.quantized import differences


def _equal(m: Model, cpu_only: bool, times: int = 1) -> None:
    """The bytes of onnxruntime for some random inputs."""
    onnx_models.assert_equal(m.build(), *(m.feeds() for _ in range(times)), cpu_only=cpu_only)


@pytest.mark.medium
@pytest.mark.parametrize("cpu_only", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("op", ["Add", "Mul", "Sub"])
@pytest.mark.parametrize("ending", ["", "relu", "clip", "twice"])
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


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("constant", [None, 0, 1])
def test_differences_stay_on_the_npu(constant: int | None, dtype: type) -> None:
    """A Sub between two convolutions, of tensors of two scales or with a constant on either side, runs on the NPU."""
    m = Model(dtype, seed=2)
    least = int(np.iinfo(dtype).min)
    x = m.input((1, 8, 9, 9), 0.05, least + 100)
    parts = []
    for i, scale in enumerate((0.0513, 0.0331)):
        made = m.requantized(m.op("Conv", x, m.weights((8, 8, 1, 1))), scale, least + 90 + 50 * i)
        parts.append(m.requantized(m.const(np.linspace(-2, 3, 648).reshape(1, 8, 9, 9), np.float32), scale, least + 120)
                     if i == constant else made)  # fmt: skip
    y = m.requantized(m.op("Sub", *parts), 0.0637, least + 128)
    m.output(m.requantized(m.op("Conv", y, m.weights((8, 8, 1, 1))), 0.2, least + 128))
    program = tw.compile_program(m.build(), "base", cache=False)
    assert sum(isinstance(step, NpuStep) for step in program.steps) == 1, program.notes
    _equal(m, cpu_only=False, times=3)


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


@pytest.mark.medium
@pytest.mark.parametrize("split", ["gather", "gather of one", "split", "slice"])
def test_heads_of_attention(split: str) -> None:
    """Queries and keys out of one tensor: onnxruntime carries DequantizeLinear through Slice, not Gather or Split."""
    m = Model(np.int8, seed=5)
    tokens, channels = 33, 24
    x = m.op("Reshape", m.input((1, tokens, 3 * 2 * channels), 0.05, 3), m.const([tokens, 3, 2, channels]))
    x = m.op("Transpose", x, perm=[1, 2, 0, 3])  # [query, key, value][heads][tokens][channels]
    parts = []
    for i in range(2):
        if split == "gather":
            parts.append(m.op("Gather", x, m.const(i), axis=0))
            continue
        if split == "split":
            part = m.op("Split", x, axis=0, outputs=3, num_outputs=3)[i]
        elif split == "slice":
            part = m.op("Slice", x, m.const([i]), m.const([i + 1]), m.const([0]))
        else:
            part = m.op("Gather", x, m.const([i]), axis=0)
        parts.append(m.op("Squeeze", part, m.const([0])))
    product = m.op("MatMul", parts[0], m.op("Transpose", parts[1], perm=[0, 2, 1]))
    m.output(m.requantized(product, 0.05, -4))
    proto, feeds = m.build(), [m.feeds() for _ in range(3)]
    program = tw.compile_program(proto, "base", keep="all", cache=False)
    assert any("QMatMul" in layer.op for layer in program.layers if layer.where == "npu"), program.notes
    reasons = [t.reason for t in program.tensors if "in floats" in t.reason]
    assert bool(reasons) is (split != "slice")
    for feed in feeds:
        report = tw.check(proto, feed, config="base", cache=False)
        assert report.ok and all(row.max_abs_difference <= (split != "slice") for row in report.rows), report


@pytest.mark.medium
def test_a_tensor_concatenated_with_itself() -> None:
    """The second copy cannot follow the first on the NPU: the channels are no multiple of the block."""
    m = Model(np.int8, seed=1)
    x = m.input((1, 6, 5, 5), 0.05, 3)
    m.output(m.requantized(m.op("Concat", x, x, axis=1), 0.04, 1))
    _equal(m, cpu_only=False)


@pytest.mark.medium
def test_odd_window_with_ties() -> None:
    m = Model(np.int8, seed=1)
    x = m.input((1, 8, 17, 17), 0.03, 3)
    x = m.requantized(m.op("Conv", x, m.weights((8, 8, 1, 1))), 0.03, 1)
    m.output(m.requantized(m.op("AveragePool", x, kernel_shape=[3, 3]), 0.02, 1))
    _equal(m, cpu_only=False)


@pytest.mark.medium
@pytest.mark.parametrize("between_convs", [False, True])
@pytest.mark.parametrize("first", [(1,), (1, 8, 1, 1), (3, 1, 1, 1), (3, 1, 16, 16)])
def test_add_of_one_value_per_row(first: tuple[int, ...], between_convs: bool) -> None:
    """onnxruntime exchanges the operands, which changes the last bit of the sum. Between Convs rows are of channels."""
    m = Model(np.int8, seed=0)
    a, b = m.input((3, 8, 16, 16), 0.2, 0), m.input(first, 0.05, 0)
    if between_convs:
        a = m.requantized(m.op("Conv", a, m.weights((8, 8, 1, 1))), 0.2, 0)
    y = m.requantized(m.op("Add", b, a), 0.5, 0)
    if between_convs:
        y = m.requantized(m.op("Conv", y, m.weights((8, 8, 1, 1))), 0.5, 0)
    m.output(y)
    _equal(m, cpu_only=False, times=6)
    _equal(m, cpu_only=True, times=6)


def test_twins_are_fused_each_by_itself() -> None:
    """Equal Muls with one QuantizeLinear each are two integer ops, equal QuantizeLinears of one Mul leave floats."""
    for together in (False, True):
        m = Model(np.int8, seed=1)
        a, b = m.input((2, 5, 64), 0.25, 0), m.input((2, 5, 64), 0.2, 83)
        product = m.op("Mul", a, b)
        for _ in range(2):
            m.output(m.requantized(product if together else m.op("Mul", a, b), 4.0, 1))
        _equal(m, cpu_only=False)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("classes", [1, 2, 3, 197, 18710])
def test_softmax(classes: int, dtype: type) -> None:
    """Byte by byte, also where onnxruntime overflows: a quotient of 256 steps over one or two classes."""
    least = int(np.iinfo(dtype).min)
    for scale, zero in ((1 / 255, 0), (1 / 256, 0), (1 / 256, 128), (1 / 400, 5), (2.0, 0)):
        m = Model(dtype, seed=classes)
        x = m.input((20, classes), 0.05, least + 60)
        m.output(m.requantized(m.op("Softmax", x, axis=-1), scale, least + zero))
        _equal(m, cpu_only=True)


@pytest.mark.medium
@pytest.mark.parametrize(
    "seed", [1001, 1039, 1216, 1224, 1353, 1363, 1408, 2175, 2252, 2649, 3055, 3649, 3863, 3895, *range(8)]
)
def test_random_graph(seed: int) -> None:
    """The first are those that once differed."""
    assert differences(seed, random_quantized_graph(seed, later=False)) == []


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(16))
def test_random_graph_of_all_ops(seed: int) -> None:
    assert differences(seed, random_quantized_graph(seed)) == []
