"""Golden cases of emission: instructions and tile sizes of each kind of layer, and of several layers together."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.npu.golden import golden
from tests.unit.compiler.npu.net import Net
from tilewright.compiler.graph.graph import Graph
from tilewright.isa.config import PRESETS

TINY = PRESETS["tiny"]
EMISSION = ("schedule", "emit")


@golden(*EMISSION)
def conv() -> Graph:
    """A convolution in one tile has nothing to overlap; LOAD fills the padding."""
    net = Net()
    return net.done(net.conv(net.plane(8, 4), 4, kernel=3))


@golden(*EMISSION, config=TINY.with_(name="cramped", act_rows=128))
def conv_double_buffered() -> Graph:
    """A convolution in two bands of rows loads the second while it computes the first."""
    net = Net()
    return net.done(net.conv(net.plane(8, 8), 4))


@golden(*EMISSION)
def conv_add_table() -> Graph:
    """An Add and a table run in the pass over the accumulators."""
    net = Net()
    y = net.conv(net.plane(4, 4), 4)
    return net.done(net.table(net.add(y, net.plane(4, 4))))


@golden(*EMISSION)
def conv_transpose() -> Graph:
    """A transposed convolution of stride 2 has four phases, each of which writes every second row and column."""
    net = Net()
    x = net.plane(4, 3)
    w = net.weights((4, 4, 3, 3), 1, 1)
    return net.done(net.finish(
        "QConvTranspose", [x, w], (1, 4, 6, 6), np.int8, kernel=[3, 3], strides=[2, 2], dilations=[1, 1],
        pads=[1, 1, 0, 0], output_padding=[0, 0], group=1, out_min=-128, out_max=127,
    ))  # fmt: skip


@golden(*EMISSION)
def product_of_activations() -> Graph:
    """A product of two activations gets its weights at run time, and products for their zero point."""
    net = Net()
    a, b = net.input((4, 6), np.int8), net.input((6, 4), np.int8)
    return net.done(net.finish("QMatMul", [a, b], (4, 4), np.int8, out_min=-128, out_max=127))


@golden(*EMISSION)
def depthwise() -> Graph:
    """A depthwise convolution runs in the array's window mode."""
    net = Net()
    return net.done(net.conv(net.plane(8, 8), 8, kernel=3, group=8))


@golden(*EMISSION)
def depthwise_strided() -> Graph:
    """A depthwise convolution of stride 2 has a pass for the taps of each parity."""
    net = Net()
    return net.done(net.conv(net.plane(4, 8), 4, kernel=3, stride=2, group=4))


@golden(*EMISSION)
def elementwise() -> Graph:
    """Add, Mul and a table run on VECTOR alone."""
    net = Net()
    a, b = net.plane(4, 4), net.plane(4, 4)
    product = net.finish("QMul", [a, b], (1, 4, 4, 4), np.int8, out_min=-128, out_max=127, zero_point_after=True)
    return net.done(net.add(a, b), product, net.table(a))


@golden(*EMISSION)
def max_pool() -> Graph:
    net = Net()
    x = net.plane(4, 6)
    return net.done(net.finish(
        "QMaxPool", [x], (1, 4, 3, 3), np.int8, quant=net.graph.tensor(x).quant, kernel=[3, 3], strides=[2, 2],
        dilations=[1, 1], pads=[1, 1, 0, 0],
    ))  # fmt: skip


@golden(*EMISSION)
def mean() -> Graph:
    net = Net()
    return net.done(net.finish(
        "QGlobalAveragePool", [net.plane(8, 5)], (1, 8, 1, 1), np.int8, keepdims=1, out_min=-128, out_max=127
    ))  # fmt: skip


@golden("schedule", "allocate", "emit")
def resident() -> Graph:
    """The tensor between two layers stays in ACT: neither stored nor loaded, its border of padding filled once."""
    net = Net()
    return net.done(net.conv(net.conv(net.plane(4, 4), 4), 4, kernel=3))


@golden("schedule", "allocate", "emit", config=TINY.with_(name="cramped", act_rows=512, vector_passes=1))
def fused() -> Graph:
    """The tensor between two layers is too large for ACT: they run band by band, and it never reaches memory."""
    net = Net()
    return net.done(net.conv(net.conv(net.plane(4, 12), 16), 4))


@golden("emit", config=TINY.with_(name="one_queue", vector_queue=0))
def one_queue() -> Graph:
    """GEMM and VECTOR in one queue have the same instructions and semaphores as with two."""
    net = Net()
    return net.done(net.conv(net.plane(4, 4), 4))
