"""Placement cost: a node runs on the faster side of NPU and named host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.cpu.cost import HOST_MODELS
from tilewright.compiler.cpu.target import HOSTS
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.place.place import Placement, place_nodes
from tilewright.compiler.npu.place.placement_cost import PlacementCost
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS
from tilewright.isa.program import CpuStep

TINY = PRESETS["tiny"]


def placed(graph: Graph, name: str, mhz: float, **changes: float) -> Placement:
    """Returns the placement beside a host, with some fields of its model changed."""
    wiring = Wiring.of(graph)
    cost = PlacementCost(replace(HOST_MODELS[name], **changes), HOSTS[name], TINY, mhz)  # type: ignore[arg-type]
    placement = place_nodes(wiring, TINY, cost=cost)
    placement.verify(wiring)
    return placement


def summed() -> tuple[Graph, str]:
    """Returns a sum between two convolutions that cannot be a tail, and its name."""
    net = Net()
    y = net.conv(net.plane(64, 16), 64)
    again = net.add(twice := net.add(y, y), twice)
    return net.done(net.conv(again, 64)), again


def test_between_layers_the_faster_side() -> None:
    graph, node = summed()
    slow = placed(graph, "armv7-linux", 100)
    assert node in slow.npu  # conversions alone take the Cortex-A9 longer
    fast = placed(graph, "x86_64-linux", 1)
    assert node not in fast.npu and "takes about" in fast.reasons[node]


def test_a_turn_of_the_npu_is_part_of_the_price() -> None:
    graph, node = summed()
    assert node not in placed(graph, "x86_64-linux", 1, turn_us=0).npu
    assert node in placed(graph, "x86_64-linux", 1, turn_us=1e6).npu


@pytest.mark.medium
@pytest.mark.parametrize("depth", [16, 24, 32, 40])
@pytest.mark.parametrize("config", ["tiny", "base"])
@pytest.mark.parametrize("values", [False, True])
def test_a_second_operand_of_the_npu_is_not_packed(values: bool, config: str, depth: int) -> None:
    """The estimate counts no packing exactly where the NPU makes weights of keys or values.

    Keys are behind the split into heads and a Transpose, values without one. The NPU does not make them where heads do
    not fill blocks or biases do not fit the machine.
    """
    net = Net()
    machine = PRESETS[config]
    last = (0, 2, 1, 3) if values else (0, 2, 3, 1)
    made = net.product(net.input((1, 48, 64), np.int8), 2 * depth)
    heads = net.transpose(net.reshape(made, 1, 48, 2, depth), *last)
    rows = net.input((1, 2, 48, 48 if values else depth), np.int8)
    other = net.input(net.graph.tensor(heads).shape, np.int8)
    graph = net.done(with_heads := net.product(rows, heads), without := net.product(rows, other))
    wiring = Wiring.of(graph)
    cost = PlacementCost(HOST_MODELS["armv7-linux"], HOSTS["armv7-linux"], machine, 100)
    nodes = {node.outputs[0]: node for node in graph.nodes}
    seconds = [
        cost.npu_seconds(wiring, nodes[n], lambda node: node.quantized is not None) for n in (with_heads, without)
    ]
    program = compile_graph(graph, machine, CompileOptions())
    on_cpu = [op.split()[0] for step in program.steps if isinstance(step, CpuStep) for op in step.ops]
    assert on_cpu.count("PackMatMulParams") == (1 if seconds[0] < seconds[1] else 2)
