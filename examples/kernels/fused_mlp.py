"""A multilayer perceptron that never leaves the chip: y = product(table[product(x, up)], down), int8 [rows, channels].

The hidden activations of some rows are a tile of ACT between the two products; DRAM sees x, the weights and y only.
Blocks of the hidden channels come one after the other, and their products add up in the same sums. Each is made before
the array goes on with the one before: engines work in order, so the order of calls decides who waits.
"""

import numpy as np

from tilewright import kernel as tk
from tilewright.isa import numerics


@tk.kernel
def mlp(k, x, *, up, down, table, scale=1 / 1024, rows=32, hidden=4):
    first, second, params = k.weights(up), k.weights(down), k.params(0, scale)
    activation = k.table(table)
    y, sums = k.tensor((x.rows, len(down))), None

    def hidden_parts():
        for part in tk.chunks(x.rows, rows):
            tile = k.load(x.at(part))
            for some in tk.chunks(len(first.outputs), hidden):
                yield part, some, k.requantise(k.matmul(tile, first.at(some)), params, table=activation)

    for part, some, middle in tk.ahead(hidden_parts()):
        sums = k.matmul(middle, second.at(inputs=some), into=sums)
        if some.stop == len(first.outputs):
            k.requantise(sums, params, into=y.at(part))
            sums = None
    return y


@mlp.reference
def reference(x, up, down, table, scale):
    def layer(values, w):
        sums = values.astype(np.int32) @ w.astype(np.int32).T
        return numerics.requantize(sums, numerics.scale_bits(scale), 0, -128, 127)

    return layer(np.asarray(table, np.int8)[layer(x, up).astype(int) + 128], down)
