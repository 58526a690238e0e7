"""Views that layers request, and the conversions that are added for them."""

from __future__ import annotations

import numpy as np

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.npu.blocks.blocked import Contents
from tilewright.compiler.npu.blocks.convert import Converter
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.blocks.tasks import Task, describe
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.place.layout import choose_layouts
from tilewright.compiler.npu.place.place import place_nodes
from tilewright.compiler.npu.place.tails import fuse_tails
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.program import CONSTANT_REGION, Layout

TINY = PRESETS["tiny"]
FIRST, LAST = Layout.CHANNELS_FIRST, Layout.CHANNELS_LAST


def operands_of(net: Net, *outputs: str, config: NpuConfig = TINY) -> tuple[Operands, Converter]:
    """Returns the operands and the converter of a graph before any of its layers is lowered."""
    wiring = Wiring.of(net.done(*outputs))
    layouts = choose_layouts(wiring, fuse_tails(wiring, place_nodes(wiring, config)), config.block_in)
    converter = Converter(wiring, layouts, config)
    return Operands(config, layouts, converter), converter


def lines(tasks: list[Task]) -> list[str]:
    """Returns a line of text for each task."""
    return [describe(task) for task in tasks]


def test_a_layers_tensor_needs_no_conversion() -> None:
    net = Net()
    y = net.conv(net.plane(4, 4), 8)
    flat = net.reshape(y, 1, 8, 16)
    operands, converter = operands_of(net, net.table(flat))
    made = operands.output(y)
    assert operands.view(y, FIRST) == made and operands.view(flat, FIRST).buffer == made.buffer
    assert converter.tasks == [] and list(converter.buffers) == [f"{y}@c1"]


def test_one_conversion_for_all_readers() -> None:
    net = Net()
    x = net.plane(4, 4)
    operands, converter = operands_of(net, net.conv(x, 4))
    assert operands.view(x, FIRST) is operands.view(x, FIRST, like=x)
    operands.view(x, LAST)
    assert lines(converter.tasks) == ["x0@c1 = Relayout(x0)", "x0@last = Relayout(x0)"]


def test_other_layout_goes_through_the_plain_tensor() -> None:
    net = Net()
    y = net.conv(net.plane(4, 4), 8)
    operands, converter = operands_of(net, net.table(y), y)
    operands.output(y)
    operands.view(y, LAST)
    assert lines(converter.tasks) == [f"{y} = Relayout({y}@c1)", f"{y}@last = Relayout({y})"]


def test_moves_that_move_run_on_the_cpu() -> None:
    net = Net()
    y = net.conv(net.plane(4, 2), 8)
    flat = net.reshape(y, 1, 32)
    operands, converter = operands_of(net, net.product(flat, 4))
    operands.output(y)
    operands.view(flat, LAST)
    shape = next(name for name in net.graph.tensors if name.startswith("shape"))
    assert lines(converter.tasks) == [
        f"{y} = Relayout({y}@c1)", f"{flat} = Reshape({y}, {shape})", f"{flat}@last = Relayout({flat})",
    ]  # fmt: skip


def test_broadcast_operand_of_lower_rank() -> None:
    """A tensor [4] broadcast to [2, 3, 4] is reshaped on the CPU, then converted to one vector."""
    net = Net()
    a = net.product(net.input((2, 3, 4), np.int8), 4)
    row = net.input((4,), np.int8)
    operands, converter = operands_of(net, a)
    view = operands.view(row, LAST, like=a)
    assert (view.n, view.c, view.h, view.w) == (1, 4, 1, 1)
    assert [task.op for task in converter.tasks] == ["Reshape", "Relayout"]


def test_constants_are_packed_now() -> None:
    net = Net()
    y = net.conv(net.plane(6, 4), 6)
    each = net.graph.constant("each", np.arange(6, dtype=np.int8).reshape(1, 6, 1, 1), net.quant(np.int8))
    one = net.graph.constant("one", np.array([130], np.uint8), net.quant(np.uint8))
    operands, converter = operands_of(net, y)
    view = operands.view(each, FIRST, like=y)
    assert (view.region, view.n, view.c, view.h, view.w) == (CONSTANT_REGION, 1, 6, 1, 1)
    assert list(converter.constants[view.buffer]) == [0, 1, 2, 3, 4, 5, 0, 0]  # two blocks of four lanes
    spread = converter.constants[operands.view(one, FIRST, like=y).buffer]
    assert list(spread) == [2] * 6 + [0, 0]  # uint8 is stored minus 128
    assert converter.tasks == [] and converter.buffers == {}


def test_tables_between_types() -> None:
    net = Net()
    a, b = net.input((1, 4), np.uint8), net.input((1, 4), np.int8)
    operands, _ = operands_of(net, net.table(b))
    double = bytes(min(2 * i, 255) for i in range(256))
    table = operands.table(double, a, b)  # a table between the machine's int8, as bytes
    for stored in (-128, -100, 0, 127):
        assert table[stored & 0xFF] == double[stored + 128]
    assert operands.table(None, b, b) == bytes(range(256))


def test_packed_input_only_for_the_first_layer() -> None:
    net = Net()
    x = net.plane(3, 8)
    a = net.conv(x, 8, kernel=3)
    b = net.conv(a, 3, kernel=3)
    grouped = net.conv(x, 3, kernel=3, group=3)
    graph = net.graph
    operands, converter = operands_of(net, b, grouped)
    square = ((1, 1), (1, 1), (1, 1))
    nodes = {node.outputs[0]: node for node in graph.nodes}
    assert operands.pack_input(nodes[grouped], (3, 1, 3, 3), *square, 3) is None
    assert operands.pack_input(nodes[b], (3, 8, 3, 3), *square, 1) is None  # the NPU has it already
    packed = operands.pack_input(nodes[a], (8, 3, 3, 3), *square, 1)
    assert packed is not None and packed.view.c >= 9
    assert lines(converter.tasks) == ["x0@pack = Relayout(x0)"]
    assert converter.buffers["x0@pack"].contents is Contents.PACKED_INPUT


def test_weights_made_at_run_time() -> None:
    net = Net()
    a, b = net.input((3, 2, 6), np.int8), net.input((3, 6, 5), np.int8)
    y = net.product(a, b)
    operands, converter = operands_of(net, y)
    made = operands.dynamic_weights(net.graph.nodes[0], 3, 0.5)
    assert (made.k, made.zero_point) == (6, 3)
    tiles, params = converter.buffers[made.tiles], converter.buffers[made.params]
    assert (tiles.contents, tiles.shape) == (Contents.WEIGHT_TILES, (3, 2, 2, 4, 4))
    assert (params.contents, params.shape, params.nbytes) == (Contents.PRODUCT_PARAMS, (3, 2, 4, 2), 192)
