"""Elementwise ops with an operand of one channel, which the NPU holds in a single lane: it is copied to all channels.

    Mul, Add, Max, Min of [N, C, H, W] and [N, 1, H, W]   =>  QConv 1x1 of weights of 1 first, which makes C channels
    rows [.., T, C] and [.., T, 1]                        =>  QMatMul of weights of 1 first

The scale of the weights is 1 and that of the result its operand's, so every byte passes unchanged.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.convolution import QConv
from tilewright.compiler.graph.ops.elementwise import QAdd, QMul
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.npu.rewrites.channel_moves import UNIT
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.isa.config import NpuConfig


def broadcast_channels(graph: Graph, config: NpuConfig) -> None:
    """Replaces operands of one channel in elementwise ops on the NPU by operands with all channels."""
    rewriter = Rewriter(graph, config)

    def replacement(node: Node) -> list[Node]:
        made: list[Node] = []
        if _is_pairwise(rewriter, node):
            node.inputs = [_broadcast(rewriter, node, name, made) for name in node.inputs]
        return [*made, node]

    rewriter.replace_nodes(replacement)


def _is_pairwise(rewriter: Rewriter, node: Node) -> bool:
    """Returns True for an elementwise op of two 8-bit activations that the NPU may run."""
    graph = rewriter.graph
    if len(node.inputs) != 2 or not is_activation(graph.tensor(node.outputs[0])):
        return False
    if node.op in ("Max", "Min"):
        return all(is_activation(graph.tensor(name)) for name in node.inputs)
    return isinstance(node.quantized, (QAdd, QMul)) and rewriter.runs_on_npu(node)


def _broadcast(rewriter: Rewriter, node: Node, name: str, made: list[Node]) -> str:
    """Returns an operand with all channels of the result: itself, or a tensor that a node added to `made` writes."""
    graph = rewriter.graph
    x, y = graph.tensor(name), graph.tensor(node.outputs[0])
    other = next((i for i in node.inputs if i != name), name)
    if x.is_const or len(x.shape) != len(y.shape) or not rewriter.made_by_npu(name):
        return name
    planes = len(y.shape) == 4 and (rewriter.in_planes(name) or rewriter.in_planes(other))
    axis = 1 if planes else len(y.shape) - 1
    if len(y.shape) < 3 or x.shape[axis] != 1 or y.shape[axis] == 1 or x.size == 1:
        return name
    channels = y.shape[axis]
    shape = tuple(channels if a == axis else size for a, size in enumerate(x.shape))
    y_name = graph.like(x, f"{name}.spread", shape)
    ones = np.ones((channels, 1, 1, 1) if planes else (1, channels), np.int8)
    weights = graph.constant(f"{y_name}.ones", ones, UNIT)
    op = QConv(kernel=(1, 1), moves=True) if planes else QMatMul()
    made.append(Node.of(op, [name, weights], [y_name], node.name, node.origin))
    return y_name
