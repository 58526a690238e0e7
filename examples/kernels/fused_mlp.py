"""A multilayer perceptron that never leaves the chip: y = product(table[product(x, up)], down), int8 [rows, channels].

The hidden activations of some rows are a tile of ACT between the two products; DRAM sees x, the weights and y only.
Blocks of the hidden channels come one after the other, and their products add up in the same sums.
"""

import numpy as np

from tilewright import kernel as tk
from tilewright.isa import numerics


@tk.kernel
def mlp(k, x, *, up, down, table, scale=1 / 1024, rows=32, hidden=4):
    first, second, params = k.weights(up), k.weights(down), k.params(0, scale)
    activation = k.table(table)
    y = k.tensor((x.rows, len(down)))
    for part in tk.chunks(x.rows, rows):
        tile, sums = k.load(x.at(rows=part)), None
        for some in tk.chunks(len(first.outputs), hidden):
            middle = k.requantise(k.matmul(tile, first.at(outputs=some)), params, table=activation)
            sums = k.matmul(middle, second.at(inputs=some), into=sums)
        k.requantise(sums, params, into=y.at(rows=part))
        del sums
    return y


@mlp.reference
def reference(x, up, down, table, scale):
    def layer(values, w):
        sums = values.astype(np.int32) @ w.astype(np.int32).T
        return numerics.requantize(sums, numerics.scale_bits(scale), 0, -128, 127)

    return layer(np.asarray(table, np.int8)[layer(x, up).astype(int) + 128], down)
