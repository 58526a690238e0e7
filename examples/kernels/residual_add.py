"""Convolution 1x1 with a residual: y = (requantise(w @ x) * ma + x * mb + c) >> shift, all int8 [1, C, H, W].

The Add runs in the same pass of VECTOR as the requantisation, with the tile that the product read: the residual is
loaded once and never copied.
"""

import numpy as np

from tilewright import kernel as tk
from tilewright.isa import numerics


@tk.kernel
def residual(k, x, *, w, bias=0, scale=1 / 512, ma=3, mb=5, c=4, shift=3, rows=8):
    weights, params = k.weights(w), k.params(bias, scale)
    y = k.tensor((1, len(w), x.rows, x.columns))
    for part in tk.chunks(x.rows, rows):
        tile = k.load(x.at(rows=part))
        add = tk.Addend(tile, ma, mb, c, shift)
        k.requantise(k.matmul(tile, weights), params, add=add, into=y.at(rows=part))
    return y


@residual.reference
def reference(x, w, bias, scale, ma, mb, c, shift):
    sums = np.tensordot(w.astype(np.int32), x[0].astype(np.int32), 1) + np.reshape(bias, (-1, 1, 1))
    product = numerics.requantize(sums, numerics.scale_bits(scale), 0, -128, 127)
    return numerics.add_integer(product, x[0], ma, mb, c, shift, -128, 127)[None]
