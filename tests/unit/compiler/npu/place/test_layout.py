"""Layouts: the one that every chain works in."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.place.layout import Layouts, choose_layouts
from tilewright.compiler.npu.place.place import place_nodes
from tilewright.compiler.npu.place.tails import fuse_tails
from tilewright.isa.config import PRESETS
from tilewright.isa.program import Layout

TINY = PRESETS["tiny"]
FIRST, LAST = Layout.CHANNELS_FIRST, Layout.CHANNELS_LAST


def layouts_of(net: Net, *outputs: str) -> Layouts:
    """Returns the layouts of a network with these outputs."""
    wiring = Wiring.of(net.done(*outputs))
    return choose_layouts(wiring, fuse_tails(wiring, place_nodes(wiring, TINY)), TINY.block_in)


def test_by_op() -> None:
    net = Net()
    a = net.conv(net.plane(4, 4), 4)
    b = net.product(net.input((3, 4), np.int8), 8)
    assert layouts_of(net, a, b).chosen == {a: FIRST, b: LAST}


def test_elementwise_follows_its_operand() -> None:
    """An Add of rank 3 works in the layout in which its operand was made."""
    net = Net()
    a = net.product(net.input((1, 3, 4), np.int8), 8)
    b = net.add(net.add(a, net.input((1, 3, 8), np.int8)), net.input((1, 3, 8), np.int8))
    c = net.reshape(net.conv(net.plane(4, 2), 4), 1, 4, 4)
    d = net.add(c, net.input((1, 4, 4), np.int8))
    chosen = layouts_of(net, b, d).chosen
    assert (chosen[b], chosen[d]) == (LAST, FIRST)


def test_concatenation_follows_its_largest_operand() -> None:
    """A concatenation of rank 3 has rows of channels behind a product, and planes of one line behind a convolution."""
    net = Net()
    a = net.concat(1, net.input((1, 1, 8), np.int8), net.product(net.input((1, 3, 4), np.int8), 8))
    b = net.concat(1, net.reshape(net.conv(net.plane(4, 2), 16), 1, 16, 4), net.input((1, 3, 4), np.int8))
    chosen = layouts_of(net, net.table(a), net.table(b)).chosen
    assert (chosen[a], chosen[b]) == (LAST, FIRST)


def test_by_rank_where_nothing_says_more() -> None:
    net = Net()
    a = net.table(net.input((1, 4, 2, 2), np.int8))
    b = net.table(net.input((1, 4, 2), np.int8))
    assert layouts_of(net, a, b).chosen == {a: FIRST, b: LAST}


def test_made_and_found() -> None:
    """The chain's last tensor is blocked, tensors inside it are not; aliases are found through moves."""
    net = Net()
    a = net.conv(net.plane(4, 4), 8)
    b = net.table(a)
    c = net.reshape(b, 1, 8, 16)
    layouts = layouts_of(net, net.transpose(c, 0, 2, 1))
    assert list(layouts.blocked) == [b] and layouts.find(a) is None and layouts.find("x0") is None
    made, alias = layouts.find(b), layouts.find(c)
    assert made is not None and alias is not None
    assert (made.view.buffer, made.alias) == (f"{b}@c1", False)
    assert (alias.view.buffer, alias.alias, alias.view.h, alias.view.w) == (f"{b}@c1", True, 1, 16)
