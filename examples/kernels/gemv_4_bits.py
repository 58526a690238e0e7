"""A row times a matrix of 4-bit weights, as a language model takes for each token: y = requantise(x @ w.T).

Each weight is used once, so the time is that of reading them: two a byte on a machine with `packed_weights`, half the
cycles. Weights of all inputs at a time take room, so the products of some blocks of inputs add up in the same sums.
"""

import numpy as np

from tilewright import kernel as tk
from tilewright.isa import numerics


@tk.kernel
def gemv(k, x, *, w, scale=1 / 512, outputs=4, inputs=16):
    y = k.tensor((x.rows, len(w)))
    weights, params = k.weights(w, packed=True), k.params(0, scale)
    tile = k.load(x.at())
    for some in tk.chunks(y.blocks, outputs):
        sums = None
        for part in tk.chunks(x.blocks, inputs):
            sums = k.matmul(tile.at(blocks=part), weights.at(some, part), into=sums)
        k.requantise(sums, params, into=y.at(blocks=some))
    return y


@gemv.reference
def reference(x, w, scale):
    sums = x.astype(np.int32) @ w.astype(np.int32).T
    return numerics.requantize(sums, numerics.scale_bits(scale), 0, -128, 127)
