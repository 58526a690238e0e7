"""Maximum over 3x3 windows with stride 2 and padding: int8 [1, C, H, W].

Padding is the lowest int8, which never wins. VECTOR reduces a window in one step per value, so this is bound by VECTOR.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tilewright import kernel as tk


@tk.kernel
def pooling(k, x, *, rows=8):
    height, width = (x.rows + 1) // 2, (x.columns + 1) // 2
    y = k.tensor((1, x.channels, height, width))
    for block in range(x.blocks):
        for part in tk.chunks(height, rows):
            wanted = x.at(range(2 * part.start - 1, 2 * part.stop), range(-1, 2 * width), block)
            k.maximum(k.load(wanted, pad=-128), 3, stride=2, into=y.at(part, blocks=block))
    return y


@pooling.reference
def reference(x):
    h, w = x.shape[2:]
    padded = np.pad(x[0], ((0, 0), (1, 1 - h % 2 + 1), (1, 1 - w % 2 + 1)), constant_values=-128)
    found = sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2].max((3, 4))
    return found[None, :, : (h + 1) // 2, : (w + 1) // 2]
