"""Lowers QPut: rows of a cache for tokens, stored by a window that begins at the first."""

from __future__ import annotations

from msgspec.structs import replace

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.put import QPut
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.layers.put import PutLayer
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import WINDOW_REGION, Layout


@npu_op(QPut)
class Put(NpuOp[QPut]):
    """Rows of vectors are stored from row 0 of the cache on, in a region whose base the runtime moves to the first."""

    condition = "the lanes of a vector are whole beats of the bus"
    layout = Layout.CHANNELS_LAST

    def unsupported(self, node: TypedNode[QPut], config: NpuConfig) -> str | None:
        return None if config.block_in % config.bus_bytes == 0 else "vectors are no whole beats of the bus"

    def lower(self, node: TypedNode[QPut], operands: Operands, tail: list[Node]) -> list[Layer]:
        cache, new = node.x, node.operand(1)
        blocks, length, lanes = cache.shape
        _, heads, count, depth = new.shape
        plane = length * lanes
        row = View(
            tensor=node.y.name, region=WINDOW_REGION, buffer=node.y.name, n=heads, c=depth, h=1, w=count,
            sn=blocks // heads * plane, sc=plane, sh=lanes, block=lanes,
        )  # fmt: skip
        operands.in_place(node.y.name)
        name = node.node.name or node.y.name
        view = operands.view(new.name, Layout.CHANNELS_LAST)
        if depth % lanes == 0 and view.sn == view.cb * view.sc:  # heads are channel blocks: one copy, one STORE
            view, row = (replace(each, n=1, c=heads * depth) for each in (view, row))
        return [PutLayer(name, node.node.op, [view], row, Post(), extra_reads=[cache.name])]
