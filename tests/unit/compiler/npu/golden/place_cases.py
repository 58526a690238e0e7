"""Golden cases of placement: the side on which nodes run, their chains, and the conversions between."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.npu.golden import golden
from tests.unit.compiler.npu.net import Net
from tilewright.compiler.graph.graph import Graph

PLACING = ("place", "tails", "layouts", "tasks")


@golden(*PLACING)
def branches_meet() -> Graph:
    """Two convolutions meet in an Add, and the later one takes it."""
    net = Net()
    x = net.plane(4, 4)
    return net.done(net.add(net.conv(x, 4), net.conv(x, 4, kernel=3)))


@golden(*PLACING)
def head_of_network() -> Graph:
    """A first convolution with three channels gets kernel columns as channels on the CPU."""
    net = Net()
    return net.done(net.conv(net.plane(3, 8), 8, kernel=3, stride=2))


@golden(*PLACING)
def flat_then_product() -> Graph:
    """A plane of one pixel is read as a row of a matrix; a larger one is converted."""
    net = Net()
    row = net.reshape(net.conv(net.plane(4, 1), 8), 1, 8)
    moved = net.reshape(net.conv(net.plane(4, 2), 8), 1, 32)
    return net.done(net.product(row, 4), net.product(moved, 4))


@golden(*PLACING)
def tokens() -> Graph:
    """Pixels become rows of a matrix product: Reshape and Transpose cost nothing, in both directions."""
    net = Net()
    y = net.conv(net.plane(4, 4), 8)
    rows = net.transpose(net.reshape(y, 1, 8, 16), 0, 2, 1)
    back = net.reshape(net.transpose(net.product(rows, 8), 0, 2, 1), 1, 8, 4, 4)
    return net.done(net.conv(back, 4))


@golden(*PLACING)
def island() -> Graph:
    """A table between CPU nodes runs on the CPU; one behind a convolution does not."""
    net = Net()
    x = net.plane(4, 4)
    return net.done(net.softmax(net.table(net.softmax(x))), net.softmax(net.table(net.conv(x, 4))))


@golden(*PLACING)
def broadcast() -> Graph:
    """A constant of one value per channel, and a tensor of one pixel, are broadcast."""
    net = Net()
    y = net.conv(net.plane(4, 4), 4)
    channels = net.graph.constant("c", np.arange(1, 5, dtype=np.int8).reshape(1, 4, 1, 1), net.quant(np.int8))
    y = net.finish("QMul", [y, channels], (1, 4, 4, 4), np.int8, out_min=-128, out_max=127)
    pixel = net.input((1, 4, 1, 1), np.int8)
    return net.done(net.finish("QMul", [pixel, y], (1, 4, 4, 4), np.int8, out_min=-128, out_max=127))


@golden(*PLACING)
def product_placed() -> Graph:
    """The second operand of a product of activations becomes weight tiles and parameters."""
    net = Net()
    return net.done(net.product(net.input((2, 4, 6), np.int8), net.input((2, 6, 4), np.int8)))
