"""Lowers QConcat, the concatenation of quantised tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.layers.conv import ConvLayer
from tilewright.compiler.npu.layers.conv_tiling import Phase
from tilewright.compiler.npu.layers.elementwise import ElementLayer
from tilewright.compiler.npu.layers.layer import Add, Layer, Post
from tilewright.compiler.npu.ops.elementwise import NO_TABLES
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.compiler.npu.views import View, channel_axis
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layout

#: Constants of VECTOR_ADD for a + b of stored values, of which one is 0.
_SUM = {"ma": 1, "mb": 1, "c": 0, "shift": 0}
#: Largest number of parts that change their lanes: each takes a layer or more.
_MOST_MIXED = 64


@npu_op(QConcat)
class Concat(NpuOp[QConcat]):
    """Concatenation: copies each operand to its place in the result, through its table.

    Channels that do not begin with a block are moved to their lanes by products with weights of 0 and 1.
    """

    condition = "planes, or rows that the NPU reads; along channels in up to 64 pieces that change their lanes"
    layout = Layout.CHANNELS_FIRST

    def layout_of(self, rank: int) -> Layout | None:
        return self.layout if rank == 4 else None  # rows or planes of one line: as the operands are

    def needs_npu_reader(self, rank: int) -> bool:
        return rank != 4

    def unsupported(self, node: TypedNode[QConcat], config: NpuConfig) -> str | None:
        y, rank = node.y, len(node.y.shape)
        axis = node.op.axis % rank
        if rank > 4 and axis < rank - 2 and math.prod(y.shape[:axis]) != 1:
            return f"concatenation along axis {axis} of rank {rank}"
        operands = [node.operand(i) for i in range(len(node.node.inputs))]
        tables = any(table is not None for table in node.op.tables) or any(t.dtype != y.dtype for t in operands)
        if tables and not config.table_lookup:
            return NO_TABLES
        for t in operands:  # one tensor may stand in several places
            if t.dtype not in EIGHT_BIT:
                return f"{t.name} is not int8 or uint8"
        if axis == 1 if rank == 4 else axis in (1, rank - 1):  # whichever layout the operands turn out to have
            mixed = sum(not part.whole for part in _parts([t.shape[axis] for t in operands], config.block_in))
            if mixed > _MOST_MIXED:
                return f"{mixed} pieces of channels change their lanes; up to {_MOST_MIXED}"
        return None

    def lower(self, node: TypedNode[QConcat], operands: Operands, tail: list[Node]) -> list[Layer]:
        axis, layout, block = node.op.axis % len(node.y.shape), operands.layout(node.node), operands.config.block_in
        sizes = [node.operand(i).shape[axis] for i in range(len(node.node.inputs))]
        if axis == channel_axis(len(node.y.shape), layout) and any(c % block for c in sizes[:-1]):
            return _Mixing(node, operands, layout).layers(sizes)
        whole = operands.output(node.y.name)
        layers: list[Layer] = []
        at = 0
        for index, size in enumerate(sizes):
            view = operands.view(node.operand(index).name, layout)
            offset = _offset(node.y.shape, axis, layout, whole, at)
            target = replace(whole, n=view.n, c=view.c, h=view.h, w=view.w, offset=offset)
            layers.append(_copy(node, operands, index, view, target))
            at += size
        return layers


def _offset(shape: tuple[int, ...], axis: int, layout: Layout, view: View, at: int) -> int:
    """Returns the byte of a dense view at which index `at` of an axis begins; for channels that of their block."""
    rank = len(shape)
    if axis == channel_axis(rank, layout):
        return at // view.block * view.sc
    if layout is Layout.CHANNELS_LAST:
        return at * (view.block if axis == rank - 2 else math.prod(shape[axis + 1 : -2]) * view.sn)
    return at * (view.sn if axis == 0 else view.sh if (axis, rank) == (2, 4) else view.block)


class _Part(Struct, frozen=True):
    """Channels of one operand that lie in one block of the result, or fill several blocks alone.

    Attributes:
        operand: number of the operand.
        first, count: first channel of the operand, and number of channels.
        at: first channel of the result.
        whole: True if they begin with a block in operand and result, and share no block of the result.
    """

    operand: int
    first: int
    count: int
    at: int
    whole: bool


def _parts(channels: list[int], block: int) -> Iterator[_Part]:
    """Yields the parts of the result in order.

    Args:
        channels: number of channels of each operand.
        block: channels of a block.
    """
    at, end = 0, sum(channels)
    for operand, count in enumerate(channels):
        first = 0
        while first < count:
            start = at + first
            if start % block == 0 and first % block == 0:
                # The last block of the result may have lanes that hold nothing.
                blocks = count - first if at + count == end else (count - first) // block * block
                if blocks:
                    yield _Part(operand, first, blocks, start, True)
                    first += blocks
                    continue
            taken = min(count - first, block - start % block)
            yield _Part(operand, first, taken, start, False)
            first += taken
        at += count


def _copy(node: TypedNode[QConcat], operands: Operands, index: int, view: View, target: View) -> ElementLayer:
    """Returns the layer that copies an operand, or a part of it, through the operand's table."""
    x, table = node.operand(index), node.op.tables[index]
    unchanged = table is None and x.dtype == node.y.dtype
    post = Post(lut=None if unchanged else operands.table(table, x.name, node.y.name))
    return ElementLayer(f"{node.node.name or node.y.name} [{index}]", node.node.op, [view], target, post)


