"""Lowers QTake, the selection of rows and columns."""

from __future__ import annotations

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.take import QTake
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.layers.take import TakeLayer, runs
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.ops.tail import fuse_tail, labels
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layout

#: Largest number of VECTOR instructions for a plane.
_MOST_RUNS = 64


@npu_op(QTake)
class Take(NpuOp[QTake]):
    """Copies by VECTOR, whose loops repeat or skip rows and columns."""

    condition = "rank 3 or 4, rows and columns only, in up to 64 regular pieces"
    layout = Layout.CHANNELS_FIRST
    takes_table = True
    light = True

    def unsupported(self, node: TypedNode[QTake], config: NpuConfig) -> str | None:
        rank = len(node.x.shape)
        if rank not in (3, 4):
            return f"rank {rank}"
        if any(places is not None for places in node.op.indices[:2]):
            return "images or channels are chosen, not only rows and columns"
        pieces = [len(list(runs(places))) for places in _places(node)]
        if pieces[0] * pieces[1] > _MOST_RUNS:
            return f"{pieces[0]} times {pieces[1]} regular pieces of rows and columns; up to {_MOST_RUNS}"
        return None

    def lower(self, node: TypedNode[QTake], operands: Operands, tail: list[Node]) -> list[Layer]:
        post = Post()
        name, ops = labels([node.node, *tail])
        view = operands.view(node.x.name, Layout.CHANNELS_FIRST)
        made = operands.output(fuse_tail(operands, post, tail, Layout.CHANNELS_FIRST, node.y.name))
        rows, columns = _places(node)
        return [TakeLayer(name, ops, [view], made, post, rows=rows, columns=columns)]


def _places(node: TypedNode[QTake]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the operand's row for each row of the result, and its column for each column."""
    found = [tuple(places) for places in node.op.places(node.x.shape)[2:]]
    return (found[0], found[1]) if len(found) == 2 else ((0,), found[0])
