"""Matrix product: y = requantise(x @ w.T + bias), int8 [rows, inputs] by int8 [outputs, inputs].

Rows of x come to the chip some at a time, in two buffers, so that the next ones are loaded while the array works. The
weights pass by in pieces of so many blocks of outputs as half of WGT holds; sums leave ACC through VECTOR.
"""

import numpy as np

from tilewright import kernel as tk
from tilewright.isa import numerics


@tk.kernel
def product(k, x, *, w, bias=0, scale=1 / 512, rows=64, outputs=4):
    y = k.tensor((x.rows, len(w)))
    weights, params = k.weights(w), k.params(bias, scale)
    for part in tk.chunks(x.rows, rows):
        tile = k.load(x.at(rows=part))
        for some in tk.chunks(y.blocks, outputs):
            k.requantise(k.matmul(tile, weights.at(outputs=some)), params, into=y.at(rows=part, blocks=some))
    return y


@product.reference
def reference(x, w, bias, scale):
    sums = x.astype(np.int32) @ w.astype(np.int32).T + bias
    return numerics.requantize(sums, numerics.scale_bits(scale), 0, -128, 127)
