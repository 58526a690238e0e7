"""An op of your own in an ONNX model: com.me::Pyramid(x, w), the sum of 3x3 convolutions with a dilation each.

`tilewright run MODEL --kernels examples/kernels/custom_op.py --check`. `runs` gets a node's attributes, constants and
steps (between DequantizeLinear and QuantizeLinear the node is one of int8), and returns the kernel's constants.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tilewright import kernel as tk
from tilewright.isa import numerics


@tk.kernel
def pyramid(k, x, *, w, dilations=(1, 2, 3), zero_points=(0, 0), scale=1 / 1024, rows=4):
    levels = [k.weights(own, pad=d, dilation=d) for own, d in zip(w, dilations, strict=True)]
    y, params = k.tensor((1, w.shape[1], x.rows, x.columns)), k.params(-zero_points[0] * w.sum((0, 2, 3, 4)), scale)
    for part in tk.chunks(x.rows, rows):
        sums = None
        for own in levels:
            tile = k.load(x.at(own.rows(part), own.columns(range(x.columns))), pad=zero_points[0])
            sums = k.matmul(tile, own, into=sums)
        k.requantise(sums, params, zero_point=zero_points[1], into=y.at(part))
    return y


@pyramid.runs("com.me::Pyramid")
def constants(node):
    (x, w), y = node.inputs, node.output
    steps = {"scale": x.scale * w.scale / y.scale, "zero_points": (x.zero_point, y.zero_point)}
    return {"w": w.values, "dilations": node.attributes["dilations"], **steps}


@pyramid.reference
def reference(x, w, dilations, zero_points, scale):
    sums, values = np.int32(0), x[0].astype(np.int32) - zero_points[0]
    for own, d in zip(w.astype(np.int32), dilations, strict=True):
        windows = sliding_window_view(np.pad(values, ((0, 0), (d, d), (d, d))), (2 * d + 1, 2 * d + 1), (1, 2))
        sums = sums + np.tensordot(own, windows[..., ::d, ::d], ((1, 2, 3), (0, 3, 4)))
    return numerics.requantize(sums, numerics.scale_bits(scale), zero_points[1], -128, 127)[None]
