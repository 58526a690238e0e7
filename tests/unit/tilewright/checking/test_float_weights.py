"""Dynamic-range TFLite files: floats with 8-bit weights, whose activations LiteRT alone rounds to 8 bits."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tests.common.tflite_models import Model, Op, T
from tilewright.checking.float_weights import with_float_weights
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.compiler.importer.tflite.schema import read

OPTIONS = {"StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1}


def network(weights: str = "int8") -> bytes:
    """3x3 convolution with a scale a channel, depthwise convolution, product with one scale."""
    draw = np.random.default_rng(5)
    data = {
        "w": draw.integers(-127, 128, (6, 3, 3, 4)),
        "d": draw.integers(-127, 128, (1, 3, 3, 6)),
        "p": draw.integers(-127, 128, (5, 96)),
    }
    scales = {"w": list(draw.uniform(0.001, 0.02, 6)), "d": list(draw.uniform(0.001, 0.02, 6)), "p": 0.01}
    along = {"w": 0, "d": 3, "p": 0}
    if weights == "float32":
        data = {n: v * np.float32(1 / 64) for n, v in data.items()}
        scales = dict.fromkeys(scales)
    zero = lambda n: [0] * 6 if isinstance(scales[n], list) else 0
    tensors = [T(n, v.shape, weights, scales[n], zero(n), along[n], v) for n, v in data.items()]
    tensors += [T("b", (6,), "float32", data=draw.standard_normal(6).astype(np.float32))]
    tensors += [T("c", (1, 4, 4, 6), "float32"), T("e", (1, 4, 4, 6), "float32"), T("r", (1, 96), "float32")]
    tensors += [
        T("x", (1, 4, 4, 4), "float32"),
        T("y", (1, 5), "float32"),
        T("s", (2,), "int32", data=np.array([1, 96])),
    ]
    depthwise = "DepthwiseConv2DOptions", OPTIONS | {"DepthMultiplier": 1}
    ops = [
        Op("CONV_2D", ["x", "w", "b"], ["c"], ("Conv2DOptions", OPTIONS), version=5),
        Op("DEPTHWISE_CONV_2D", ["c", "d", "b"], ["e"], depthwise, version=6),
        Op("RESHAPE", ["e", "s"], ["r"]),
        Op("FULLY_CONNECTED", ["r", "p", ""], ["y"], ("FullyConnectedOptions", {}), version=9),
    ]  # fmt: skip
    return Model(tensors, ops, ["x"], ["y"]).build()


def test_the_check_compares_floats() -> None:
    x = {"x": np.random.default_rng(1).standard_normal((1, 4, 4, 4)).astype(np.float32)}
    report = tw.check(network(), x, keep="all")
    assert report.ok, report.summary()
    assert "activations of the 3 layers with 8-bit weights in floats" in report.reference


def test_weights_of_the_copy() -> None:
    data = network()
    copy, layers = with_float_weights(data, read(data))
    assert layers == 3
    floats = {t.name: t.data for t in read(copy).tensors}
    for t in read(data).tensors:
        if t.name in ("w", "d", "p"):
            assert t.quant is not None and t.data is not None
            scale = np.reshape(t.quant.scale, {"w": (6, 1, 1, 1), "d": (1, 1, 1, 6), "p": ()}[t.name])
            np.testing.assert_allclose(floats[t.name], t.data * scale, rtol=1e-6)


def test_what_litert_alone_makes_of_it() -> None:
    """LiteRT rounds activations: its result is near, but not by a rounding of floats."""
    x = {"x": np.random.default_rng(1).standard_normal((1, 4, 4, 4)).astype(np.float32)}
    alone, floats = (LiteRtReference(network(), float_weights=flag).run(x)["y"] for flag in (False, True))
    error = np.abs(alone - floats).max() / np.abs(floats).max()
    assert 1e-4 < error < 0.05


def test_other_files_stay() -> None:
    data = network("float32")
    assert with_float_weights(data, read(data)) == (data, 0)
