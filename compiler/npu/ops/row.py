"""Lowers QRow: rows of a table, loaded by a window that begins at the first."""

from __future__ import annotations

from msgspec.structs import replace

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.row import QRow
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.layers.elementwise import ElementLayer
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.layers.put import RowsLayer
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.ops.tail import fuse_tail, labels
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layout


@npu_op(QRow)
class Row(NpuOp[QRow]):
    """Rows of vectors are loaded from row 0 of a table on, in a region whose base the runtime moves to the first."""

    condition = "the lanes of a vector are whole beats of the bus"
    layout = Layout.CHANNELS_LAST

    def unsupported(self, node: TypedNode[QRow], config: NpuConfig) -> str | None:
        if len(node.y.shape) < 2:
            return f"a row of rank {len(node.y.shape)}"
        return None if config.block_in % config.bus_bytes == 0 else "vectors are no whole beats of the bus"

    def lower(self, node: TypedNode[QRow], operands: Operands, tail: list[Node]) -> list[Layer]:
        row, count = operands.row_of_table(node.x.name, node.op.region), node.operand(1).size
        post = Post()
        made = operands.output(fuse_tail(operands, post, tail, Layout.CHANNELS_LAST, node.y.name))
        if count > 1:  # columns of a result are next to each other, rows of a table are not
            row = replace(row, n=1, h=count, sh=row.sn)
            made = replace(made, h=count, w=1, sh=made.block)
        name, ops = labels([node.node, *tail])
        return [(RowsLayer if count > 1 else ElementLayer)(name, ops, [row], made, post)]
