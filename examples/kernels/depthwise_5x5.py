"""Depthwise convolution 5x5 with stride 2 in the array's window mode: int8 [1, C, H, W] by int8 [C, 5, 5].

The window mode pushes vectors of the input through a shift register; which taps share a pass is the compiler's choice,
and padding that two lines share is pushed once. A kernel only says which rows go in and where the results go.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tilewright import kernel as tk
from tilewright.isa import numerics


@tk.kernel
def depthwise(k, x, *, w, bias=0, scale=1 / 512, zero_point=0, rows=8, blocks=1):
    window, params = k.window(w, stride=2, pad=2), k.params(bias, scale)
    height, width = window.result((x.rows, x.columns))
    y = k.tensor((1, len(w), height, width))
    for some in tk.chunks(x.blocks, blocks):
        for part in tk.chunks(height, rows):
            wanted = x.at(rows=window.rows(part), columns=window.columns(range(width)), blocks=some)
            sums = k.depthwise(k.load(wanted, pad=zero_point), window.at(blocks=some))
            k.requantise(sums, params, into=y.at(rows=part, blocks=some))
            del sums
    return y


@depthwise.reference
def reference(x, w, bias, scale, zero_point):
    padded = np.pad(x[0].astype(np.int32), ((0, 0), (2, 2), (2, 2)), constant_values=zero_point)
    windows = sliding_window_view(padded, w.shape[1:], (1, 2))[:, ::2, ::2]  # [C, H, W, 5, 5]
    sums = np.einsum("chwij,cij->chw", windows, w.astype(np.int32)) + np.reshape(bias, (-1, 1, 1))
    return numerics.requantize(sums, numerics.scale_bits(scale), 0, -128, 127)[None]
