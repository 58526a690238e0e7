"""Maximum over 5x5 windows with stride 1, as the pyramids of detectors have it: int8 [1, C, H, W].

A maximum of maxima: five rows first, then five columns, 10 steps of VECTOR for each value where a window takes 25.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tilewright import kernel as tk


@tk.kernel
def pooling(k, x, *, rows=10):
    y = k.tensor(x.shape)
    for block in range(x.blocks):
        for part in tk.chunks(x.rows, rows):
            wanted = x.at(range(part.start - 2, part.stop + 2), range(-2, x.columns + 2), block)
            columns = k.maximum(k.load(wanted, pad=-128), (5, 1))
            k.maximum(columns, (1, 5), into=y.at(part, blocks=block))
    return y


@pooling.reference
def reference(x):
    padded = np.pad(x[0], ((0, 0), (2, 2), (2, 2)), constant_values=-128)
    return sliding_window_view(padded, (5, 5), (1, 2)).max((3, 4))[None]
