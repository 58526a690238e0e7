"""Replaces constants dequantised with a negative scale by constants with a positive one.

With all bits inverted an integer q is -1 - q, so (~q - ~z) * -s = (q - z) * s, exactly and without leaving the type;
int32, which has no zero point in integer products, is negated. The machine can then compute products of negative
scales.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Quant
from tilewright.compiler.graph.tensor import EIGHT_BIT, NARROW
from tilewright.compiler.passes.annotate import quant_of


def positive_scales(graph: Graph) -> None:
    for node in graph:
        quant = quant_of(graph, node) if node.op == "DequantizeLinear" else None
        tensor = graph.tensor(node.inputs[0])
        if quant is None or tensor.data is None or not np.any(quant.scale < 0):
            continue
        shape = [1] * len(tensor.shape)
        if quant.axis is not None:
            shape[quant.axis] = -1
        negative = quant.scale < 0
        where = negative.reshape(shape) if quant.axis is not None else negative
        if tensor.dtype in (*EIGHT_BIT, *NARROW):
            data = np.where(where, -1 - tensor.data.astype(np.int32), tensor.data.astype(np.int32))
            zero = np.where(negative, -1 - quant.zero_point, quant.zero_point)
            if tensor.dtype.name.startswith("u"):
                size = 1 << int(tensor.dtype.name.removeprefix("uint"))
                data, zero = np.where(where, data + size, data), np.where(negative, zero + size, zero)
        elif tensor.dtype == np.int32 and not np.any(quant.zero_point) and tensor.data.min(initial=0) > -(2**31):
            data, zero = np.where(where, -tensor.data, tensor.data), quant.zero_point
        else:
            continue
        found = Quant.of(np.abs(quant.scale), zero, quant.axis)
        kind = graph.tensor(node.inputs[2]).dtype
        node.inputs = [
            graph.constant(tensor.name, data.astype(tensor.dtype), found),
            graph.constant(node.inputs[1], found.scale),
            graph.constant(node.inputs[2], found.zero_point.astype(kind)),
        ]
