"""Equal constants become one."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.passes.fold.eliminate import merge_constants


def test_constants_are_compared_to_their_ends() -> None:
    """Bytes count: zeros of both signs are kept, and arrays that differ in their last element."""
    values = np.zeros(1000, np.float32)
    last, negative = values.copy(), -values
    last[-1] = 1
    graph = Graph("constants", 28)
    names = [graph.constant("c", data) for data in (values, last, negative, last.copy(), values.copy())]
    graph.nodes = [Node("Concat", names, ["y"], {"axis": 0}, "joined")]
    merge_constants(graph)
    first, second, third, fourth, fifth = graph.nodes[0].inputs
    assert (first, second) == (fifth, fourth) and len({first, second, third}) == 3