class _Mixing:
    """The layers of a concatenation in which channels of several operands share a block, or change their lanes.

    Attributes:
        made: the layers so far, in order.
    """

    def __init__(self, node: TypedNode[QConcat], operands: Operands, layout: Layout) -> None:
        self.node, self.operands, self.block, self.layout = node, operands, operands.config.block_in, layout
        self.made: list[Layer] = []
        self._stored: dict[int, View] = {}

    def layers(self, channels: list[int]) -> list[Layer]:
        """Returns all layers, for operands with these numbers of channels."""
        whole = self.operands.output(self.node.y.name)
        parts = list(_parts(channels, self.block))
        for part in parts:
            if part.whole:
                view = self.operands.view(self.node.operand(part.operand).name, self.layout)
                target = self._blocks(whole, part.at, part.count)
                self.made.append(
                    _copy(self.node, self.operands, part.operand, self._blocks(view, part.first, part.count), target)
                )
        mixed = [part for part in parts if not part.whole]
        for number in dict.fromkeys(part.at // self.block for part in mixed):
            inside = [part for part in mixed if part.at // self.block == number]
            before: View | None = None
            for part in inside:
                last = part is inside[-1]
                filled = part.at + part.count - number * self.block
                if last:
                    target = self._blocks(whole, number * self.block, filled)
                else:
                    dims = (whole.n, self.block, whole.h, whole.w)
                    stem, y = f"{self.node.y.name}@mixed", self.node.y.name
                    target = self.operands.temporary(stem, y, self.layout, dims)
                self.made.append(self._moved(part, target, before))
                before = target
        return self.made

    def _blocks(self, view: View, channel: int, count: int) -> View:
        """Returns the part of a view with `count` channels from `channel`, which begins a block."""
        return replace(view, c=count, offset=view.offset + channel // self.block * view.sc)

    def _operand(self, index: int) -> View:
        """Returns an operand with the result's values: a copy through its table, unless it has none."""
        view = self.operands.view(self.node.operand(index).name, self.layout)
        unchanged = self.node.op.tables[index] is None and self.node.operand(index).dtype == self.node.y.dtype
        if unchanged:
            return view
        if index not in self._stored:
            dims = (view.n, view.c, view.h, view.w)
            stem = f"{self.node.y.name}@operand{index}"
            made = self.operands.temporary(stem, self.node.y.name, self.layout, dims)
            self.made.append(_copy(self.node, self.operands, index, view, made))
            self._stored[index] = made
        return self._stored[index]

    def _moved(self, part: _Part, target: View, before: View | None) -> Layer:
        """Returns the layer that moves channels to their lanes of one block, with 0 in all other lanes.

        Args:
            part: the channels.
            target: the block of the result.
            before: the block with the channels of other parts, which is added; None for the first part.
        """
        start = part.first // self.block * self.block
        count = part.first + part.count - start
        x = self._blocks(self._operand(part.operand), start, count)
        weights = np.zeros((1, target.c, count, 1, 1), np.int8)
        lanes = np.arange(part.count)
        weights[0, part.at % self.block + lanes, part.first - start + lanes] = 1
        add = None if before is None else Add(replace(before, c=target.c), dict(_SUM), -128, 127)
        name = f"{self.node.node.name or self.node.y.name} [{part.operand}]"
        return ConvLayer(
            name, self.node.node.op, [x], target, Post(add=add), phases=[Phase(weights, (0, 0))],
            bias=np.zeros(target.c, np.int32), scale=np.ones(target.c, np.float32),
        )  # fmt: skip
