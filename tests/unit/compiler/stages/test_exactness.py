"""Tensors that may be off by a step."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.graph.ops.quantized_op import BEHIND
from tilewright.compiler.stages.exactness import inexact_tensors


def chain(*ops: str) -> Graph:
    """Ops one after the other on float tensors, the last one a QuantizeLinear."""
    graph = Graph()
    graph.inputs = ["x"]
    names = ["x", *(f"t{number}" for number in range(len(ops)))]
    for name, op in zip(names, ["", *ops], strict=True):
        graph.add(Tensor(name, (2,), np.dtype(np.int8 if op == "QuantizeLinear" else np.float32)))
    graph.nodes = [Node(op, [names[i]], [names[i + 1]]) for i, op in enumerate(ops)]
    graph.outputs = [names[-1]]
    return graph


def test_computed_floats_can_flip_a_rounding() -> None:
    text = "quantised from float Sigmoid: last-bit differences can flip it"
    assert inexact_tensors(chain("Sigmoid", "QuantizeLinear")) == {"t1": text}


def test_moved_and_selected_floats_cannot() -> None:
    assert inexact_tensors(chain("Reshape", "Relu", "QuantizeLinear")) == {}


def test_all_that_is_computed_is_named() -> None:
    assert "Exp, Sigmoid" in inexact_tensors(chain("Exp", "Sigmoid", "QuantizeLinear"))["t2"]


def test_reasons_of_nodes() -> None:
    net = Net()
    x = net.plane(4, 4)
    y = net.finish("QSoftmax", [x], (1, 4, 4, 4), np.int8, reason="of its own")
    assert inexact_tensors(net.done(y)) == {y: "of its own"}


def test_the_search_goes_on_behind_ops_that_select() -> None:
    assert "Exp" in inexact_tensors(chain("Exp", "Relu", "Reshape", "QuantizeLinear"))["t3"]


def test_a_reason_goes_on_to_the_first_tensor_of_the_model() -> None:
    """Quantised before it is moved: what the move writes is what the model has; a border of the model itself does not
    excuse what is behind it."""
    graph = chain("Sigmoid", "QuantizeLinear", "Reshape", "Transpose")
    assert inexact_tensors(graph).keys() == {"t1"}
    first = graph.unique("t0.int8")
    graph.nodes[1].outputs, graph.nodes[2].inputs = [first], [first]
    graph.add(Tensor(first, (2,), np.dtype(np.int8)))
    reasons = inexact_tensors(graph)
    assert reasons.keys() == {first, "t2"} and len(set(reasons.values())) == 1
    graph.nodes[2].op = "Sigmoid"
    assert BEHIND not in reasons["t2"] and BEHIND in inexact_tensors(graph)["t2"]
