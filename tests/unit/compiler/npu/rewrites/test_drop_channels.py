"""Channels that are constant or not read: what is proven, what is dropped, and that every byte stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.network.layer_cases.case import Case, lut, move
from tests.reference import quantized_ops
from tests.reference.pruned_networks import PrunedNetwork, extremes
from tilewright.api.source import ModelSource
from tilewright.compiler.graph.graph import DroppedChannels, Graph, Quant
from tilewright.compiler.graph.ops.elementwise import AddConstants
from tilewright.compiler.npu.rewrites.channel_links import Channels
from tilewright.compiler.npu.rewrites.channel_ranges import ChannelRanges
from tilewright.compiler.npu.rewrites.drop_channels import drop_channels
from tilewright.compiler.passes import run_passes
from tilewright.isa.config import PRESETS

BLOCK = 4  # of `tiny`
CHANNELS = 12
DEAD = 8  # of the channels, that do not depend on the input
SIZE = 5


class Net(Case):
    """A network whose tensors have the scale 1/4 and the zero point 3; weights have the scale 1/64."""

    def __init__(self, dtype: Any = np.int8, zero: int = 3) -> None:
        super().__init__(7)
        self.kind, self.zero = dtype, zero
        self.x = self.plane(3)

    def quant(self, dtype: Any) -> Quant:
        return Quant.of(np.float32(0.25), self.zero)

    def dtype(self) -> Any:
        return self.kind

    def plane(self, channels: int) -> str:
        return self.input((1, channels, SIZE, SIZE), self.kind)

    def conv(self, x: str, w: np.ndarray, bias: Any = None, pad: int = 0, scale: Any = 2.0**-6, **more: Any) -> str:
        """A convolution of stride 1 with weights [outputs, inputs, kernel, kernel] less their zero point `wz`."""
        n, _, h, columns = self.graph.tensor(x).shape
        zero, group = np.asarray(more.pop("wz", 0)), more.pop("group", 1)
        quant = Quant.of(np.float32(scale), zero, 0)
        weights = self.graph.constant("w", (w + zero.reshape(-1, *[1] * 3)).astype(more.pop("wtype", np.int8)), quant)
        inputs = [x, weights] + ([] if bias is None else [self.graph.constant("b", np.asarray(bias, np.int32))])
        k, o = w.shape[-1], len(w)
        shape = (n, o, h + 2 * pad - k + 1, columns + 2 * pad - k + 1)
        return self.finish("QConv", inputs, shape, self.kind, kernel=[k] * 2, pads=[pad] * 4, group=group, **more)

    def pruned(self, outputs: int = CHANNELS, dead: int = DEAD, bias: int = 640, **more: Any) -> str:
        """A convolution of the input, whose first filters are zeros: 640 steps of 1/64 are 10 of the result."""
        w = self.rng.integers(-60, 60, (outputs, 3, 1, 1))
        w[:dead] = 0
        return self.conv(self.x, w, np.full(outputs, bias), **more)

    def reader(self, x: str, kernel: int = 1, outputs: int = 5, **more: Any) -> str:
        """A convolution that reads all channels, as the result of the network."""
        w = self.rng.integers(1, 60, (outputs, self.graph.tensor(x).shape[1], kernel, kernel))
        self.graph.outputs.append(self.conv(x, w, **more))
        return self.graph.outputs[-1]

    def products(self, x: str) -> str:
        """A matrix product of rows, as the result of the network."""
        *rows, k = self.graph.tensor(x).shape
        w = self.graph.constant("w", self.rng.integers(1, 60, (k, 5)).astype(np.int8), Quant.of(np.float32(2.0**-6)))
        self.graph.outputs.append(self.finish("QMatMul", [x, w], (*rows, 5), self.kind))
        return self.graph.outputs[-1]


def checked(graph: Graph) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph, without the channels that need not be computed, and the tensors before of the last of many inputs.

    All ranges hold for all of these inputs, and the outputs have equal bytes before and after.
    """
    inputs = [graph.tensor(name) for name in graph.inputs]
    feeds = [
        {t.name: x for t, x in zip(inputs, arrays, strict=True)}
        for arrays in zip(*(extremes(t.shape, t.dtype, i) for i, t in enumerate(inputs)), strict=True)
    ]
    before = [quantized_ops.run(graph, feed) for feed in feeds]
    channels = Channels(graph)
    for name, (low, high) in ChannelRanges(channels).of.items():
        for values in before:
            rows = np.moveaxis(values[name], channels.axes[name], 0).reshape(len(low), -1)
            assert ((rows >= low[:, None]) & (rows <= high[:, None])).all(), name
    drop_channels(graph, PRESETS["tiny"])
    graph.prune()
    graph.verify()
    for feed, values in zip(feeds, before, strict=True):
        after = quantized_ops.run(graph, feed)
        for name in after.keys() & values.keys():
            np.testing.assert_array_equal(after[name], values[name], name)
    return graph, before[-1]


