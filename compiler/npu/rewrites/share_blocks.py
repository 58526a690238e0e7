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

from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, State
from tilewright.compiler.graph.moves import Mover
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.softmax import QSoftmax
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.graph.states import kept_in_place
from tilewright.compiler.npu.rewrites.channel_moves import moving
from tilewright.compiler.npu.rewrites.head_blocks import HeadBlocks, joined, split
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.isa.config import NpuConfig


def share_blocks(graph: Graph, config: NpuConfig) -> None:
    """Puts narrow heads of caches side by side where the NPU runs all of the attention."""
    rewriter = Rewriter(graph, config)
    softmaxes = [node for node in graph.nodes if isinstance(node.quantized, QSoftmax)]
    if not softmaxes or not all(rewriter.runs_on_npu(node) for node in softmaxes):
        return
    in_place, blocks = kept_in_place(graph), HeadBlocks(rewriter)
    caches = [_Cache.of(blocks, state) for state in graph.states if state.end in in_place]
    found = [cache for cache in caches if cache is not None]
    if found:
        replaced = {id(node): cache for cache in found for node in (cache.put, *cache.products)}
        gone = {id(node) for cache in found for node in cache.joins}
        for node in graph.nodes:
            if id(node) in replaced:
                replaced[id(node)].replace(node)
            elif id(node) not in gone:
                blocks.made.append(node)
        graph.nodes = blocks.made


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

    blocks: HeadBlocks
    state: State
    put: Node
    products: list[Node] = field(default_factory=list)
    joins: list[Node] = field(default_factory=list)
    end: str = ""

    @staticmethod
    def of(blocks: HeadBlocks, state: State) -> _Cache | None:
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
        return np.array_equal(found.reshape(heads, *found.shape[-2:]), places.transpose(0, 2, 1))

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
        blocks.rows[y.name] = product
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
