"""One channel for all channels: where an operand of an elementwise op has a single one, the NPU has it in one lane.

    Mul, Add, Max, Min of [N, C, H, W] and [N, 1, H, W]   =>  QConv 1x1 of weights of 1 first, which makes C of the one
    the same of rows [.., T, C] and [.., T, 1]            =>  QMatMul

The scale of the weights is 1 and that of the result its operand's, so every byte passes as it is.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Quant
from tilewright.compiler.graph.ops.convolution import QConv
from tilewright.compiler.graph.ops.elementwise import QAdd, QMul
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.ops import unsupported_reason
from tilewright.compiler.npu.rewrites.lower_moves import in_planes, made_by_npu
from tilewright.isa.config import NpuConfig

_ONE = Quant.of(np.float32(1), 0)


def spread_channels(graph: Graph, config: NpuConfig) -> None:
    wiring = Wiring.of(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        if _pairs(graph, node, config):
            node.inputs = [_spread(wiring, config, node, name, nodes) for name in node.inputs]
        nodes.append(node)
    graph.nodes = nodes


def _pairs(graph: Graph, node: Node, config: NpuConfig) -> bool:
    if len(node.inputs) != 2 or not is_activation(graph.tensor(node.outputs[0])):
        return False
    if node.op in ("Max", "Min"):
        return all(is_activation(graph.tensor(name)) for name in node.inputs)
    return isinstance(node.quantized, (QAdd, QMul)) and unsupported_reason(graph, node, config) is None


def _spread(wiring: Wiring, config: NpuConfig, node: Node, name: str, nodes: list[Node]) -> str:
    """An operand with all channels of the result: as it is, or of its only one."""
    graph = wiring.graph
    x, y = graph.tensor(name), graph.tensor(node.outputs[0])
    other = next((i for i in node.inputs if i != name), name)
    if x.is_const or len(x.shape) != len(y.shape) or not made_by_npu(wiring, config, name):
        return name
    planes = len(y.shape) == 4 and (in_planes(wiring, config, name) or in_planes(wiring, config, other))
    axis = 1 if planes else len(y.shape) - 1
    if len(y.shape) < 3 or x.shape[axis] != 1 or y.shape[axis] == 1 or x.size == 1:
        return name
    channels = y.shape[axis]
    shape = tuple(channels if a == axis else size for a, size in enumerate(x.shape))
    made = graph.like(x, f"{name}.spread", shape)
    ones = np.ones((channels, 1, 1, 1) if planes else (1, channels), np.int8)
    weights = graph.constant(f"{made}.ones", ones, _ONE)
    op = QConv(kernel=(1, 1), moves=True) if planes else QMatMul()
    nodes.append(Node.of(op, [name, weights], [made], node.name, node.origin))
    return made
