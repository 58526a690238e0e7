"""Linear Resize in every bit as onnxruntime computes it, so that what is quantised behind it is equal, too."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tilewright as tw
from tests.common import onnx_models

R = np.random.default_rng(3)
N = helper.make_node


def same(nodes: list, x: np.ndarray, **constants: np.ndarray) -> np.ndarray:
    """Asserts that onnxruntime and our kernels make the same bits of `x`, and returns them."""
    model = onnx_models.model_of(nodes, {"x": x}, ["y"], constants, opset=17)
    (expected,) = onnx_models.run(model, {"x": x}).values()
    with tw.Device("functional") as device:
        got = device.run(tw.compile(model, "tiny"), {"x": x})["y"]
    assert got.shape == expected.shape and got.dtype == expected.dtype
    assert np.array_equal(got, expected), f"{np.mean(got != expected):.2%} of the elements differ"
    return got


def linear(**attributes: object) -> list:
    return [N("Resize", ["x", "", "scales"], ["y"], mode="linear", **attributes)]


SHAPES = [
    ((1, 3, 9, 10), (1, 1, 2, 2)),
    ((1, 3, 9, 10), (1, 1, 1, 2)),
    ((1, 3, 9, 10), (1, 1, 0.4, 3)),
    ((1, 9, 10, 5), (1, 2, 1.5, 1)),
    ((9, 10), (2, 4)),
    ((3, 5, 6), (2, 2, 3)),
    ((1, 2, 4, 5, 6), (1, 1, 2, 2, 0.5)),
]


@pytest.mark.parametrize("how", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize(("shape", "scales"), SHAPES, ids=str)
def test_floats(shape: tuple[int, ...], scales: tuple[float, ...], how: str) -> None:
    x = R.standard_normal(shape).astype(np.float32)
    same(linear(coordinate_transformation_mode=how), x, scales=np.array(scales, np.float32))


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
@pytest.mark.parametrize(("shape", "scales"), SHAPES, ids=str)
def test_integers(shape: tuple[int, ...], scales: tuple[float, ...], dtype: type) -> None:
    x = R.integers(0 if dtype == np.uint8 else -128, 128, shape).astype(dtype)
    same(linear(), x, scales=np.array(scales, np.float32))


@pytest.mark.medium
@pytest.mark.parametrize("factor", [2, 4, 8])
@pytest.mark.parametrize(("scale", "zero"), [(0.05, 3), (0.07, 5)])
def test_between_quantisers(factor: int, scale: float, zero: int) -> None:
    nodes = [
        N("DequantizeLinear", ["x", "sx", "zx"], ["a"]),
        N("Resize", ["a", "", "scales"], ["b"], mode="linear"),
        N("QuantizeLinear", ["b", "sy", "zy"], ["y"]),
    ]
    same(
        nodes, R.integers(-128, 128, (1, 8, 20, 20)).astype(np.int8),
        scales=np.array([1, 1, factor, factor], np.float32), sx=np.float32(0.05), zx=np.int8(3),
        sy=np.float32(scale), zy=np.int8(zero),
    )  # fmt: skip


@pytest.mark.parametrize("size", [10, 30, 100])
@pytest.mark.parametrize("scale", [0.3, 0.7, 0.9, 1.1, 2.3])
def test_size_by_scale(size: int, scale: float) -> None:
    """The product in float32: 10 * 0.7 is 7, though float32(0.7) is less."""
    x = R.standard_normal((1, 1, size, 2)).astype(np.float32)
    same([N("Resize", ["x", "", "scales"], ["y"])], x, scales=np.array([1, 1, scale, 1], np.float32))


def test_extrapolation() -> None:
    how = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    nodes = [N("Resize", ["x", "roi", "", "sizes"], ["y"], mode="linear", **how)]
    roi = np.array([0, 0, -0.2, 0.1, 1, 1, 0.9, 1.3], np.float32)
    got = same(nodes, R.standard_normal((1, 2, 8, 9)).astype(np.float32), roi=roi, sizes=np.array([1, 2, 11, 12]))
    assert (got == 7).any() and (got != 7).any()
