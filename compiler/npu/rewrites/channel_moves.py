"""Nodes that move channels exactly: products with weights of 0 and 1."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Quant
from tilewright.compiler.graph.ops.convolution import QConv, QConvTranspose
from tilewright.compiler.graph.ops.product import QMatMul

#: Scale of weights of 0 and 1: with the result's scale that of the operand, every byte passes as it is.
UNIT = Quant.of(np.float32(1), 0)
ROWS_AS_PLANES = (0, 2, 1)
"""Axes of planes [N, C, T] by those of rows of channels [N, T, C], and the other way round. The NPU has the same bytes
for both."""
#: Largest number of rows or columns of a kernel.
MOST_KERNEL = 63


def selected(graph: Graph, node: Node, x: str, y: str, places: np.ndarray) -> Node:
    """Returns the QConv that gives `y` the channels of `x` at these places, under the name of a replaced node."""
    channels, *space = graph.tensor(x).shape[1:]
    weights = (places[:, None] == np.arange(channels)).astype(np.int8).reshape(-1, channels, *([1] * len(space)))
    return moving(graph, node, QConv(kernel=(1,) * len(space), moves=True), weights, x, y)


def moving(
    graph: Graph,
    node: Node,
    op: QConv | QConvTranspose | QMatMul,
    weights: np.ndarray,
    x: str,
    y: str,
    quant: Quant = UNIT,
) -> Node:
    """Returns a product of `x` with these weights of 0 and 1 as `y`, under the name of a replaced node.

    Args:
        quant: of the weights, which are -1, too, where the result has other steps than the operand.
    """
    name = graph.constant(f"{y}.moves", weights, quant)
    return Node.of(op, [x, name], [y], node.name, node.origin)
