"""A layer that few runtimes know: 3x3 in groups of channel blocks, each group with a dilation of its own, summed.

The result is the requantised sum of the groups' convolutions, so each group adds to the sums of the one before. A group
is a block of channels of x; its weights are int8 [groups, O, C of a block, 3, 3].
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tilewright import kernel as tk
from tilewright.isa import numerics


@tk.kernel
def pyramid(k, x, *, w, dilations=(1, 2, 3), scale=1 / 1024, rows=4):
    groups = [k.weights(own, pad=d, dilation=d) for own, d in zip(w, dilations, strict=True)]
    y, params = k.tensor((1, w.shape[1], x.rows, x.columns)), k.params(0, scale)
    for part in tk.chunks(x.rows, rows):
        sums = None
        for block, own in enumerate(groups):
            tile = k.load(x.at(own.rows(part), own.columns(range(x.columns)), block), pad=0)
            sums = k.matmul(tile, own, into=sums)
        k.requantise(sums, params, into=y.at(part))
        del sums
    return y


@pyramid.reference
def reference(x, w, dilations, scale):
    sums = np.int32(0)
    for part, own, d in zip(np.split(x[0].astype(np.int32), len(w)), w.astype(np.int32), dilations, strict=True):
        windows = sliding_window_view(np.pad(part, ((0, 0), (d, d), (d, d))), (2 * d + 1, 2 * d + 1), (1, 2))
        sums = sums + np.tensordot(own, windows[..., ::d, ::d], ((1, 2, 3), (0, 3, 4)))
    return numerics.requantize(sums, numerics.scale_bits(scale), 0, -128, 127)[None]
