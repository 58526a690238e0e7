"""Heads of a cache that are narrower than a block of channels lie side by side in blocks.

    keys, values [1, H, W, D]                       =>  [1, H / m, W, m * D], where m * D channels are a block
    op(heads [1, H, S, D])                          =>  op(blocks of heads [1, H / m, S, m * D])
    y = QMatMul(queries, keys^T)                    =>  y = QMatMul(apart(queries), keys^T)
    rows = moved(QMatMul(scores, values))           =>  rows = together(QMatMul(scores, values))

`apart` is a product with weights of 0 and 1, which gives each query a block of its own: its channels where its head has
them, and the zero point, whose products are 0, in the places of other heads. All heads of a block are multiplied with
the same keys and values, as grouped heads are. `together` is the transposed product: of each result it leaves what is
in the head's own places. The halves of heads that a rotary embedding exchanges change places by one more such product.

So a cache takes no more memory than its values, and `block_states` finds whole blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec import Struct

from tilewright.compiler.graph.graph import Graph, Node, State
from tilewright.compiler.graph.moves import Mover, permutation, taken_box, whole_box
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.ops.elementwise import QAdd, QLut, QMul
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.softmax import QSoftmax
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.graph.states import kept_in_place
from tilewright.compiler.npu.rewrites.channel_moves import moving
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.isa.config import NpuConfig

_HEADS = (0, 2, 1, 3)
"""Rows of heads to heads of rows, and the other way round."""


def share_blocks(graph: Graph, config: NpuConfig) -> None:
    """Puts narrow heads of caches side by side where the NPU runs all of the attention."""
    rewriter = Rewriter(graph, config)
    softmaxes = [node for node in graph.nodes if isinstance(node.quantized, QSoftmax)]
    if not softmaxes or not all(rewriter.runs_on_npu(node) for node in softmaxes):
        return
    in_place, blocks = kept_in_place(graph), _Blocks(rewriter)
    caches = [_Cache.of(blocks, state) for state in graph.states if state.end in in_place]
    found = [cache for cache in caches if cache is not None]
    if found:
        replaced = {id(node): (cache, node) for cache in found for node in (cache.put, *cache.products)}
        nodes: list[Node] = []
        for node in graph.nodes:
            cache, _ = replaced.get(id(node), (None, node))
            if cache is None:
                nodes.append(node)
            else:
                blocks.made = nodes
                cache.replace(node)
        gone = {id(node) for cache in found for node in cache.joins}
        graph.nodes = [node for node in nodes if id(node) not in gone]


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
class _Blocks:
    """Heads side by side in blocks.

    Attributes:
        rewriter: the graph.
        made: list that takes new nodes.
        blocks: name of the blocks by the name of the heads.
        known: True if heads can be put into blocks, by name.
        wide: name of a table with its channels repeated, by its name and the number of channels.
        single: True if runs have a single row: blocks are then the rows [1, 1, blocks, lanes] of one image.
    """

    rewriter: Rewriter
    made: list[Node] = field(default_factory=list)
    blocks: dict[str, str] = field(default_factory=dict)
    known: dict[str, bool] = field(default_factory=dict)
    wide: dict[tuple[str, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph, self.wiring, self.lanes = self.rewriter.graph, self.rewriter.wiring, self.rewriter.config.block_in
        puts = [self.wiring.producers[state.end] for state in self.graph.states]
        self.single = all(
            node.op != "ScatterElements" or self.wiring.shape(node.inputs[2])[2:3] == (1,) for node in puts
        )

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

    def _repeated(self, name: str, count: int) -> str:
        """Adds the nodes that make an operand for all heads of so many blocks; returns the result's name."""
        if self.graph.tensor(name).size == 1:
            return name
        if not self.single:
            return self._wide(name, self.lanes)
        return blocks_of_row(self.mover(), self._wide(name, count * self.lanes), count)

    def _wide(self, name: str, channels: int) -> str:
        """Adds the nodes that repeat a table's channels until there are so many; returns the result's name."""
        t, maker, key = self.graph.tensor(name), self.wiring.producers.get(name), (name, channels)
        if key in self.wide:
            return self.wide[key]
        if maker is None:
            assert t.data is not None
            wide = self.graph.constant(name, np.tile(t.data, channels // t.shape[-1]), t.quant)
        elif maker.op == "Gather":
            table, index = self._wide(maker.inputs[0], channels), maker.inputs[1]
            wide = self.graph.like(t, f"{name}.repeated", (*self.wiring.shape(index), channels))
            self.made.append(Node("Gather", [table, index], [wide], maker.attrs, maker.name, maker.origin))
        else:
            source, part = self._wide(maker.inputs[0], channels), self._row_part(maker)
            if part is None:
                wide = self.mover(maker).reshape(source, (*t.shape[:-1], channels))
            else:
                wide = self.mover(maker).slice(source, len(t.shape) - 2, *part)
        self.wide[key] = wide
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
        """Adds the ops of scores in another shape, whose rows are the heads of a single row; returns the result's name,
        None where these ops cannot have it.

        Args:
            name: the result of these ops, behind a product of `shape`, which is in `blocks`.
        """
        t, maker = self.graph.tensor(name), self.wiring.producers.get(name)
        if name in self.blocks:
            return self.blocks[name]
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
        self.blocks[name] = y
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
        inputs = [self.of(x) if self._is_heads(x, t.shape) else self._repeated(x, count) for x in maker.inputs]
        assert maker.quantized is not None
        self.made.append(Node.of(maker.quantized, inputs, [y], maker.name, maker.origin))
        return y

    def _exchanged(self, node: Node, depth: int) -> str:
        """Adds a product that puts channels of heads in their places in a QConcat, each through its table."""
        parts, y = self._parts(node), self.graph.tensor(node.outputs[0])
        tables = list(dict.fromkeys(part.table for part in parts))
        x = self.of(parts[0].heads)
        shape = self.graph.tensor(x).shape
        if tables != [None]:
            joined = self.graph.like(y, f"{y.name}.tables", (*shape[:3], len(tables) * self.lanes))
            op = QConcat(axis=3, tables=tuple(tables))
            self.made.append(Node.of(op, [x] * len(tables), [joined], node.name, node.origin))
            x = joined
        weights = np.zeros((len(tables) * self.lanes, self.lanes), np.int8)
        heads = np.arange(0, self.lanes, depth)
        at = 0
        for part in parts:
            for channel in range(part.first, part.end):
                weights[tables.index(part.table) * self.lanes + heads + channel, heads + at] = 1
                at += 1
        result = self.graph.like(y, f"{y.name}.blocks", shape)
        self.made.append(moving(self.graph, node, QMatMul(moves=True), weights, x, result))
        return result


@dataclass
class _Cache:
    """A state whose narrow heads lie side by side.

    Attributes:
        blocks: the heads in blocks.
        state: the state.
        put: the node that puts new rows into it.
        products: the products that read it.
        joins: nodes that joined the heads of products with values.
        end: name of the state's blocks.
    """

    blocks: _Blocks
    state: State
    put: Node
    products: list[Node] = field(default_factory=list)
    joins: list[Node] = field(default_factory=list)
    end: str = ""

    @staticmethod
    def of(blocks: _Blocks, state: State) -> _Cache | None:
        """Returns a state with narrow heads that is changed in place; None for another."""
        graph, producers = blocks.graph, blocks.wiring.producers
        put, t = producers[state.end], graph.tensor(state.end)
        places = producers.get(put.inputs[1]) if put.op == "ScatterElements" else None
        if places is None or places.op != "Expand" or int(put.attrs.get("axis", 0)) % 4 != 2:
            return None
        if not is_activation(t) or len(t.shape) != 4 or t.shape[3] >= blocks.lanes or not blocks.takes(put.inputs[2]):
            return None
        if graph.tensor(places.inputs[0]).shape != (1, 1, graph.tensor(put.inputs[2]).shape[2], 1):
            return None
        config = blocks.rewriter.config
        if t.shape[2] % max(config.block_in, config.block_out):
            return None
        cache = _Cache(blocks, state, put)
        return cache if cache._is_multiplied(state.end) and cache.products else None

    def _is_multiplied(self, name: str) -> bool:
        """Returns True if all readers of a tensor are products of activations that can take blocks of heads."""
        wiring = self.blocks.wiring
        for reader in wiring.readers(name):
            if reader.op in ("Reshape", "Transpose"):
                if not self._is_multiplied(reader.outputs[0]):
                    return False
            elif isinstance(reader.quantized, QMatMul) and reader.inputs[1] == name and len(reader.inputs) == 2:
                taken = self._takes_keys(reader) if self._is_keys(reader) else self._takes_values(reader)
                if not taken or not self.blocks.rewriter.runs_on_npu(reader):
                    return False
                self.products.append(reader)
            else:
                return False
        return True

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Heads, rows and channels of a head."""
        _, heads, length, depth = self.blocks.graph.tensor(self.state.end).shape
        return heads, length, depth

    def _is_keys(self, product: Node) -> bool:
        """Returns True if a product's second operand is the cache with rows and channels exchanged."""
        heads, length, depth = self.sizes
        name, chain = product.inputs[1], list[Node]()
        while name != self.state.end:
            chain.insert(0, self.blocks.wiring.producers[name])
            name = chain[0].inputs[0]
        found = self.blocks.moved(np.arange(heads * length * depth), name, chain)
        places = np.arange(heads * length * depth).reshape(heads, length, depth)
        if np.array_equal(found.reshape(heads, *found.shape[-2:]), places.transpose(0, 2, 1)):
            return True
        return False

    def _queries(self, product: Node) -> str | None:
        """Returns the queries [1, heads, rows, channels] of a product with keys."""
        name = product.inputs[0]
        maker = self.blocks.wiring.producers.get(name)
        if len(self.blocks.wiring.shape(name)) == 5 and maker is not None and maker.op == "Reshape":
            name = maker.inputs[0]
        return name if len(self.blocks.wiring.shape(name)) == 4 else None

    def _takes_keys(self, product: Node) -> bool:
        name, heads = self._queries(product), self.sizes[0]
        return name is not None and self.blocks.takes(name) and self.blocks.wiring.shape(name)[1] % heads == 0

    def _takes_values(self, product: Node) -> bool:
        heads, length, depth = self.sizes
        shape = self.blocks.wiring.shape(product.inputs[1])
        if shape not in ((1, heads, length, depth), (1, heads, 1, length, depth)):
            return False
        joins = self._joins(product)
        self.joins += joins
        return bool(joins)

    def _joins(self, product: Node) -> list[Node]:
        """Returns the moves, each the only reader of what is before, that make rows of a product's heads; or none."""
        name, chain, wiring = product.outputs[0], list[Node](), self.blocks.wiring
        *_, length, depth = wiring.shape(name)
        heads = self.blocks.graph.tensor(name).size // (length * depth)
        places = np.arange(heads * length * depth)
        wanted = places.reshape(heads, length, depth).transpose(1, 0, 2)
        while len(wiring.readers(name)) == 1 and name not in self.blocks.graph.outputs:
            node = wiring.readers(name)[0]
            if node.op not in ("Reshape", "Transpose"):
                break
            chain.append(node)
            name = node.outputs[0]
            if wiring.shape(name) in ((1, length, heads * depth), (length, heads * depth)):
                found = self.blocks.moved(places, product.outputs[0], chain)
                return chain if np.array_equal(found.reshape(-1), wanted.reshape(-1)) else []
        return []

    def replace(self, node: Node) -> None:
        """Adds the nodes that replace the one that puts rows in, or a product."""
        if node is self.put:
            self._put()
        elif self._is_keys(node):
            self._keys(node)
        else:
            self._values(node)

    def _put(self) -> None:
        graph, blocks, put, state = self.blocks.graph, self.blocks, self.put, self.state
        heads, length, depth = self.sizes
        count, lanes = heads * depth // blocks.lanes, blocks.lanes
        shape = (1, count, length, lanes)
        begin = graph.like(graph.tensor(state.begin), f"{state.begin}.side", shape)
        self.end = graph.like(graph.tensor(state.end), f"{state.end}.side", shape)
        new = blocks.images(put.inputs[2])
        places = blocks.wiring.producers[put.inputs[1]]
        wide = graph.like(graph.tensor(put.inputs[1]), f"{put.inputs[1]}.side", graph.tensor(new).shape)
        target = graph.constant("shape", np.array(graph.tensor(new).shape, np.int64))
        blocks.made.append(Node("Expand", [places.inputs[0], target], [wide], {}, places.name, places.origin))
        inputs = [begin, wide, new]
        blocks.made.append(Node("ScatterElements", inputs, [self.end], put.attrs, put.name, put.origin))
        graph.inputs[graph.inputs.index(state.begin)] = begin
        graph.outputs[graph.outputs.index(state.end)] = self.end
        initial = state.initial.reshape(1, count, lanes // depth, length, depth).transpose(0, 1, 3, 2, 4).reshape(shape)
        kept = replace(state, begin=begin, end=self.end, initial=initial, shape=state.initial.shape)
        graph.states = [kept if other is state else other for other in graph.states]

    def _apart(self, queries: int) -> np.ndarray:
        """Returns weights of 0 and 1 [channels, lanes] that give so many queries of each head of a block, one behind
        the other, blocks of their own."""
        depth, lanes = self.sizes[2], self.blocks.lanes
        weights = np.zeros((queries * lanes, queries * lanes // depth * lanes), np.int8)
        for query in range(queries * lanes // depth):
            own = np.arange(depth)
            weights[query * depth + own, query * lanes + query // queries * depth + own] = 1
        return weights

    def _keys(self, node: Node) -> None:
        """Adds the product of queries, each in a block of its own, with keys side by side."""
        graph, blocks, name = self.blocks.graph, self.blocks, self._queries(node)
        assert name is not None and isinstance(node.quantized, QMatMul)
        heads, length, depth = self.sizes
        _, queries, rows, _ = graph.tensor(name).shape
        groups, mover, lanes = heads * depth // blocks.lanes, blocks.mover(node), blocks.lanes
        each = queries // groups
        x, t, y = blocks.images(name), graph.tensor(name), graph.tensor(node.outputs[0])
        x = split(mover, joined(mover, x), groups)
        wide = graph.like(t, f"{name}.apart", (1, groups, rows, each * lanes))
        blocks.made.append(moving(graph, node, QMatMul(moves=True), self._apart(queries // heads), x, wide))
        apart = split(mover, joined(mover, wide), queries)
        shape = (1, groups, each, lanes) if blocks.single else (1, groups, each, rows, lanes)
        apart = mover.reshape(apart, shape)
        keys = self._shared(mover)
        rank = len(graph.tensor(keys).shape)
        keys = mover.transpose(keys, [*range(rank - 2), rank - 1, rank - 2])
        product = graph.like(y, f"{y.name}.side", (*graph.tensor(apart).shape[:-1], length))
        blocks.made.append(Node.of(node.quantized, [apart, keys], [product], node.name, node.origin))
        blocks.blocks[y.name] = product
        mover.reshape(product, y.shape, y.name)

    def _shared(self, mover: Mover) -> str:
        """Adds the move of the cache to images that several heads, or heads as rows, are multiplied with."""
        heads, length, depth = self.sizes
        lanes = self.blocks.lanes
        one = () if self.blocks.single else (1,)
        return mover.reshape(self.end, (1, heads * depth // lanes, *one, length, lanes))

    def _values(self, node: Node) -> None:
        """Adds the product with values side by side, and the one that leaves each head its own channels."""
        graph, blocks, y = self.blocks.graph, self.blocks, self.blocks.graph.tensor(node.outputs[0])
        assert isinstance(node.quantized, QMatMul)
        heads, length, depth = self.sizes
        rows, queries, lanes = y.shape[-2], y.size // (y.shape[-2] * depth), blocks.lanes
        groups, mover = heads * depth // lanes, blocks.mover(node)
        each = queries // groups
        shape = (1, groups, each, length) if blocks.single else (1, groups, each, rows, length)
        scores = blocks.scores(node.inputs[0], shape)
        scores = mover.reshape(node.inputs[0], shape) if scores is None else scores
        product = graph.like(y, f"{y.name}.side", (*shape[:-1], lanes))
        inputs = [scores, self._shared(mover)]
        blocks.made.append(Node.of(node.quantized, inputs, [product], node.name, node.origin))
        flat = joined(mover, mover.reshape(product, (1, queries, rows, lanes)))
        own = graph.like(y, f"{y.name}.own", (1, groups, rows, each * depth))
        weights = self._apart(queries // heads).T.copy()
        blocks.made.append(moving(graph, node, QMatMul(moves=True), weights, split(mover, flat, groups), own))
        result = self._joins(node)[-1].outputs[0]
        mover.reshape(joined(mover, own), graph.tensor(result).shape, result)


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
