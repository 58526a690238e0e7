"""A small float TFLite network."""

from __future__ import annotations

import numpy as np

from tests.common.tflite_models import Model, Op, T

RELU, RELU6 = 1, 3
"""Activations that are part of an operator, as the schema numbers them."""


def network(activation: int = RELU) -> bytes:
    """A convolution, a depthwise one added to it, a mean of planes and a product, of random weights.

    Args:
        activation: of the convolution.

    Returns:
        The file; input `x` is float32[1, 8, 8, 3], output `y` float32[1, 10].
    """
    r = np.random.default_rng(0)
    constant = lambda name, *shape: T(name, shape, "float32", data=r.normal(0, 0.3, shape))
    inner = [T(name, (1, 8, 8, 16), "float32") for name in ("c", "d", "s")]
    tensors = [
        T("x", (1, 8, 8, 3), "float32"), constant("w", 16, 3, 3, 3), constant("b", 16), constant("v", 1, 3, 3, 16),
        constant("e", 16), constant("f", 10, 16), constant("g", 10), *inner, T("m", (1, 16), "float32"),
        T("axes", (2,), "int32", data=np.array([1, 2])), T("y", (1, 10), "float32"),
    ]  # fmt: skip
    window = {"StrideH": 1, "StrideW": 1}
    ops = [
        Op("CONV_2D", ["x", "w", "b"], ["c"], ("Conv2DOptions", {**window, "FusedActivationFunction": activation})),
        Op("DEPTHWISE_CONV_2D", ["c", "v", "e"], ["d"], ("DepthwiseConv2DOptions", {**window, "DepthMultiplier": 1})),
        Op("ADD", ["c", "d"], ["s"], ("AddOptions", {})),
        Op("MEAN", ["s", "axes"], ["m"], ("ReducerOptions", {})),
        Op("FULLY_CONNECTED", ["m", "f", "g"], ["y"], ("FullyConnectedOptions", {})),
    ]
    return Model(tensors, ops, ["x"], ["y"]).build()
