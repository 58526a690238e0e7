"""Concatenations along the channels of rows that products make lose their batch axis, so that they stay rows.

    QConcat([1, H, S, D / 2], [1, H, S, D / 2], axis=3)    =>  Reshape(QConcat([H, S, D / 2], [H, S, D / 2], axis=2))

Rotary embeddings exchange the halves of every head so. With four axes a Concat works on planes, for which rows with
their channels last would be packed anew; with three it works as its operands lie.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.moves import Mover
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.npu.blocks.alias import MOVES
from tilewright.compiler.npu.ops import is_elementwise, npu_op_of
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layout


def join_halves(graph: Graph, config: NpuConfig) -> None:
    """Gives three axes to each QConcat along the last of four axes whose operands are whole blocks of rows."""
    rewriter = Rewriter(graph, config)
    rewriter.replace_nodes(lambda node: _joined(rewriter, node))


def _joined(rewriter: Rewriter, node: Node) -> list[Node]:
    """Returns the nodes that replace a QConcat; none if it stays."""
    graph, op = rewriter.graph, node.quantized
    y = graph.tensor(node.outputs[0]) if isinstance(op, QConcat) else None
    if y is None or not isinstance(op, QConcat) or len(y.shape) != 4 or y.shape[0] != 1 or op.axis % 4 != 3:
        return []
    if any(graph.tensor(name).shape[-1] % rewriter.config.block_in for name in node.inputs):
        return []
    if not all(_in_rows(rewriter, name) for name in node.inputs):
        return []
    made: list[Node] = []
    mover = Mover(graph, made)
    parts = [mover.reshape(name, graph.tensor(name).shape[1:]) for name in node.inputs]
    joined = graph.like(y, f"{y.name}.rows", y.shape[1:])
    made.append(Node.of(replace(op, axis=2), parts, [joined], node.name, node.origin))
    mover.reshape(joined, y.shape, y.name)
    return made


def _in_rows(rewriter: Rewriter, name: str) -> bool:
    """Returns True if the NPU makes a tensor, or that which it is a part or function of, with its channels last."""
    while (maker := rewriter.wiring.producers.get(name)) is not None:
        if maker.op not in MOVES and not rewriter.runs_on_npu(maker):
            return False
        op = npu_op_of(maker)
        if op is not None and not is_elementwise(maker):
            return op.layout_of(len(rewriter.wiring.shape(name))) is Layout.CHANNELS_LAST
        name = maker.inputs[0]
    return False
