"""RMSNorm with the product behind it: y = requantise(norm(x) @ w.T), int8 [rows, channels], on the row unit.

The normalised rows are a tile of ACT that the product reads. ROW keeps the exact sum of squares of each row, takes its
reciprocal root bit by bit, and multiplies; gamma and the steps of the result are in the scales of PRM.
"""

import numpy as np

from tilewright import kernel as tk
from tilewright.isa import numerics
from tilewright.isa.config import PRESETS

STEPS = (0.05, 1 / 32)


@tk.kernel
def norm_and_product(k, x, *, w, gamma, scale=1 / 512, rows=16):
    weights, params, norm = k.weights(w), k.params(0, scale), k.normalisation(gamma, steps=STEPS)
    y = k.tensor((x.rows, len(w)))

    def normed_parts():
        for part in tk.chunks(x.rows, rows):
            yield part, k.norm(k.load(x.at(part)), norm)

    for part, normed in tk.ahead(normed_parts()):  # ROW works on the next rows while the array does these
        k.requantise(k.matmul(normed, weights), params, into=y.at(part))
    return y


@norm_and_product.reference
def reference(x, w, gamma, scale):
    normed = tk.Norm(PRESETS["base"], gamma, None, 1e-5, STEPS, (0, 0), centred=False).of(x)
    real = x * STEPS[0] / np.sqrt(np.mean((x * STEPS[0]) ** 2, -1, keepdims=True) + 1e-5) * gamma
    assert np.abs(np.clip(real / STEPS[1], -128, 127) - normed).max() < 0.51  # half a step of float arithmetic
    sums = normed.astype(np.int32) @ w.astype(np.int32).T
    return numerics.requantize(sums, numerics.scale_bits(scale), 0, -128, 127)
