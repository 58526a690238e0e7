"""Tails: the Adds and tables that run in the pass of the node before them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.graph.ops.elementwise import IDENTITY_TABLE
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.place.place import place_nodes
from tilewright.compiler.npu.place.tails import Chain, WorkOrder, fuse_tails, verify_work
from tilewright.isa.config import PRESETS


def work_of(graph: Graph, *, fuse: bool = True) -> WorkOrder:
    """Returns the verified order of work of a graph."""
    wiring = Wiring.of(graph)
    placement = place_nodes(wiring, PRESETS["tiny"])
    work = fuse_tails(wiring, placement, fuse=fuse)
    verify_work(work, wiring, placement)
    return work


def names(work: WorkOrder) -> list[list[str]]:
    """Returns the first outputs of each chain's nodes; that of a CPU node has a star."""
    return [
        [node.outputs[0] for node in piece.nodes] if isinstance(piece, Chain) else ["*" + piece.outputs[0]]
        for piece in work
    ]


def test_later_convolution_takes_the_add() -> None:
    net = Net()
    x = net.plane(4, 4)
    a, b = net.conv(x, 4), net.conv(x, 4)
    c = net.add(a, b)
    assert names(work_of(net.done(c))) == [[a], [b, c]]


def test_one_add_and_one_table() -> None:
    net = Net()
    a = net.conv(net.plane(4, 4), 4)
    b = net.add(a, net.plane(4, 4))
    c = net.add(b, net.plane(4, 4))
    d = net.table(net.conv(c, 4))
    e = net.table(d)
    chains = names(work_of(net.done(e)))
    assert chains[:2] == [[a, b], [c]]
    assert chains[2][-1] == d and chains[3] == [e]


def test_an_add_with_a_table_keeps_it() -> None:
    """The last heads choose first: the Add takes the table, and then is no tail itself."""
    net = Net()
    a = net.conv(net.plane(4, 4), 4)
    b = net.add(a, net.plane(4, 4))
    c = net.table(b)
    assert names(work_of(net.done(c))) == [[a], [b, c]]


def test_chain_runs_where_its_tail_stands() -> None:
    """The Add's other operand is made after the convolution, and exists when the chain runs."""
    net = Net()
    a = net.conv(net.plane(4, 4), 4)
    b = net.softmax(net.plane(4, 4))
    c = net.add(a, b)
    assert names(work_of(net.done(c))) == [["*" + b], [a, c]]


def test_nothing_joins_what_others_read() -> None:
    net = Net()
    a = net.conv(net.plane(4, 4), 4)
    b = net.table(a)
    graph = net.done(net.conv(a, 4), b)
    assert [a] in names(work_of(graph)) and [b] in names(work_of(graph))
    net = Net()
    a = net.conv(net.plane(4, 4), 4)
    assert names(work_of(net.done(net.table(a), a)))[0] == [a]  # an output of the model


@pytest.mark.parametrize("first", [False, True])
def test_an_operand_that_is_repeated_does_not_join(first: bool) -> None:
    """Planes of an operand are not repeated, but see `test_a_mask_of_all_heads_joins`."""
    net = Net()
    a = net.conv(net.plane(4, 4), 4)
    row = net.input((1, 4, 1, 4), np.int8)
    b = net.finish("QAdd", [row, a] if first else [a, row], (1, 4, 4, 4), np.int8, out_min=-128, out_max=127)
    assert names(work_of(net.done(b))) == [[a], [b]]


@pytest.mark.parametrize("other, joins", [((1, 5, 8), True), ((1, 1, 8), True), ((3, 5, 1), False)])
def test_a_mask_of_all_heads_joins(other: tuple[int, ...], joins: bool) -> None:
    """Images and rows are repeated, channels are not; a table of the identity is no pass."""
    net = Net()
    a = net.product(net.input((3, 5, 4), np.int8), 8)
    b = net.finish("QLut", [a], (3, 5, 8), np.int8, table=IDENTITY_TABLE)
    c = net.add(b, net.input(other, np.int8))
    assert names(work_of(net.done(c))) == ([[a, b, c]] if joins else [[a, b], ["*" + c]])


def test_add_of_a_value_with_itself() -> None:
    net = Net()
    a = net.conv(net.plane(4, 4), 4)
    b = net.add(a, a)
    assert names(work_of(net.done(b))) == [[a], [b]]


def test_pool_takes_a_table_but_no_add() -> None:
    net = Net()
    x = net.plane(4, 4)
    quant = net.graph.tensor(x).quant
    window = {"kernel": [2, 2], "strides": [2, 2], "dilations": [1, 1], "pads": [0] * 4}
    a = net.finish("QMaxPool", [x], (1, 4, 2, 2), np.int8, quant=quant, **window)
    b = net.table(a)
    c = net.finish("QMaxPool", [x], (1, 4, 2, 2), np.int8, quant=quant, **window)
    d = net.add(c, b)
    assert names(work_of(net.done(d))) == [[a, b], [c], [d]]


def test_switched_off() -> None:
    net = Net()
    a = net.conv(net.plane(4, 4), 4)
    b = net.table(a)
    assert names(work_of(net.done(b), fuse=False)) == [[a], [b]]


def test_moves_are_left_out() -> None:
    net = Net()
    a = net.conv(net.plane(4, 4), 4)
    graph = net.done(net.reshape(a, 1, 64))
    assert names(work_of(graph)) == [[a]]


def test_verify() -> None:
    net = Net()
    net.done(net.conv(net.plane(4, 4), 4))
    wiring = Wiring.of(net.graph)
    placement = place_nodes(wiring, PRESETS["tiny"])
    for wrong, times in (([], 0), ([Chain(net.graph.nodes[0])] * 2, 2)):
        with pytest.raises(CompileError, match=f"is done {times} times"):
            verify_work(wrong, wiring, placement)
