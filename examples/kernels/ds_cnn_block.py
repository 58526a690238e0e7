"""A block of DS-CNN in one pass: depthwise 3x3, then 1x1, each requantised, int8 [1, C, H, W], in bands of rows.

What the depthwise part makes of a band is a tile of ACT that the product reads: it never leaves the chip, and the next
band is loaded meanwhile.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tilewright import kernel as tk
from tilewright.isa import numerics


@tk.kernel
def block(k, x, *, depthwise, pointwise, scales=(1 / 256, 1 / 512), rows=5):
    window, weights = k.window(depthwise, pad=1), k.weights(pointwise)
    first, second = (k.params(0, scale) for scale in scales)
    y = k.tensor((1, len(pointwise), x.rows, x.columns))

    def depthwise_parts():
        for part in tk.chunks(x.rows, rows):
            tile = k.load(x.at(window.rows(part), window.columns(range(x.columns))), pad=0)
            yield part, k.requantise(k.depthwise(tile, window), first, low=0)

    for part, middle in tk.ahead(depthwise_parts()):
        k.requantise(k.matmul(middle, weights), second, low=0, into=y.at(part))
    return y


@block.reference
def reference(x, depthwise, pointwise, scales):
    relu = lambda sums, scale: numerics.requantize(sums, numerics.scale_bits(scale), 0, 0, 127)
    windows = sliding_window_view(np.pad(x[0].astype(np.int32), ((0, 0), (1, 1), (1, 1))), (3, 3), (1, 2))
    middle = relu(np.einsum("chwij,cij->chw", windows, depthwise.astype(np.int32)), scales[0])
    return relu(np.tensordot(pointwise.astype(np.int32), middle.astype(np.int32), 1), scales[1])[None]
