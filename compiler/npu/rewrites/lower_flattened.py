"""Products of flattened planes become convolutions of the planes.

    Flatten, product              =>  QConv with a kernel of the planes' size, the product's weights in another order
    Transpose, Flatten, product   =>  the same: pixels of all channels, as networks of TensorFlow flatten them

The host would take the planes out of blocks, move them and put the row back in between.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.moves import permutation
from tilewright.compiler.graph.ops.convolution import QConv
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.npu.rewrites.channel_moves import MOST_KERNEL
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.isa.config import NpuConfig


def lower_flattened(graph: Graph, config: NpuConfig) -> None:
    """Replaces products of flattened planes that the NPU makes with convolutions."""
    rewriter = Rewriter(graph, config)
    rewriter.replace_nodes(lambda node: _convolution(rewriter, node))


def _convolution(rewriter: Rewriter, node: Node) -> list[Node] | None:
    """Returns a convolution with a kernel of the planes' size, in place of a product of flattened planes; else None."""
    op, graph = node.quantized, rewriter.graph
    found = _flattened(rewriter, node) if isinstance(op, QMatMul) else None
    if found is None or not isinstance(op, QMatMul) or not rewriter.runs_on_npu(node):
        return None
    x, order = found
    w, y = graph.tensor(node.inputs[1]), graph.tensor(node.outputs[0])
    outputs = y.shape[-1]
    if w.data is None or w.quant is None or w.dtype != np.int8 or w.data.ndim != 2 or y.shape != (1, outputs):
        return None
    by_rows = w.data.T.reshape(outputs, *(x.shape[axis] for axis in order[1:]))
    data = np.ascontiguousarray(by_rows.transpose(np.argsort(order)))
    quant = w.quant if w.quant.per_tensor else Quant(w.quant.scale, w.quant.zero_point, 0)
    weights = graph.constant(f"{w.name}.planes", data, quant)
    made = graph.like(y, f"{y.name}.planes", (1, outputs, 1, 1))
    conv = QConv(kernel=x.shape[2:], out_min=op.out_min, out_max=op.out_max, reason=op.reason)
    shape = graph.constant("shape", np.array(y.shape, np.int64))
    return [
        Node.of(conv, [x.name, weights, *node.inputs[2:]], [made], node.name, node.origin),
        Node("Reshape", [made, shape], [y.name], {}, node.name),
    ]


def _flattened(rewriter: Rewriter, node: Node) -> tuple[Tensor, list[int]] | None:
    """Returns the planes [1, C, H, W] whose values a product reads as a row, and the order of their axes there."""
    producers, wiring = rewriter.wiring.producers, rewriter.wiring
    flatten = producers.get(node.inputs[0])
    if flatten is None or flatten.op not in ("Reshape", "Flatten"):
        return None
    name, order = flatten.inputs[0], [0, 1, 2, 3]
    turned = producers.get(name)
    if turned is not None and turned.op == "Transpose" and len(wiring.shape(name)) == 4:
        name, order = turned.inputs[0], permutation(turned)
    x = wiring.tensor(name)
    if len(x.shape) != 4 or x.shape[0] != 1 or order[0] != 0 or max(x.shape[2:]) > MOST_KERNEL:
        return None
    if not 1 < x.shape[2] * x.shape[3] <= rewriter.config.act_rows // 4:
        return None
    if x.quant is None or not x.quant.same_as(wiring.tensor(node.inputs[0]).quant) or not rewriter.in_planes(name):
        return None
    return x, order
