"""Lowers QRow: a row of a table, loaded by a window that begins at the row."""

from __future__ import annotations

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.row import QRow
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.layers.elementwise import ElementLayer
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.ops.tail import fuse_tail, labels
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layout


@npu_op(QRow)
class Row(NpuOp[QRow]):
    """A row of vectors is loaded from row 0 of its table, in a region whose base the runtime moves to the row."""

    condition = "the lanes of a vector are whole beats of the bus"
    layout = Layout.CHANNELS_LAST

    def unsupported(self, node: TypedNode[QRow], config: NpuConfig) -> str | None:
        if len(node.y.shape) < 2:
            return f"a row of rank {len(node.y.shape)}"
        return None if config.block_in % config.bus_bytes == 0 else "vectors are no whole beats of the bus"

    def lower(self, node: TypedNode[QRow], operands: Operands, tail: list[Node]) -> list[Layer]:
        row = operands.row_of_table(node.x.name, node.op.region)
        post = Post()
        made = operands.output(fuse_tail(operands, post, tail, Layout.CHANNELS_LAST, node.y.name))
        name, ops = labels([node.node, *tail])
        return [ElementLayer(name, ops, [row], made, post)]
