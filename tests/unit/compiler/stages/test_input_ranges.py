"""Real values that float inputs can represent."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.stages.input_ranges import input_ranges


def quantised_input(dtype: Any = np.int8, zero: int = 3, extra: bool = False) -> Graph:
    graph = Graph()
    graph.inputs = ["x"]
    graph.add(Tensor("x", (1, 3), np.dtype(np.float32)))
    s, z = graph.constant("s", np.array(0.5, np.float32)), graph.constant("z", np.array(zero, dtype))
    for name in ("q", "r")[: 2 if extra else 1]:
        graph.add(Tensor(name, (1, 3), np.dtype(dtype)))
        graph.nodes.append(Node("QuantizeLinear", ["x", s, z], [name]))
    return graph


def test_input_ranges() -> None:
    assert input_ranges(quantised_input()) == {"x": (-65.5, 62.0)}
    assert input_ranges(quantised_input(np.uint8, 0)) == {"x": (0.0, 127.5)}
    assert input_ranges(quantised_input(extra=True)) == {}
    assert input_ranges(Graph()) == {}


def test_parts_of_a_sum_whose_values_are_limited() -> None:
    """A mask of [1, 5] whose sum, less one, may be 0 to 4."""
    graph = Graph()
    graph.inputs = ["mask"]
    for name, shape in (("mask", (1, 5)), ("sum", (1,)), ("ends", (1,))):
        graph.add(Tensor(name, shape, np.dtype(np.int64)))
    axes, one = graph.constant("axes", np.array([1])), graph.constant("one", np.array([1]))
    graph.nodes += [Node("ReduceSum", ["mask", axes], ["sum"]), Node("Sub", ["sum", one], ["ends"])]
    assert input_ranges(graph) == {}
    graph.limits["ends"] = 0, 4
    assert input_ranges(graph) == {"mask": (1.0, 1.0)}
    graph.limits["ends"] = -5, 8
    assert input_ranges(graph) == {"mask": (0.0, 1.0)}
