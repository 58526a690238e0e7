"""Heads of attention side by side in blocks of channels, and what is computed of them there.

Rows of channels [.., S, H * D] are heads [1, H, S, D] behind a Reshape and a Transpose. Where m * D channels are a
block, they are as well blocks [1, H / m, S, m * D] of m heads each; what works element by element does so in blocks.
Halves that a rotary embedding exchanges change places by a product with weights of 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec import Struct

from tilewright.compiler.graph.graph import Node, Quant
from tilewright.compiler.graph.moves import Mover, permutation, taken_box, whole_box
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.ops.elementwise import QAdd, QLut, QMul
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.softmax import QSoftmax
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.npu.rewrites.channel_moves import moving
from tilewright.compiler.npu.rewrites.exact_scales import weight_of_table
from tilewright.compiler.npu.rewrites.rewriter import Rewriter

_HEADS = (0, 2, 1, 3)
"""Rows of heads to heads of rows, and the other way round."""


class _Part(Struct, frozen=True):
    """Channels of heads that an operand of a QConcat is.

    Attributes:
        heads: name of the heads.
        first, end: the channels.
        table: as in QConcat.
    """

    heads: str
    first: int
    end: int
    table: bytes | None


@dataclass
class HeadBlocks:
    """Heads side by side in blocks.

    Attributes:
        rewriter: the graph.
        made: list that takes new nodes.
        blocks: name of the blocks by the name of the heads.
        known: True if heads can be put into blocks, by name.
        rows: name of scores in another shape by their name.
        wide: name of a table with its channels repeated, by its name.
        single: True if runs have a single row: blocks are then the rows [1, 1, blocks, lanes] of one image.
    """

    rewriter: Rewriter
    made: list[Node] = field(default_factory=list)
    blocks: dict[str, str] = field(default_factory=dict)
    known: dict[str, bool] = field(default_factory=dict)
    rows: dict[str, str] = field(default_factory=dict)
    wide: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph, self.wiring, self.lanes = self.rewriter.graph, self.rewriter.wiring, self.rewriter.config.block_in
        puts = [self.wiring.producers.get(state.end) for state in self.graph.states]
        rows = [self.wiring.shape(put.inputs[2]) for put in puts if put is not None and put.op == "ScatterElements"]
        self.single = all(shape[2:3] == (1,) for shape in rows)

    def mover(self, node: Node | None = None) -> Mover:
        """Returns the maker of moves, in place of a node's if one is given."""
        return Mover(self.graph, self.made) if node is None else Mover(self.graph, self.made, node.name, node.origin)

    def takes(self, name: str) -> bool:
        """Returns True if heads [1, heads, rows, channels] can be put into blocks."""
        if name not in self.known:
            self.known[name] = self._takes(name)
        return self.known[name]

    def _takes(self, name: str) -> bool:
        t, maker = self.graph.tensor(name), self.wiring.producers.get(name)
        if not is_activation(t) or t.dtype != np.int8 or len(t.shape) != 4 or t.shape[0] != 1 or maker is None:
            return False
        if self.lanes % t.shape[3] or t.shape[1] % (self.lanes // t.shape[3]):
            return False
        if self.rows_of(name) is not None:
            return True
        if self._row_part(maker) is not None:
            return self.takes(maker.inputs[0])
        if isinstance(maker.quantized, QConcat):
            parts = self._parts(maker)
            return bool(parts) and all(part.heads == parts[0].heads for part in parts) and self.takes(parts[0].heads)
        if not isinstance(maker.quantized, (QAdd, QMul, QLut)) or not any(
            self._is_heads(x, t.shape) for x in maker.inputs
        ):
            return False
        return all(self.takes(x) if self._is_heads(x, t.shape) else self._repeats(x, t.shape) for x in maker.inputs)

    def _is_heads(self, name: str, shape: tuple[int, ...]) -> bool:
        return self.graph.tensor(name).shape == shape

    def rows_of(self, name: str) -> str | None:
        """Returns the rows [.., rows, heads * channels] that moves alone make heads of; None if others make them."""
        _, heads, length, depth = self.wiring.shape(name)
        chain: list[Node] = []
        source = name
        while (maker := self.wiring.producers.get(source)) is not None and maker.op in ("Reshape", "Transpose"):
            chain.insert(0, maker)
            source = maker.inputs[0]
            if self.wiring.shape(source) in ((1, length, heads * depth), (length, heads * depth)):
                places = np.arange(heads * length * depth)
                wanted = places.reshape(1, length, heads, depth).transpose(_HEADS)
                return source if np.array_equal(self.moved(places, source, chain), wanted) else None
        return None

    def moved(self, places: np.ndarray, source: str, chain: Sequence[Node]) -> np.ndarray:
        """Returns the places of a tensor's elements behind Reshapes and Transposes."""
        places = places.reshape(self.wiring.shape(source))
        for node in chain:
            shape = self.wiring.shape(node.outputs[0])
            places = places.transpose(permutation(node)) if node.op == "Transpose" else places.reshape(shape)
        return places

    def _parts(self, node: Node) -> list[_Part]:
        """Returns the parts that a QConcat of channels joins; none if it joins something else."""
        op, found = node.quantized, []
        assert isinstance(op, QConcat)
        if op.axis % 4 != 3:
            return []
        for name, table in zip(node.inputs, op.tables, strict=True):
            cut = self.wiring.producers.get(name)
            box = taken_box(self.graph, cut) if cut is not None and cut.op == "Slice" else None
            if cut is None or box is None or box[:-1] != whole_box(self.wiring.shape(cut.inputs[0])[:-1]):
                return []
            found.append(_Part(cut.inputs[0], *box[-1], table))
        same = {self.wiring.shape(part.heads) for part in found} == {self.wiring.shape(node.outputs[0])}
        return found if same else []

    def _row_part(self, node: Node) -> tuple[int, int] | None:
        """Returns the rows [.., rows, channels] that a Slice takes; None for another node."""
        box = taken_box(self.graph, node) if node.op == "Slice" else None
        whole = whole_box(self.wiring.shape(node.inputs[0]))
        rows = len(whole) - 2
        others = [part == all_ for axis, (part, all_) in enumerate(zip(box or (), whole, strict=False)) if axis != rows]
        return box[rows] if box is not None and all(others) else None

    def _is_table(self, name: str) -> bool:
        """Returns True if a tensor is constant, or rows of a constant [values, channels] moved along."""
        maker = self.wiring.producers.get(name)
        if maker is None:
            return self.graph.tensor(name).is_const
        if maker.op == "Gather":
            data = self.graph.const(maker.inputs[0])
            return int(maker.attrs.get("axis", 0)) == 0 and data is not None and data.ndim == 2
        same = maker.op == "Reshape" and self.wiring.shape(maker.inputs[0])[-1:] == self.wiring.shape(name)[-1:]
        return (same or self._row_part(maker) is not None) and self._is_table(maker.inputs[0])

    def _repeats(self, name: str, shape: tuple[int, ...]) -> bool:
        """Returns True if an operand that is broadcast to all heads can be repeated for all heads of a block."""
        t = self.graph.tensor(name)
        if t.size == 1:
            return True
        alike = len(t.shape) == 4 and t.shape[:2] == (1, 1) and t.shape[2] in (1, shape[2]) and t.shape[3] == shape[3]
        return alike and self._is_table(name)

    def _repeated(self, name: str) -> str:
        """Adds the nodes that repeat a table's channels for all heads of a block; returns the result's name."""
        t, maker = self.graph.tensor(name), self.wiring.producers.get(name)
        if t.size == 1 or name in self.wide:
            return self.wide.get(name, name)
        if maker is None:
            assert t.data is not None
            wide = self.graph.constant(name, np.tile(t.data, self.lanes // t.shape[-1]), t.quant)
        elif maker.op == "Gather":
            table, index = self._repeated(maker.inputs[0]), maker.inputs[1]
            wide = self.graph.like(t, f"{name}.repeated", (*self.wiring.shape(index), self.lanes))
            self.made.append(Node("Gather", [table, index], [wide], maker.attrs, maker.name, maker.origin))
        else:
            source, part = self._repeated(maker.inputs[0]), self._row_part(maker)
            if part is None:
                wide = self.mover(maker).reshape(source, (*t.shape[:-1], self.lanes))
            else:
                wide = self.mover(maker).slice(source, len(t.shape) - 2, *part)
        self.wide[name] = wide
        return wide

    def of(self, name: str) -> str:
        """Adds the nodes that make blocks of heads, [1, blocks, rows, lanes]; returns their name."""
        if name not in self.blocks:
            self.blocks[name] = self._made(name)
        return self.blocks[name]

    def images(self, name: str) -> str:
        """Adds the nodes that make blocks of heads, an image each; returns their name."""
        x = self.of(name)
        *_, count, lanes = self.graph.tensor(x).shape
        return self.mover().reshape(x, (1, count, 1, lanes)) if self.single else x

    def scores(self, name: str, shape: tuple[int, ...]) -> str | None:
        """Adds the ops between two products in the shape that the first one has; returns the name of their result,
        None where they cannot have it.

        Args:
            name: the result of these ops.
            shape: shape of the first product, which is in `rows`.
        """
        t, maker = self.graph.tensor(name), self.wiring.producers.get(name)
        if name in self.rows:
            return self.rows[name]
        if maker is None or not (maker.op == "Reshape" or isinstance(maker.quantized, (QAdd, QMul, QLut, QSoftmax))):
            return None
        op, inputs = maker.quantized, list[str]()
        for x in maker.inputs[:1] if op is None else maker.inputs:
            other = self.graph.tensor(x)
            alike = other.size == 1 or other.shape in ((1, 1, 1, shape[-1]), (1, 1, *shape[-2:]))
            found = self.scores(x, shape) if other.size == t.size else x if alike else None
            if found is None:
                return None
            inputs.append(found)
        if isinstance(op, QSoftmax):
            if op.axis % len(t.shape) != len(t.shape) - 1:
                return None
            op = replace(op, axis=len(shape) - 1)
        if op is None:
            y = inputs[0]
        else:
            y = self.graph.like(t, f"{name}.rows", shape)
            self.made.append(Node.of(op, inputs, [y], maker.name, maker.origin))
        self.rows[name] = y
        return y

    def _made(self, name: str) -> str:
        t, maker = self.graph.tensor(name), self.wiring.producers[name]
        count = t.shape[1] * t.shape[3] // self.lanes
        shape = (1, 1, count, self.lanes) if self.single else (1, count, t.shape[2], self.lanes)
        rows, part = self.rows_of(name), self._row_part(maker)
        if rows is not None:
            mover = self.mover(maker)
            return blocks_of_row(mover, rows, count) if self.single else split(mover, rows, count)
        if part is not None:
            return self.mover(maker).slice(self.of(maker.inputs[0]), 2, *part)
        if isinstance(maker.quantized, QConcat):
            return self._exchanged(maker, t.shape[3])
        y = self.graph.like(t, f"{name}.blocks", shape)
        inputs = [self.of(x) if self._is_heads(x, t.shape) else self._repeated(x) for x in maker.inputs]
        assert maker.quantized is not None
        self.made.append(Node.of(maker.quantized, inputs, [y], maker.name, maker.origin))
        return y

    def _exchanged(self, node: Node, depth: int) -> str:
        """Adds a product that puts channels of heads in their places in a QConcat. Tables that only change sign and
        steps are its weights; others are looked up before, each into blocks of its own."""
        parts, y = self._parts(node), self.graph.tensor(node.outputs[0])
        x = self.of(parts[0].heads)
        t = self.graph.tensor(x)
        tables = list(dict.fromkeys(part.table for part in parts))
        weighed = {table: weight_of_table(table, t, y) for table in tables}
        blocks = 1
        if None in weighed.values():
            weighed, blocks = dict.fromkeys(tables), len(tables)
            joined = self.graph.like(y, f"{y.name}.tables", (*t.shape[:3], blocks * self.lanes))
            op = QConcat(axis=3, tables=tuple(tables))
            self.made.append(Node.of(op, [x] * blocks, [joined], node.name, node.origin))
            x = joined
        weights, scales = np.zeros((blocks * self.lanes, self.lanes), np.int8), np.ones(self.lanes, np.float32)
        heads = np.arange(0, self.lanes, depth)
        at = 0
        for part in parts:
            weight, scale = weighed[part.table] or (1, np.float32(1))
            block = tables.index(part.table) % blocks
            for channel in range(part.first, part.end):
                weights[block * self.lanes + heads + channel, heads + at] = weight
                scales[heads + at] = scale
                at += 1
        result = self.graph.like(y, f"{y.name}.blocks", t.shape)
        quant = Quant.of(scales[0]) if (scales == scales[0]).all() else Quant.of(scales, np.zeros(self.lanes), 1)
        self.made.append(moving(self.graph, node, QMatMul(moves=True), weights, x, result, quant))
        return result


def split(mover: Mover, rows: str, parts: int) -> str:
    """Adds the moves from rows [.., rows, channels] to parts [1, parts, rows, channels of a part]; returns the name."""
    *_, length, channels = mover.graph.tensor(rows).shape
    if length == 1:
        return mover.reshape(rows, (1, parts, 1, channels // parts))
    return mover.transpose(mover.reshape(rows, (1, length, parts, channels // parts)), _HEADS)


def joined(mover: Mover, parts: str) -> str:
    """Adds the moves from parts [1, parts, rows, channels of a part] to rows [1, rows, channels]; returns the name."""
    _, count, length, channels = mover.graph.tensor(parts).shape
    moved = parts if length == 1 else mover.transpose(parts, _HEADS)
    return mover.reshape(moved, (1, length, count * channels))


def blocks_of_row(mover: Mover, row: str, count: int) -> str:
    """Adds the moves from one row of channels to so many rows [1, 1, blocks, lanes]; returns the name."""
    lanes = mover.graph.tensor(row).size // count
    return mover.reshape(mover.reshape(row, (1, count, 1, lanes)), (1, 1, count, lanes))
