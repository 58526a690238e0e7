"""Pools whose windows are far larger than their inputs: clipped before anything is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import tilewright as tw
from tests.common import onnx_models
from tests.common.tflite_models import T, unary
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.compiler.graph.windows import clipped, reached
from tilewright.compiler.importer.onnx import import_onnx


def run(model: Any, inputs: dict[str, np.ndarray], config: str = "tiny") -> dict[str, np.ndarray]:
    with tw.Device("functional") as device:
        return device.run(tw.compile(model, config), inputs)


@given(
    size=st.integers(1, 9), kernel=st.integers(1, 12), stride=st.integers(1, 4), dilation=st.integers(1, 3),
    begin=st.integers(0, 8), end=st.integers(0, 8),
)  # fmt: skip
def test_taps_left_out_never_reach_the_input(
    size: int, kernel: int, stride: int, dilation: int, begin: int, end: int
) -> None:
    outputs = (size + begin + end - (kernel - 1) * dilation - 1) // stride + 1
    if outputs < 1:
        return
    positions = lambda k, b: {
        o: {o * stride - b + t * dilation for t in range(k)} & set(range(size)) for o in range(outputs)
    }
    taps = reached(size, kernel, stride, dilation, begin, outputs)
    assert begin - taps.start * dilation >= 0
    (fitting,), (before, behind) = clipped([size], [kernel], [stride], [dilation], [begin, end], [outputs])
    assert positions(fitting, before) == positions(kernel, begin)
    assert (size + before + behind - (fitting - 1) * dilation - 1) // stride + 1 == outputs
    assert fitting <= size + max((outputs - 1) * stride, 0)


def pool(op: str, shape: tuple[int, ...], **attrs: Any) -> Any:
    return onnx_models.model_of([helper.make_node(op, ["x"], ["y"], **attrs)], {"x": shape}, ["y"], opset=20)


_LARGE: list[tuple[str, dict[str, Any]]] = [
    ("MaxPool", {}),
    ("AveragePool", {}),
    ("AveragePool", {"count_include_pad": 1}),
    ("LpPool", {}),
]


@pytest.mark.medium
@pytest.mark.parametrize(("op", "more"), _LARGE)
@pytest.mark.parametrize("ceil", [0, 1])
def test_float_windows_larger_than_the_input(op: str, more: dict[str, Any], ceil: int) -> None:
    """1280x1280 over 7x7 with ceil_mode is what one exporter wrote; with padding floor mode has such windows too."""
    x = np.random.default_rng(0).normal(0, 1, (1, 6, 7, 7)).astype(np.float32)
    for pads, strides in (([640, 637, 640, 640], [2, 1]), ([0, 0, 0, 0], [1280, 1280])):
        if not ceil and not any(pads):
            continue
        attrs = {"kernel_shape": [1280, 1280], "strides": strides, "pads": pads, "ceil_mode": ceil, **more}
        model = pool(op, x.shape, **attrs)
        got, want = run(model, {"x": x})["y"], onnx_models.run(model, {"x": x})["y"]
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-7)


def test_the_normal_form_has_no_window_larger_than_the_input_needs() -> None:
    attrs = {"kernel_shape": [1280, 1280], "strides": [1280, 1280], "ceil_mode": 1}
    (node,) = import_onnx(pool("MaxPool", (1, 6, 7, 7), **attrs)).nodes
    assert node.attrs["kernel_shape"] == [7, 7] and node.attrs["pads"] == [0, 0, 0, 0]


@pytest.mark.medium
@pytest.mark.parametrize(("op", "more"), _LARGE[:3])
@settings(max_examples=10)
@given(data=st.data())
def test_random_windows(op: str, more: dict[str, Any], data: st.DataObject) -> None:
    """Quantised pools between DequantizeLinear and QuantizeLinear, with padding on both sides, against onnxruntime."""
    kernel = data.draw(st.lists(st.integers(1, 11), min_size=2, max_size=2))
    pads = [data.draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
    strides, size = [data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=2)) for _ in range(2)]
    if any(n + pads[i] + pads[2 + i] < kernel[i] for i, n in enumerate(size)):
        return
    constants = {"s": np.float32(0.05), "z": np.int8(3)}
    attrs = {"kernel_shape": kernel, "pads": pads, "strides": strides, **more}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]), helper.make_node(op, ["f"], ["g"], **attrs),
        helper.make_node("QuantizeLinear", ["g", "s", "z"], ["y"]),
    ]  # fmt: skip
    x = np.random.default_rng(0).integers(-128, 128, (1, 5, *size)).astype(np.int8)
    model = onnx_models.model_of(nodes, {"x": x}, ["y"], constants, opset=20)
    got, want = run(model, {"x": x})["y"], onnx_models.run(model, {"x": x})["y"]
    np.testing.assert_array_equal(got, want)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("op", ["MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"])
def test_tflite_windows_larger_than_the_input(op: str, dtype: str) -> None:
    if op == "L2_POOL_2D" and dtype != "float32":
        return
    quant = (None, 0) if dtype == "float32" else (0.1, 4)
    r = np.random.default_rng(0)
    for stride, out in ((2, 4), (200, 1)):
        options = {"Padding": 0, "StrideH": stride, "StrideW": stride, "FilterHeight": 200, "FilterWidth": 200}
        data = unary(op, T("x", (1, 7, 7, 6), dtype, *quant), T("y", (1, out, out, 6), dtype, *quant),
                     ("Pool2DOptions", options), 2 if quant[0] else 1)  # fmt: skip
        if dtype == "float32":
            x = r.normal(0, 1, (1, 7, 7, 6)).astype(np.float32)
        else:
            x = r.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (1, 7, 7, 6), endpoint=True).astype(dtype)
        got, want = run(data, {"x": x})["y"], LiteRtReference(data).run({"x": x})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 if dtype == "float32" else 0)
