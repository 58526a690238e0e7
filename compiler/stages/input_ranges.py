"""Real values that the model's float inputs can represent once they are quantised."""

from __future__ import annotations

import numpy as np

from compiler.graph import Graph
from compiler.tensor import EIGHT_BIT


def input_ranges(graph: Graph) -> dict[str, tuple[float, float]]:
    """(lowest, highest) of every float input that nothing but one 8-bit QuantizeLinear reads, by name. Of a graph as
    imported: the front end may move the QuantizeLinear."""
    ranges: dict[str, tuple[float, float]] = {}
    readers = graph.consumers()
    for name in graph.inputs:
        if len(readers.get(name, [])) != 1:
            continue
        node = readers[name][0]
        if node.op != "QuantizeLinear" or node.inputs[0] != name:
            continue
        scale = graph.const(node.inputs[1])
        zero = graph.const(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
        dtype = graph.tensor(node.outputs[0]).dtype
        if scale is None or scale.size != 1 or dtype not in EIGHT_BIT:
            continue
        step, zero_point = float(scale.reshape(-1)[0]), 0 if zero is None else int(zero.reshape(-1)[0])
        limits = np.iinfo(dtype)
        ranges[name] = step * (int(limits.min) - zero_point), step * (int(limits.max) - zero_point)
    return ranges
