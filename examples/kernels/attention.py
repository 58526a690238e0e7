"""A head of attention: y = softmax(q @ k.T) @ v, int8 [rows, channels], on the row unit.

Keys and values are activations: WGT loads them from DRAM, where rows in blocks of lanes are tiles already. The values
come transposed, [channels, keys], as a projection can make them. Scores and probabilities never leave the chip.
"""

import numpy as np

from tilewright import kernel as tk
from tilewright.isa import numerics


@tk.kernel
def attention(k, q, keys, values, *, scales=(1 / 2048, 1 / 128), step=0.05, rows=16):
    scores, mixed = k.weights_from(keys), k.weights_from(values)
    first, second = (k.params(0, scale) for scale in scales)
    exponentials, y = k.exponentials(step, 127.0), k.tensor((q.rows, values.rows))

    def probabilities():
        for part in tk.chunks(q.rows, rows):
            found = k.requantise(k.matmul(k.load(q.at(part)), scores), first)
            yield part, k.softmax(found, keys.rows, exponentials, zero_point=0)

    for part, found in tk.ahead(probabilities()):
        k.requantise(k.matmul(found, mixed), second, into=y.at(part))
    return y


@attention.reference
def reference(q, keys, values, scales, step):
    def product(a, b, scale):
        return numerics.requantize(a.astype(np.int32) @ b.T, numerics.scale_bits(scale), 0, -128, 127)

    found = tk.Exponentials(step, 127.0).of(product(q, keys.astype(np.int32), scales[0]), zero_point=0)
    return product(found, values.astype(np.int32), scales[1])
