"""Heads of attention that do not fill blocks of channels are made as wide as blocks.

    Transpose(Reshape(Slice(x)))                    =>  Transpose(Reshape(Slice(wide(x))))
    y = QMatMul(scores, values)                     =>  y = Slice(QMatMul(scores, wide values))
    Reshape(Transpose(y))                           =>  narrow(Reshape(Transpose(wide(y))))

`wide` is a product of each head by itself with weights 0 and 1: the channels it adds are the zero point, whose products
are 0, so that scores stay the same; `narrow` removes them again, by another such product. The product with values could
be read as wide as it is made, but then its result could not be compared with the reference's. Heads of whole blocks are
views of the rows that contain them; the host would move other heads, twice a layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.moves import Mover, taken_box, whole_box
from tilewright.compiler.graph.ops.convolution import QConv
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.npu.rewrites.channel_moves import ROWS_AS_PLANES, moving
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.isa.config import NpuConfig

_HEADS = [0, 2, 1, 3]
"""Rows of heads to heads of rows, and the other way round."""
_COLUMNS = [0, 2, 3, 1]
"""Rows of heads to heads of columns, as keys are multiplied."""
_ONE_COLUMN = [0, 2, 1]
"""Rows of keys of a single head to their columns."""


def pad_heads(graph: Graph, config: NpuConfig) -> None:
    """Widens attention heads on the NPU to whole blocks of channels, and narrows them again behind the product."""
    found = _Widened(Rewriter(graph, config))
    for node in graph.nodes:
        if not found.product(node):
            found.nodes.append(node)
    if found.changed:
        graph.nodes = [node for node in found.nodes if id(node) not in found.gone]


def _are_rows(rows: tuple[int, ...], divided: tuple[int, ...]) -> bool:
    """Returns True if a tensor has the channels of heads [batch, rows, heads, channels] side by side."""
    batch, length, count, depth = divided
    return rows == (batch, length, count * depth) or (batch == 1 and rows == (length, count * depth))


class _Heads(Struct, frozen=True):
    """The heads that a product reads.

    Attributes:
        rows: name of the rows of channels that hold them, perhaps with others.
        first: first channel of these rows.
        count, depth: number of heads, and channels of each.
        moves: the Reshape and the Transpose that make them.
    """

    rows: str
    first: int
    count: int
    depth: int
    moves: tuple[Node, Node]


@dataclass
class _Widened:
    """A graph whose heads are widened.

    Attributes:
        rewriter: the graph.
        nodes: its new nodes.
        gone: `id` of the nodes that are no longer needed.
        wide: name of the widened rows, by name of the rows and channels of a head.
        changed: True if any product has been replaced.
    """

    rewriter: Rewriter
    nodes: list[Node] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    wide: dict[tuple[str, int], str] = field(default_factory=dict)
    changed: bool = False

    def __post_init__(self) -> None:
        self.graph, self.wiring = self.rewriter.graph, self.rewriter.wiring

    def product(self, node: Node) -> bool:
        """Adds a product of wide heads in place of one of narrow ones; returns False for any other node."""
        if not isinstance(node.quantized, QMatMul) or len(node.inputs) != 2:
            return False
        if not self.rewriter.runs_on_npu(node):
            return False
        left, keys = self._heads(node.inputs[0], _HEADS), self._heads(node.inputs[1], _COLUMNS)
        if left is not None and keys is not None and (left.count, left.depth) == (keys.count, keys.depth):
            inputs = [self._widened(heads, node) for heads in (left, keys)]
            self.nodes.append(Node.of(node.quantized, inputs, node.outputs, node.name, node.origin))
            self.changed = True
            return True
        rows, turned = node.inputs[0], self.wiring.producers.get(node.inputs[1])
        if turned is not None and self._single(rows, turned):
            wide = [self._rows(name, self.wiring.shape(rows)[2], node) for name in (rows, turned.inputs[0])]
            inputs = [wide[0], self._mover(turned).transpose(wide[1], _ONE_COLUMN)]
            self.nodes.append(Node.of(node.quantized, inputs, node.outputs, node.name, node.origin))
            self.changed = True
            return True
        values, joined = self._heads(node.inputs[1], _HEADS), self._joined(node)
        if values is None or joined is None:
            return False
        self._mixed(node, node.quantized, values, joined)
        self.changed = True
        return True

    def _heads(self, name: str, perm: list[int]) -> _Heads | None:
        """Returns the heads that a product reads if their channels do not fill blocks; else None."""
        turned = self.wiring.producers.get(name)
        if turned is None or turned.op != "Transpose" or turned.attrs.get("perm") != perm:
            return None
        divided = self.wiring.producers.get(turned.inputs[0])
        if divided is None or divided.op != "Reshape":
            return None
        rows, shape = divided.inputs[0], self.wiring.shape(divided.outputs[0])
        count, depth = shape[2:]
        if not _are_rows(self.wiring.shape(rows), shape) or depth % self.rewriter.config.block_in == 0:
            return None
        first, cut = 0, self.wiring.producers.get(rows) if shape[0] == 1 else None  # else parts must lie by themselves
        box = taken_box(self.graph, cut) if cut is not None and cut.op == "Slice" else None
        if cut is not None and box is not None and box[-1][0] % depth == 0:
            whole = self.wiring.shape(cut.inputs[0])
            if box[:-1] == whole_box(whole[:-1]) and whole[-1] % depth == 0:
                rows, first = cut.inputs[0], box[-1][0]
        quants = [self.graph.tensor(n).quant for n in (rows, name)]
        same = quants[0] is not None and quants[0].same_as(quants[1])
        if not same or not self.rewriter.made_by_npu(rows):
            return None
        return _Heads(rows, first, count, depth, (divided, turned))

    def _single(self, rows: str, turned: Node) -> bool:
        """Returns True if a product reads rows [batch, rows, channels] of a single head that does not fill blocks, and
        others that a Transpose has made columns."""
        if turned.op != "Transpose" or turned.attrs.get("perm") != _ONE_COLUMN:
            return False
        depth, keys = self.wiring.shape(rows)[-1], turned.inputs[0]
        narrow = depth % self.rewriter.config.block_in != 0 and len(self.wiring.shape(rows)) == 3
        return narrow and self.rewriter.made_by_npu(rows) and self.rewriter.made_by_npu(keys)

    def _joined(self, node: Node) -> tuple[Node, Node] | None:
        """Returns the Transpose and the Reshape that join a product's heads, if they are its only readers, or None."""
        found, name = [], node.outputs[0]
        for _ in range(2):
            readers = self.wiring.readers(name)
            if len(readers) != 1 or name in self.graph.outputs:
                return None
            found.append(readers[0])
            name = readers[0].outputs[0]
        turned, joined = found
        if (turned.op, turned.attrs.get("perm"), joined.op) != ("Transpose", _HEADS, "Reshape"):
            return None
        return (turned, joined) if _are_rows(self.wiring.shape(name), self.wiring.shape(turned.outputs[0])) else None

    def _width(self, depth: int) -> int:
        """Returns `depth` channels rounded up to whole blocks."""
        return -(-depth // self.rewriter.config.block_in) * self.rewriter.config.block_in

    def _widened(self, heads: _Heads, node: Node) -> str:
        """Adds the nodes that make heads with channels of whole blocks; returns the name of the result."""
        width, rows = self._width(heads.depth), self._rows(heads.rows, heads.depth, node)
        if self.wiring.shape(heads.rows)[-1] != heads.count * heads.depth:
            first = heads.first // heads.depth * width
            rows = self._mover(node).slice(rows, 2, first, first + heads.count * width)
        batch, length = self.graph.tensor(rows).shape[:2]
        divided, turned = heads.moves
        parts = self._mover(divided).reshape(rows, (batch, length, heads.count, width))
        return self._mover(turned).transpose(parts, turned.attrs["perm"])

    def _rows(self, rows: str, depth: int, node: Node) -> str:
        """Adds rows with all their heads as wide as blocks, once; returns their name."""
        key = rows, depth
        if key not in self.wide:
            weights = np.eye(self._width(depth), depth, dtype=np.int8)
            self.wide[key] = self._by_heads(self._batched(rows, node), weights, node)
        return self.wide[key]

    def _batched(self, rows: str, node: Node) -> str:
        """Adds a Reshape of rows to [batch, rows, channels] unless they have a batch; returns the result's name."""
        shape = self.wiring.shape(rows)
        return rows if len(shape) == 3 else self._mover(node).reshape(rows, (1, *shape))

    def _by_heads(self, rows: str, weights: np.ndarray, node: Node, made: str = "") -> str:
        """Adds the product of each head of rows [batch, rows, channels] with weights [channels after, before]; returns
        the name of the result."""
        x = self.graph.tensor(rows)
        count = x.shape[2] // weights.shape[1]
        mover = self._mover(node)
        planes = mover.transpose(rows, ROWS_AS_PLANES)
        y = self.graph.like(x, f"{rows}.heads", (x.shape[0], count * weights.shape[0], x.shape[1]))
        op = QConv(kernel=(1,), group=count, moves=True)
        every = np.tile(weights, (count, 1))[:, :, None]
        self.nodes.append(moving(self.graph, node, op, every, planes, y))
        return mover.transpose(y, ROWS_AS_PLANES, made)

    def _mixed(self, node: Node, op: QMatMul, values: _Heads, joined: tuple[Node, Node]) -> None:
        """Adds a product with wide values, and joins its heads to rows as narrow as they were."""
        y, width = self.graph.tensor(node.outputs[0]), self._width(values.depth)
        inputs = [node.inputs[0], self._widened(values, node)]
        product, wide = (self.graph.like(y, f"{y.name}.wide", (*y.shape[:3], width)) for _ in range(2))
        self.nodes.append(Node.of(op, inputs, [product], node.name, node.origin))
        self._mover(node).slice(product, 3, 0, values.depth, y.name)
        eye = np.eye(values.depth, width, dtype=np.int8)
        self.nodes.append(moving(self.graph, node, QMatMul(moves=True), eye, y.name, wide))
        batch, count, length, _ = y.shape
        turned, mover = self._mover(joined[0]).transpose(wide, _HEADS), self._mover(joined[1])
        rows = mover.reshape(turned, (batch, length, count * width))
        result = joined[1].outputs[0]
        if len(self.wiring.shape(result)) == 3:
            self._by_heads(rows, eye, joined[1], result)
        else:
            mover.reshape(self._by_heads(rows, eye, joined[1]), self.wiring.shape(result), result)
        self.gone |= {id(move) for move in joined}

    def _mover(self, node: Node) -> Mover:
        """Returns the maker of moves in place of a node's."""
        return Mover(self.graph, self.nodes, node.name, node.origin, node.outputs[0])
