"""Lower bounds of `tilewright.compiler.npu.bound`, compared with values worked out by hand for small graphs."""

from __future__ import annotations

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS
from tilewright.isa.program import Layer

BASE = PRESETS["base"]


def rows(net: Net, *outputs: str) -> list[Layer]:
    """Returns the NPU's layers of the compiled program's report."""
    program = compile_graph(net.done(*outputs), BASE, CompileOptions())
    return [layer for layer in program.layers if layer.where == "npu"]


def test_what_nobody_reads_is_not_counted() -> None:
    """Two convolutions read one element in four of the first one's result: only those count."""
    net = Net()
    x = net.conv(net.plane(16, 8), 16)
    first, *_ = rows(net, net.conv(x, 16, stride=2), net.conv(x, 32, stride=2))
    assert first.minimum_steps == 4 * 4
    net = Net()
    x = net.conv(net.plane(16, 8), 16)
    first, *_ = rows(net, net.conv(x, 16, stride=2), net.conv(x, 32))
    assert first.minimum_steps == 8 * 8


def test_depthwise_takes_a_step_for_each_block_of_outputs() -> None:
    net = Net()
    (row,) = rows(net, net.conv(net.plane(32, 6), 32, kernel=3, group=32))
    assert row.minimum_steps == 6 * 6 * 2


def test_inputs_and_outputs_count_without_padding_and_weights_once() -> None:
    net = Net()
    (row,) = rows(net, net.conv(net.plane(20, 5), 7))
    assert row.minimum_writes == 7 * 25
    weights = row.minimum_bytes - row.minimum_writes - 20 * 25
    assert 7 * 20 - 16 <= weights - 8 * 7 <= 7 * 20  # a few weights are 0


def test_tensors_between_layers_count_nothing() -> None:
    net = Net()
    first, second, third = rows(net, net.conv(net.conv(net.conv(net.plane(16, 8), 16), 16), 16))
    assert first.minimum_writes == second.minimum_writes == 0
    for row in (second, third):
        assert row.minimum_bytes - row.minimum_writes <= 16 * 16 + 8 * 16


def test_a_layer_that_needs_all_before_it() -> None:
    net = Net()  # on a single position every layer needs all of the one before
    found = rows(net, net.conv(net.conv(net.conv(net.plane(16, 1), 16), 16), 24))
    assert [row.after_all for row in found] == [False, True, True]
    net = Net()
    assert not any(row.after_all for row in rows(net, net.conv(net.conv(net.plane(16, 2), 16), 24)))
    net = Net()  # a later layer reads what precedes the second one
    y = net.conv(net.plane(16, 1), 16)
    found = rows(net, net.add(net.conv(net.conv(y, 16), 16), y))
    assert [row.after_all for row in found] == [False, False, True]
