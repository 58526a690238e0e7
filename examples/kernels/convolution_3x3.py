"""Convolution 3x3 with padding: int8 [1, C, H, W] by int8 [O, C, 3, 3], requantised.

A band of rows comes to the chip with the row above and below it; what lies outside of the tensor is filled with its
zero point. The array walks the nine taps in one loop nest, so that no copies are made (no im2col).
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tilewright import kernel as tk
from tilewright.isa import numerics


@tk.kernel
def convolution(k, x, *, w, bias=0, scale=1 / 512, zero_point=0, rows=8, outputs=4):
    weights, params = k.weights(w, pad=1), k.params(bias, scale)
    height, width = weights.result((x.rows, x.columns))
    y = k.tensor((1, len(w), height, width))
    for part in tk.chunks(height, rows):
        wanted = x.at(rows=weights.rows(part), columns=weights.columns(range(width)))
        tile = k.load(wanted, pad=zero_point)
        for some in tk.chunks(y.blocks, outputs):
            k.requantise(k.matmul(tile, weights.at(outputs=some)), params, into=y.at(rows=part, blocks=some))
    return y


@convolution.reference
def reference(x, w, bias, scale, zero_point):
    padded = np.pad(x[0].astype(np.int32), ((0, 0), (1, 1), (1, 1)), constant_values=zero_point)
    windows = sliding_window_view(padded, w.shape[2:], (1, 2))  # [C, H, W, 3, 3]
    sums = np.tensordot(w.astype(np.int32), windows, ((1, 2, 3), (0, 3, 4)))
    sums += np.reshape(bias, (-1, 1, 1))
    return numerics.requantize(sums, numerics.scale_bits(scale), 0, -128, 127)[None]
