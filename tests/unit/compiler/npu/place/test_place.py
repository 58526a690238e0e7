"""Placement: the nodes that run on the NPU, and the reasons of all others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.place.place import Placement, place_nodes
from tilewright.isa.config import PRESETS

TINY = PRESETS["tiny"]


def placed(graph: Graph, **chosen: object) -> Placement:
    """Returns the verified placement of a graph."""
    wiring = Wiring.of(graph)
    placement = place_nodes(wiring, TINY, **chosen)  # type: ignore[arg-type]
    placement.verify(wiring)
    return placement


def test_reasons() -> None:
    net = Net()
    y = net.conv(net.plane(4, 4), 4)
    z = net.softmax(y)
    placement = placed(net.done(z))
    assert placement.npu == {y}
    assert placement.reasons == {z: "the machine has no row unit"}


def test_reason_of_a_node_without_a_name() -> None:
    """A node without a name, which ONNX allows, is listed by its result."""
    net = Net()
    z = net.softmax(net.conv(net.plane(4, 4), 4))
    graph = net.done(z)
    for node in graph.nodes:
        node.name = ""
    assert placed(graph).reasons == {z: "the machine has no row unit"}


def test_switched_off_and_excluded() -> None:
    net = Net()
    a = net.conv(net.plane(4, 4), 4)
    b = net.conv(a, 4)
    graph = net.done(b)
    assert placed(graph, cpu_only=True).reasons == dict.fromkeys((a, b), "the NPU was switched off")
    placement = placed(graph, excluded={a: "too large"})
    assert placement.npu == {b} and placement.reasons == {a: "too large"}


def test_operands_must_follow_channels() -> None:
    net = Net()
    y = net.conv(net.plane(4, 4), 4)
    narrow = net.input((1, 1, 4, 4), np.int8)
    z = net.finish("QMul", [y, narrow], (1, 4, 4, 4), np.int8, out_min=-128, out_max=127)
    assert "does not follow channels" in placed(net.done(z)).reasons[z]


@pytest.mark.parametrize("shape, follows", [((1, 1, 1, 8), True), ((1, 1, 4, 8), True), ((1, 1, 4, 1), False)])
def test_the_mask_of_attention_follows_the_last_axis(shape: tuple[int, ...], follows: bool) -> None:
    """Scores are [1, heads, queries, keys]; keys are channels for the Softmax behind."""
    net = Net()
    scores = net.product(net.input((1, 2, 4, 16), np.int8), 8)
    z = net.finish("QAdd", [scores, net.input(shape, np.int8)], (1, 2, 4, 8), np.int8, out_min=-128, out_max=127)
    assert placed(net.done(net.product(z, 4))).npu.issuperset({z}) == follows


@pytest.mark.parametrize("rows", [1, 2])
def test_single_row_times_an_activation_goes_to_the_cpu(rows: int) -> None:
    """The CPU would pack every byte of the second operand for a single product."""
    net = Net()
    x, w = net.input((2, rows, 16), np.int8), net.input((2, 16, 8), np.int8)
    y = net.finish("QMatMul", [x, w], (2, rows, 8), np.int8, out_min=-128, out_max=127)
    found = placed(net.done(y))
    assert found.on_npu(net.graph.nodes[0]) == (rows > 1)
    assert rows > 1 or found.reasons[y].startswith("of a single row")


def test_island_goes_to_the_cpu() -> None:
    net = Net()
    z = net.table(net.softmax(net.plane(4, 4)))
    assert placed(net.done(net.softmax(z))).reasons[z] == "its neighbours run on the CPU"


def test_alone_in_the_graph_stays_on_the_npu() -> None:
    net = Net()
    z = net.table(net.plane(4, 4))
    assert placed(net.done(z)).npu == {z}


def test_moves_lead_to_the_npu() -> None:
    """A Reshape between a convolution and a table does not make an island of the table."""
    net = Net()
    z = net.table(net.reshape(net.conv(net.plane(4, 4), 4), 1, 4, 16))
    assert z in placed(net.done(net.softmax(z))).npu


def test_verify() -> None:
    net = Net()
    net.done(net.softmax(net.plane(4, 4)))
    wiring = Wiring.of(net.graph)
    with pytest.raises(CompileError, match="on the CPU without a reason"):
        Placement().verify(wiring)
    with pytest.raises(CompileError, match="no quantised node makes x0"):
        Placement({"x0"}).verify(wiring)


def test_table_behind_a_cpu_node_stays_there() -> None:
    """The CPU looks up values it makes for an NPU layer, unless another node reads them too."""
    net = Net()
    z = net.table(net.softmax(net.input((3, 4), np.int8)))
    graph = net.done(net.product(z, 4))
    assert placed(graph).reasons[z] == "the CPU, which makes its operand, looks it up"
    net = Net()
    made = net.softmax(net.input((3, 4), np.int8))
    z = net.table(made)
    graph = net.done(net.product(z, 4), made)
    assert z in placed(graph).npu
