"""A small network whose means of planes the array can make beside the layer before."""

from __future__ import annotations

import numpy as np

from tests.reference.quantized_models import Model


def squeezed(images: int, channels: int, size: tuple[int, int], kernel: int) -> Model:
    """Squeeze and excite: a layer, the mean of its planes, two layers, and the product with what the first one made."""
    m = Model(np.int8, seed=images + channels)
    x = m.input((images, 8, *size), 0.05, -3)
    y = m.requantized(m.op("Conv", x, m.weights((channels, 8, 1, 1))), 0.25, 5)
    pads = [kernel // 2] * 4
    y = m.op("Conv", y, m.weights((channels, 1, kernel, kernel)), group=channels, pads=pads)
    y = m.requantized(y, 0.15, 9)
    s = m.requantized(m.op("GlobalAveragePool", y), 0.01, 4)
    m.output(s)
    s = m.requantized(m.op("Conv", s, m.weights((channels, channels, 1, 1))), 0.02, 0)
    s = m.requantized(m.op("Sigmoid", s), 1 / 256, -128)
    m.output(m.requantized(m.op("Mul", y, s), 0.03, 0))
    return m
