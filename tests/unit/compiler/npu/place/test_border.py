"""On which side of the border between NPU and CPU a node runs when a host is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.cpu.cost import HOST_MODELS
from compiler.cpu.target import HOSTS
from compiler.graph import Graph
from compiler.npu.blocks.wiring import Wiring
from compiler.npu.place.border import Border
from compiler.npu.place.place import Placement, place_nodes
from isa.config import PRESETS
from tests.unit.compiler.npu.net import Net

TINY = PRESETS["tiny"]


def placed(graph: Graph, name: str, mhz: float, **changes: float) -> Placement:
    wiring = Wiring.of(graph)
    border = Border(replace(HOST_MODELS[name], **changes), HOSTS[name], TINY, mhz)  # type: ignore[arg-type]
    placement = place_nodes(wiring, TINY, border=border)
    placement.verify(wiring)
    return placement


def summed() -> tuple[Graph, str]:
    """A sum between two convolutions that no layer before it takes into its pass."""
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


def test_a_second_operand_of_the_npu_is_not_packed() -> None:
    """Keys behind a Transpose cost the CPU nothing, keys that the CPU makes have to be packed."""
    net = Net()
    rows = net.product(net.input((1, 64, 32), np.int8), 32)
    keys = net.transpose(net.product(net.input((1, 64, 32), np.int8), 32), 0, 2, 1)
    loose = net.input((1, 32, 64), np.int8)
    one, other = net.product(rows, keys), net.product(rows, loose)
    wiring = Wiring.of(net.done(one, other))
    border = Border(HOST_MODELS["armv7-linux"], HOSTS["armv7-linux"], TINY, 100)
    nodes = {node.outputs[0]: node for node in wiring.graph.nodes}
    seconds = [
        border.npu_seconds(wiring, nodes[name], lambda node: node.quantized is not None) for name in (one, other)
    ]
    assert seconds[0] < seconds[1]
