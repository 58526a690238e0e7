"""Tables go in front of the data movement they stand behind, where something can apply them in its own pass."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.passes.moves.raise_tables import raise_tables


def test_above_several_moves() -> None:
    net = Net()
    a = net.product(net.input((3, 8), np.int8), 8)
    y = net.table(net.transpose(net.reshape(a, 1, 3, 2, 4), 0, 2, 1, 3))
    graph = net.done(y)
    raise_tables(graph)
    graph.verify("raise_tables")
    assert [n.op for n in graph] == ["QMatMul", "QLut", "Reshape", "Transpose"]
    assert graph.outputs == [y] and graph.nodes[-1].outputs == [y]
    assert graph.tensor(graph.nodes[1].outputs[0]).shape == (3, 8)


def test_not_where_the_moved_tensor_is_read_twice() -> None:
    net = Net()
    moved = net.reshape(net.product(net.input((3, 8), np.int8), 8), 1, 3, 2, 4)
    graph = net.done(net.table(moved), net.transpose(moved, 0, 2, 1, 3))
    before = str(graph)
    raise_tables(graph)
    assert str(graph) == before


def test_not_where_nothing_could_apply_it() -> None:
    """A table stays behind a graph input, and behind another table."""
    net = Net()
    a = net.table(net.reshape(net.input((3, 8), np.int8), 24))
    b = net.table(net.reshape(net.table(net.input((3, 8), np.int8)), 24))
    graph = net.done(a, b)
    before = str(graph)
    raise_tables(graph)
    assert str(graph) == before


def masked(net: Net, mask: tuple[int, ...], *shape: int) -> str:
    """Adds a product of heads [1, 2, 3, 4, 8], reshaped, and a mask."""
    heads = net.product(net.input((1, 2, 3, 4, 5), np.int8), net.input((1, 2, 1, 5, 8), np.int8))
    return net.add(net.reshape(heads, *shape), net.softmax(net.input(mask, np.int8)))


def test_a_mask_of_all_heads_above_their_groups() -> None:
    net = Net()
    y = masked(net, (1, 1, 4, 8), 1, 6, 4, 8)
    graph = net.done(y)
    raise_tables(graph)
    graph.verify("raise_tables")
    assert [n.op for n in graph] == ["QMatMul", "QSoftmax", "QAdd", "Reshape"]
    assert graph.tensor(graph.nodes[2].outputs[0]).shape == (1, 2, 3, 4, 8) and graph.outputs == [y]


def test_not_a_mask_of_each_head_or_of_other_rows() -> None:
    net = Net()
    graph = net.done(masked(net, (1, 6, 4, 8), 1, 6, 4, 8), masked(net, (1, 1, 1, 8), 1, 1, 24, 8))
    before = str(graph)
    raise_tables(graph)
    assert str(graph) == before