def widths(graph: Graph) -> list[int]:
    """The channels of the results of all convolutions."""
    return [graph.tensor(node.outputs[0]).shape[1] for node in graph.nodes if node.op == "QConv"]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("bias", [0, 640, -40000, 40000])
def test_constants_are_in_the_bias_of_the_reader(dtype: Any, bias: int) -> None:
    net = Net(dtype)
    net.reader(net.pruned(bias=bias))
    graph, before = checked(net.graph)
    assert widths(graph) == [CHANNELS - DEAD, 5]
    info = np.iinfo(dtype)
    assert np.unique(before["QConv.0"][:, :DEAD]) == np.clip(3 + bias // 64, info.min, info.max)
    constant = 17 if abs(bias) > 8192 else DEAD  # the others saturate, too
    products = SIZE * SIZE * np.array([3 * CHANNELS + 5 * CHANNELS, (3 + 5) * (CHANNELS - DEAD)])
    assert graph.dropped == DroppedChannels(constant, 0, CHANNELS + 5, *products)


@pytest.mark.parametrize(("bias", "value"), [(31, 3), (32, 3), (33, 4), (96, 5), (-32, 3), (-33, 2), (-96, 1)])
def test_ties(bias: int, value: int) -> None:
    """Half a step goes to the even neighbour, before the zero point is added."""
    net = Net()
    net.reader(net.pruned(bias=bias))
    graph, before = checked(net.graph)
    assert np.unique(before["QConv.0"][:, :DEAD]) == value
    assert widths(graph) == [CHANNELS - DEAD, 5]


@pytest.mark.parametrize(("bias", "left"), [(0, CHANNELS - DEAD), (31, CHANNELS - DEAD), (640, CHANNELS)])
def test_padding_must_see_the_same_value(bias: int, left: int) -> None:
    """A window over the border adds zero points there, so only a channel of the zero point may go."""
    net = Net()
    net.reader(net.pruned(bias=bias), 3, pad=1)
    assert widths(checked(net.graph)[0]) == [left, 5]


def test_without_padding_a_window_is_whole() -> None:
    net = Net()
    net.reader(net.pruned(), 3)
    assert widths(checked(net.graph)[0]) == [CHANNELS - DEAD, 5]


@pytest.mark.parametrize("scale", [2.0**-17, 2.0**-6])
def test_a_range_that_is_requantised_to_one_value(scale: float) -> None:
    """3 * 255 * 60 steps are less than half a step of the result if a step of the weights is 2^-17."""
    net = Net()
    scales = np.full(CHANNELS, 2.0**-6)
    scales[:DEAD] = scale
    net.reader(net.conv(net.x, net.rng.integers(-60, 60, (CHANNELS, 3, 1, 1)), scale=scales))
    assert widths(checked(net.graph)[0]) == [CHANNELS - DEAD if scale < 2.0**-6 else CHANNELS, 5]


@pytest.mark.parametrize(("steps", "constant"), [(-124, True), (-123.5, True), (-123, False)])
def test_a_clamp_that_no_input_leaves(steps: float, constant: bool) -> None:
    """One weight of 64 gives x - 3, 124 at most; half a step above the lower limit, 3, is rounded down to it."""
    net = Net()
    w, bias = net.rng.integers(-60, 60, (CHANNELS, 3, 1, 1)), np.zeros(CHANNELS)
    w[:DEAD], bias[:DEAD] = np.array([64, 0, 0]).reshape(1, 3, 1, 1), 64 * steps
    net.reader(net.conv(net.x, w, bias, out_min=3))
    assert widths(checked(net.graph)[0]) == [CHANNELS - DEAD if constant else CHANNELS, 5]


@pytest.mark.parametrize("wtype", [np.int8, np.uint8])
def test_weights_with_zero_points(wtype: Any) -> None:
    net = Net()
    zeros = net.rng.integers(20, 60, CHANNELS)
    w = net.rng.integers(-20, 60, (CHANNELS, 3, 1, 1))
    w[:DEAD] = 0
    scale = np.full(CHANNELS, 2.0**-6)
    x = net.conv(net.x, w, np.full(CHANNELS, 70), scale=scale, wz=zeros, wtype=wtype)
    net.reader(x, wz=np.full(5, 9), scale=np.full(5, 2.0**-6))
    assert widths(checked(net.graph)[0]) == [CHANNELS - DEAD, 5]


def test_one_output() -> None:
    net = Net()
    net.reader(net.pruned(), outputs=1)
    assert widths(checked(net.graph)[0]) == [CHANNELS - DEAD, 1]


def test_inputs_that_nobody_reads() -> None:
    net = Net()
    x = net.conv(net.x, net.rng.integers(-60, 60, (CHANNELS, 3, 1, 1)))
    w = net.rng.integers(1, 60, (5, CHANNELS, 3, 3))
    w[:, 1:10] = 0
    net.graph.outputs.append(net.conv(x, w, pad=1))
    graph, _ = checked(net.graph)
    assert widths(graph) == [BLOCK, 5]
    assert graph.dropped is not None
    assert (graph.dropped.constant, graph.dropped.unread) == (0, 8)


def test_sums_that_may_wrap_are_no_proof() -> None:
    """The bias is near the end of int32: a sum beyond it is a negative one."""
    net = Net()
    w = np.zeros((CHANNELS, 3, 1, 1), int)
    w[:, 0] = 1
    name = net.conv(net.x, w, np.full(CHANNELS, 2**31 - 10))
    ranges = ChannelRanges(Channels(net.graph))
    assert not ranges.constant(name).any()


@pytest.mark.parametrize(("scale", "constant"), [(0.0, True), (1e-39, False), (2.0**-100, True)])
def test_scales_that_are_no_normal_numbers(scale: float, constant: bool) -> None:
    net = Net()
    scales = np.full(CHANNELS, np.float32(scale))
    name = net.conv(net.x, net.rng.integers(-60, 60, (CHANNELS, 3, 1, 1)), scale=scales)
    assert ChannelRanges(Channels(net.graph)).constant(name).all() == constant


def test_a_bias_near_the_end_of_int32_takes_no_shares() -> None:
    net = Net()
    x = net.pruned(bias=640)
    net.reader(x, bias=np.full(5, 2**30 + 2**23), scale=2.0**-24)  # 64.5 steps and as much as the input adds
    assert widths(checked(net.graph)[0]) == [CHANNELS, 5]


def test_results_and_other_readers_keep_their_shape() -> None:
    net = Net()
    x = net.pruned()
    net.reader(x)
    net.graph.outputs.append(x)
    graph, _ = checked(net.graph)
    assert widths(graph) == [CHANNELS, 5]
    assert graph.dropped is None


def test_channels_go_by_blocks() -> None:
    """Nine of twelve channels are three blocks of four, as all are."""
    net = Net()
    net.reader(net.pruned(dead=3))
    graph, _ = checked(net.graph)
    assert widths(graph) == [CHANNELS, 5]
    net = Net()
    net.reader(net.pruned(dead=5))
    assert widths(checked(net.graph)[0]) == [8, 5]


def test_one_block_stays_of_a_network_that_is_constant() -> None:
    net = Net()
    net.reader(net.pruned(dead=CHANNELS))
    assert widths(checked(net.graph)[0]) == [BLOCK, 5]


def _depthwise(net: Net, x: str, copies: int = 1) -> str:
    c = net.graph.tensor(x).shape[1]
    return net.conv(x, net.rng.integers(1, 60, (c * copies, 1, 3, 3)), pad=0, group=c)


def _residual(net: Net, x: str) -> str:
    return net.finish("QAdd", [x, net.pruned()], net.graph.tensor(x).shape, net.kind)


def _added(net: Net, x: str) -> str:
    return net.finish(
        "QAdd", [x, net.pruned()], net.graph.tensor(x).shape, net.kind, constants=AddConstants(900, -700, 3, 10)
    )


def _row(net: Net, x: str, op: str) -> str:
    """A constant for each channel."""
    row = net.graph.constant("row", np.arange(CHANNELS, dtype=net.kind).reshape(1, -1, 1, 1), net.quant(net.kind))
    return net.finish(op, [row, x], net.graph.tensor(x).shape, net.kind)


def _concat(net: Net, x: str) -> str:
    table = bytes(net.rng.integers(0, 256, 256, np.uint8))
    shape = (1, 2 * CHANNELS, SIZE, SIZE)
    return net.finish("QConcat", [x, net.pruned()], shape, net.kind, axis=1, tables=(None, table))


def _pool(net: Net, x: str, op: str, **more: Any) -> str:
    size = SIZE - 2 + 2 * more.get("pads", (0,))[0]
    return net.finish(op, [x], (1, CHANNELS, size, size), net.kind, kernel=(3, 3), **more)


def _mean(net: Net, x: str, **more: Any) -> str:
    return net.finish("QGlobalAveragePool", [x], (1, CHANNELS, 1, 1), net.kind, **more)


def _take(net: Net, x: str) -> str:
    return net.finish("QTake", [x], (1, CHANNELS, 2, SIZE), net.kind, indices=(None, None, (0, 4), None))


def _transposed(net: Net, x: str) -> str:
    """A transposed convolution in the middle: of its own inputs only zero points may go."""
    w = net.rng.integers(-60, 60, (CHANNELS, CHANNELS, 2, 2))
    w[:, :DEAD] = 0
    weights = net.graph.constant("w", w.astype(np.int8), Quant.of(np.float32(2.0**-6)))
    shape = (1, CHANNELS, 2 * SIZE, 2 * SIZE)
    return net.finish("QConvTranspose", [x, weights], shape, net.kind, kernel=(2, 2), strides=(2, 2))


BETWEEN: dict[str, Callable[[Net, str], str]] = {
    "depthwise": _depthwise,
    "multiplied": lambda net, x: _depthwise(net, x, 2),
    "residual": _residual,
    "integer add": _added,
    "add of a row": lambda net, x: _row(net, x, "QAdd"),
    "product with a row": lambda net, x: _row(net, x, "QMul"),
    "table": lut,
    "concat": _concat,
    "maximum": lambda net, x: _pool(net, x, "QMaxPool", pads=(1, 1, 1, 1)),
    "average": lambda net, x: _pool(net, x, "QAveragePool"),
    "whole average": lambda net, x: _pool(net, x, "QAveragePool", half_away=True),
    "average of what is inside": lambda net, x: _pool(net, x, "QAveragePool", pads=(1, 1, 1, 1)),
    "mean": _mean,
    "rounded mean": lambda net, x: _mean(net, x, half_away=True),
    "mean with an offset": lambda net, x: _mean(net, x, factor=0.04, offset=0.3),
    "take": _take,
    "transposed": _transposed,
}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("between", BETWEEN)
def test_through(between: str, dtype: Any) -> None:
    """Two of three blocks go from the convolution, from what is behind it, and from the reader's weights."""
    net = Net(dtype)
    y = BETWEEN[between](net, net.pruned(bias=0 if between == "transposed" else 640))
    channels = net.graph.tensor(y).shape[1]
    net.reader(y)
    graph, _ = checked(net.graph)
    assert all(width in (CHANNELS - DEAD, 2 * (CHANNELS - DEAD)) for width in widths(graph)[:-1])
    assert graph.tensor(graph.nodes[-1].inputs[0]).shape[1] == channels // 3


@pytest.mark.parametrize(("row", "width"), [([3, 5], CHANNELS), ([5, 5], CHANNELS - DEAD)])
def test_a_factor_along_the_width_has_one_range_for_all_channels(row: list[int], width: int) -> None:
    """A channel stays constant if the factors are all the same."""
    net = Net()
    x = net.pruned()
    shape = net.graph.tensor(x).shape
    factors = net.graph.constant("row", np.resize(np.array(row, np.int8), shape[3]), net.quant(net.kind))
    net.reader(net.finish("QMul", [x, factors], shape, net.kind))
    assert widths(checked(net.graph)[0])[0] == width


def test_an_average_that_counts_padding_is_no_constant() -> None:
    """Padding counts as zeros, of which a window at the border has more; the channels of its operand stay, too."""
    net = Net()
    net.reader(_pool(net, net.pruned(), "QAveragePool", pads=(1, 1, 1, 1), count_include_pad=True))
    assert widths(checked(net.graph)[0]) == [CHANNELS, 5]


@pytest.mark.parametrize("first", [True, False])
def test_flattened(first: bool) -> None:
    """All places of a channel become inputs of a product, side by side or far from each other."""
    net = Net()
    x = net.pruned()
    if not first:
        (x,) = move(net, "Transpose", x, [], [[1, SIZE, SIZE, CHANNELS]], perm=[0, 2, 3, 1])
    (x,) = move(net, "Reshape", x, [[1, -1]], [[1, CHANNELS * SIZE * SIZE]])
    net.products(x)
    graph, _ = checked(net.graph)
    assert graph.tensor(graph.nodes[-1].inputs[0]).shape == (1, (CHANNELS - DEAD) * SIZE * SIZE)


def test_rows() -> None:
    """The channels of a matrix product are its columns."""
    net = Net()
    (x,) = move(net, "Transpose", net.pruned(), [], [[1, SIZE, SIZE, CHANNELS]], perm=[0, 2, 3, 1])
    net.products(x)
    graph, _ = checked(net.graph)
    assert graph.tensor(graph.nodes[-1].inputs[0]).shape == (1, SIZE, SIZE, CHANNELS - DEAD)


def test_one_operand_of_a_sum_alone() -> None:
    """The other operand depends on the input in every channel, so no channel goes."""
    net = Net()
    x = net.pruned()
    y = net.finish("QAdd", [x, net.pruned(dead=0)], net.graph.tensor(x).shape, net.kind)
    net.reader(y)
    assert widths(checked(net.graph)[0]) == [CHANNELS, CHANNELS, 5]


@pytest.mark.parametrize("shape", [(), (1,), (CHANNELS, 1, 1), (SIZE,)])
def test_a_constant_operand_of_any_rank(shape: tuple[int, ...]) -> None:
    net = Net()
    x = net.pruned()
    constant = net.graph.constant("c", np.full(shape, 9, np.int8), Quant.of(np.float32(0.25), 3))
    net.reader(net.finish("QAdd", [x, constant], net.graph.tensor(x).shape, net.kind))
    assert widths(checked(net.graph)[0]) == [CHANNELS - DEAD, 5]


def test_a_network_without_constants_stays_as_it_is() -> None:
    net = Net()
    net.reader(_depthwise(net, net.pruned(dead=0)))
    before = str(net.graph)
    assert str(checked(net.graph)[0]) == before


@pytest.mark.medium
@pytest.mark.parametrize("form", ["int8", "uint8", "tflite"])
@pytest.mark.parametrize("seed", range(10, 22))
def test_random_networks(seed: int, form: str) -> None:
    network = PrunedNetwork(seed)
    model: Any = network.tflite() if form == "tflite" else network.onnx(np.dtype(form).type)
    graph = ModelSource(model).graph()
    run_passes(graph)
    if form != "tflite":  # behind the quantisation of the float input
        first = graph.nodes.pop(0)
        assert first.op == "QuantizeLinear"
        graph.inputs = [first.outputs[0]]
    checked(graph)
