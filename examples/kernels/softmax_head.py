"""The head of a classifier that stays on the chip: y = softmax(x @ w.T), int8 [rows, channels], on the row unit.

The logits of some rows are a tile of ACT. ROW finds the maximum of each row, adds up exponentials from a table of 256
words, and divides; lanes behind the last class do not count.
"""

import numpy as np

from tilewright import kernel as tk
from tilewright.isa import numerics


@tk.kernel
def classify(k, x, *, w, bias=0, scale=1 / 512, step=0.1, rows=16):
    weights, params, exponentials = k.weights(w), k.params(bias, scale), k.exponentials(step)
    y = k.tensor((x.rows, len(w)))
    for part in tk.chunks(x.rows, rows):
        logits = k.requantise(k.matmul(k.load(x.at(part)), weights), params)
        k.softmax(logits, y.channels, exponentials, into=y.at(part))
    return y


@classify.reference
def reference(x, w, bias, scale, step):
    sums = x.astype(np.int32) @ w.astype(np.int32).T + bias
    logits = numerics.requantize(sums, numerics.scale_bits(scale), 0, -128, 127)
    return tk.Exponentials(step, 255.0).of(logits)
