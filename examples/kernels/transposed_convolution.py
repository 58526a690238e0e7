"""Transposed convolution 4x4 with stride 2, which doubles rows and columns: int8 [1, C, H, W] by [C, outputs, 4, 4].

Every second row and column of the result is a convolution 2x2 of its own, four in all. They read one tile, and write
every second row and column of another: parts of tiles may have steps.
"""

import itertools

import numpy as np

from tilewright import kernel as tk
from tilewright.isa import numerics


@tk.kernel
def transposed(k, x, *, w, bias=0, scale=1 / 1024, rows=4):
    phases = {(a, b): k.weights(w[:, :, 3 - a :: -2, 3 - b :: -2].swapaxes(0, 1)) for a in (0, 1) for b in (0, 1)}
    params, wide = k.params(bias, scale), 2 * x.columns
    y = k.tensor((1, w.shape[1], 2 * x.rows, wide))
    for part in tk.chunks(x.rows, rows):
        around = k.load(x.at(range(part.start - 1, part.stop + 1), range(-1, x.columns + 1)), pad=0)
        out, high = k.tile(y.blocks, 2 * len(part), wide), 2 * len(part)
        for (a, b), weights in phases.items():
            tile = around.at(range(a, a + len(part) + 1), range(b, b + x.columns + 1))
            k.requantise(k.matmul(tile, weights), params, into=out.at(range(a, high, 2), range(b, wide, 2)))
        k.store(out, y.at(range(2 * part.start, 2 * part.stop)))
    return y


@transposed.reference
def reference(x, w, bias, scale):
    (h, wide), sums = x.shape[2:], np.zeros((w.shape[1], 2 * x.shape[2] + 2, 2 * x.shape[3] + 2), np.int32)
    for i, j in itertools.product(range(4), range(4)):
        product = np.tensordot(w[:, :, i, j].astype(np.int32), x[0].astype(np.int32), (0, 0))
        sums[:, i : i + 2 * h : 2, j : j + 2 * wide : 2] += product
    sums = sums[:, 1:-1, 1:-1] + np.reshape(bias, (-1, 1, 1))
    return numerics.requantize(sums, numerics.scale_bits(scale), 0, -128, 127)[None]
