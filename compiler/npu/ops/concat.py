"""QConcat."""

from __future__ import annotations

from compiler.graph import Node
from compiler.npu.blocks.operands import Operands
from compiler.npu.layers.elementwise import ElementLayer
from compiler.npu.layers.layer import Layer, Post
from compiler.npu.ops.elementwise import NO_TABLES
from compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from compiler.npu.views import View
from compiler.ops.concat import QConcat
from compiler.tensor import EIGHT_BIT
from isa.config import NpuConfig
from isa.program import Layout


@npu_op(QConcat)
class Concat(NpuOp[QConcat]):
    """Concatenation: a copy of each operand to its place in the result, through its table."""

    condition = "rank 4; on the channel axis every operand but the last has a multiple of `block_in` channels"
    layout = Layout.CHANNELS_FIRST

    def unsupported(self, node: TypedNode[QConcat], config: NpuConfig) -> str | None:
        y, rank = node.y, len(node.y.shape)
        if rank != 4:
            return f"concatenation of rank {rank}"
        operands = [node.operand(i) for i in range(len(node.node.inputs))]
        tables = any(table is not None for table in node.op.tables) or any(t.dtype != y.dtype for t in operands)
        if tables and not config.table_lookup:
            return NO_TABLES
        for number, t in enumerate(operands, 1):  # one tensor may stand in several places
            if t.dtype not in EIGHT_BIT:
                return f"{t.name} is not int8 or uint8"
            if node.op.axis % rank == 1 and number < len(operands) and t.shape[1] % config.block_in:
                return f"{t.shape[1]} channels of {t.name} are not a multiple of {config.block_in}"
        return None

    def lower(self, node: TypedNode[QConcat], operands: Operands, tail: list[Node]) -> list[Layer]:
        axis, y = node.op.axis % 4, node.y
        whole = operands.output(y.name)
        layers: list[Layer] = []
        at = 0
        for index, table in enumerate(node.op.tables):
            x = node.operand(index)
            view = operands.view(x.name, Layout.CHANNELS_FIRST)
            offset = (whole.sn, whole.sc // whole.block, whole.sh, whole.block)[axis] * at
            n, c, h, w = view.n, view.c, view.h, view.w
            target = View(whole.tensor, whole.region, whole.buffer, n, c, h, w, whole.sn, whole.sc, whole.sh,
                          whole.block, offset)  # fmt: skip
            unchanged = table is None and x.dtype == y.dtype
            post = Post(lut=None if unchanged else operands.table(table, x.name, y.name))
            layers.append(ElementLayer(f"{node.node.name or y.name} [{index}]", node.node.op, [view], target, post))
            at += (n, c, h, w)[axis]
        return layers
