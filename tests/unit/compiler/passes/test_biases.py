"""Biases whose scale is not that of the products: where onnxruntime takes their integers, and where their value."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.common import onnx_models
from tests.reference.quantized_models import Model

STEP = np.float32(np.float32(0.051) * np.float32(0.013))


def _equal(m: Model) -> None:
    onnx_models.assert_equal(m.build(), m.feeds(0.3), m.feeds(0.3))


def _product(m: Model, op: str, x: str, scale: np.ndarray | float, ws: np.ndarray | float = 0.013, **attrs: int) -> str:
    """A product of constant weights and a bias of this scale; weights per channel where `ws` is."""
    conv = (8, 4 // attrs.get("group", 1), 3, 3)
    shape, axis = {"Conv": (conv, 0), "ConvTranspose": ((4, 8, 3, 3), 1), "Gemm": ((12, 8), 1)}[op]
    w = m.op("DequantizeLinear", m.const(m.rng.integers(-100, 100, shape), np.int8), m.const(ws, np.float32), axis=axis)
    b = m.const(m.rng.integers(-2000, 2000, 8), np.int32)
    bias = m.op("DequantizeLinear", b, m.const(scale, np.float32), axis=0)
    return str(m.op(op, x, w, bias, **attrs))


def _network(
    op: str, scale: np.ndarray | float, ws: np.ndarray | float = 0.013, relu: bool = False, **attrs: int
) -> Model:
    m = Model(np.int8, seed=3)
    x = m.input((9, 12) if op == "Gemm" else (1, 4, 9, 9), 0.051, 0)
    y = _product(m, op, x, scale, ws, **attrs)
    m.output(m.requantized(m.op("Relu", y) if relu else y, 0.1127, 0))
    return m


@pytest.mark.medium
@pytest.mark.parametrize("ratio", [1, 0.9905, 1.012, 0.98, 1.02, 3, 0.37])
@pytest.mark.parametrize(
    "op, relu, group",
    [
        ("Conv", False, 1),
        ("Conv", False, 4),
        ("Conv", True, 1),
        ("ConvTranspose", False, 1),
        ("Gemm", False, 1),
        ("Gemm", True, 1),
    ],
)
def test_another_scale(op: str, relu: bool, group: int, ratio: float) -> None:
    _equal(_network(op, float(STEP * np.float32(ratio)), relu=relu, **({"group": group} if op == "Conv" else {})))


@pytest.mark.parametrize("off", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize("up", [False, True])
def test_the_edge_of_what_is_taken_as_integers(up: bool, off: int) -> None:
    """A few floats to both sides of the limit."""
    limit = np.float32(np.float32(0.01) * STEP + np.float32(1e-6))
    edge = np.float32(STEP + limit if up else STEP - limit)
    _equal(_network("Conv", float((edge.view(np.int32) + off).view(np.float32))))


@pytest.mark.medium
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_scales_per_channel(op: str) -> None:
    """One scale for channels of several, and one channel that is off; below 1e-6 everything fits."""
    ws = np.linspace(0.01, 0.02, 8).astype(np.float32)
    scales = np.float32(0.051) * ws
    _equal(_network(op, STEP, ws))
    _equal(_network(op, scales, ws))
    scales[3] *= np.float32(1.3)
    _equal(_network(op, scales, ws))
    _equal(_network(op, np.float32(9e-7), ws * np.float32(1e-6)))


@pytest.mark.medium
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_shared_by_two_products(op: str) -> None:
    """One weight and one bias behind inputs of two scales."""
    m = Model(np.int8, seed=4)
    w = m.op("DequantizeLinear", m.const(m.rng.integers(-100, 100, (4, 4, 1, 1)), np.int8), m.const(0.013, np.float32))
    b = m.op("DequantizeLinear", m.const(m.rng.integers(-2000, 2000, 4), np.int32), m.const(STEP, np.float32))
    x = m.input((1, 4, 8, 8), 0.051, 0)
    for scale in (0.1127, 0.0931):
        x = m.requantized(m.op(op, x, w, b), scale, 0)
    m.output(x)
    _equal(m)


@pytest.mark.parametrize("scale", [0.001, 0.02])
def test_ties_of_floats(scale: float) -> None:
    """A scale of the sums with many ties, which onnxruntime rounds as its order of float sums says."""
    m = Model(np.int8, seed=5)
    y = _product(m, "Conv", m.input((1, 4, 20, 20), 0.05, 0), np.float32(0.0015), scale)
    m.output(m.requantized(y, 0.1, 0))
    _equal(m)


def test_multiples_stay_on_the_npu() -> None:
    """Three times the step, and sums with few ties."""
    program = tw.compile_program(_network("Conv", float(STEP) * 3).build(), "tiny", keep="all", cache=False)
    assert any("QConv" in layer.op for layer in program.layers if layer.where == "npu"), program.notes
    assert any("Conv in floats" in t.reason for t in program.tensors)


@pytest.mark.medium
@pytest.mark.parametrize("op", ["Conv", "Gemm"])
def test_float_bias_of_a_result_quantised_twice(op: str) -> None:
    """onnxruntime does not round it to the step of the products then."""
    m = Model(np.int8, seed=6)
    w = m.weights((4, 4, 3, 3) if op == "Conv" else (12, 4))
    x = m.input((1, 4, 20, 20) if op == "Conv" else (400, 12), 0.051, 0)
    y = m.op(op, x, w, m.const(m.rng.normal(0, 0.5, 4), np.float32))
    for scale in (0.11, 0.0713):
        m.output(m.requantized(y, scale, 0))
    _equal(m)


@pytest.mark.parametrize("shape", [(9, 12), (2, 9, 12)], ids=["rows", "more"])
@pytest.mark.parametrize("tail", ["float", "relu", "relu and one Q", "sigmoid and one Q", "two Q"])
@pytest.mark.parametrize("op", ["Gemm", "MatMul"])
def test_products_whose_result_is_float(op: str, tail: str, shape: tuple[int, ...]) -> None:
    """onnxruntime adds the integers of the bias, whatever its scale, unless it takes the product as floats."""
    if op == "Gemm" and len(shape) > 2:
        return
    m = Model(np.int8, seed=5)
    x = m.input(shape, 0.051, 3)
    zero = m.const(0, np.int8)
    w = m.op("DequantizeLinear", m.const(m.rng.integers(-100, 100, (12, 8)), np.int8), m.const(0.013, np.float32), zero)
    bias = m.op("DequantizeLinear", m.const(m.rng.integers(-900, 900, 8), np.int32), m.const(3 * STEP, np.float32))
    y = m.op("Gemm", x, w, bias) if op == "Gemm" else m.op("Add", m.op("MatMul", x, w), bias)
    if "relu" in tail or "sigmoid" in tail:
        y = m.op("Sigmoid" if "sigmoid" in tail else "Relu", y)
    outputs = [0.1127, 0.07] if tail == "two Q" else [0.0031 if "sigmoid" in tail else 0.1127] if "Q" in tail else []
    for scale in outputs:
        m.output(m.requantized(y, scale, 5))
    if not outputs:
        m.output(y)
    proto, feeds = m.build(), m.feeds(0.3)
    got = tw.Device("functional").run(tw.compile(proto, "tiny", cache=False), feeds)
    session = onnx_models.session(proto)
    for o, value in zip(session.get_outputs(), session.run(None, feeds)):
        if outputs:
            np.testing.assert_array_equal(got[o.name], value)
        else:
            np.testing.assert_allclose(got[o.name], value, rtol=1e-5, atol=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize("activation", ["", "Relu", "Clip"])
@pytest.mark.parametrize("shape", [(9, 12), (2, 9, 12)], ids=["rows", "more"])
def test_float_bias_of_a_product(shape: tuple[int, ...], activation: str, zero: int) -> None:
    """A float bias is rounded to steps of the sums, but not behind a product of more dimensions that goes to a Relu or
    Clip."""
    m = Model(np.uint8, seed=5)
    x = m.input(shape, 0.075, 129)
    w = m.op("DequantizeLinear", m.const(m.rng.integers(-3, 4, (12, 8)), np.int8), m.const(0.25, np.float32),
             m.const(0, np.int8))  # fmt: skip
    y = m.op("Add", m.op("MatMul", x, w), m.const(m.rng.normal(size=8), np.float32))
    if activation:
        bounds = [m.const(0, np.float32), m.const(2, np.float32)] if activation == "Clip" else []
        y = m.op(activation, y, *bounds)
    m.output(m.requantized(y, 0.013, zero))
    _equal(m)
