"""Caches of keys and values are kept as the NPU reads them: in blocks of lanes.

    ScatterElements(cache [1, H, W, D], rows, new, axis=2)
      =>  Reshape(Transpose(ScatterElements(blocks [H * D / lanes, W, lanes], rows, new in blocks, axis=1)))

A row whose number follows from an input becomes a QPut, which the NPU does; so do several whose numbers rise by one.

Sixteen positions of sixteen channels are then one weight tile of a product with keys. So no attention packs the whole
cache for the row that is new. What else reads the cache has it in its own shape, by the moves behind.

Only caches of attention that the NPU does as a whole are kept so: a state that rows are put into in place, whose heads
and rows fill blocks, read by a product of activations, in a graph whose every Softmax the NPU runs.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, State
from tilewright.compiler.graph.moves import Mover
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.put import QPut
from tilewright.compiler.graph.ops.softmax import QSoftmax
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.graph.states import kept_in_place
from tilewright.compiler.npu.blocks.alias import MOVES
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import WINDOW_REGION


def block_states(graph: Graph, config: NpuConfig) -> None:
    """Keeps caches of keys and values in blocks of lanes."""
    rewriter = Rewriter(graph, config)
    rows = [node for node in graph.nodes if isinstance(node.quantized, QSoftmax)]
    if not rows or not all(rewriter.runs_on_npu(node) for node in rows):
        return
    in_place = kept_in_place(graph)
    found = {state.name: _Blocks.of(rewriter, state) for state in graph.states if state.end in in_place}
    window = next(((w.tensor, w.period) for w in graph.windows if w.region == WINDOW_REGION), None)
    for blocks in (found.get(state.name) for state in graph.states):
        if blocks is not None:
            position = blocks.position()
            if position is not None and window is None:
                window = position, blocks.length
            blocks.write(position if (position, blocks.length) == window else None)


class _Blocks:
    """A state whose tensors become its blocks.

    Attributes:
        rewriter: the graph.
        state: the state.
        put: the node that puts new rows into it.
        rows: int64 [1, 1, rows, 1], the tensor with the places of these.
    """

    def __init__(self, rewriter: Rewriter, state: State, put: Node, rows: str) -> None:
        self.rewriter, self.state, self.put, self.rows = rewriter, state, put, rows

    @staticmethod
    def of(rewriter: Rewriter, state: State) -> _Blocks | None:
        """Returns the blocks of a state that is changed in place; None if it stays as it is."""
        graph, producers, config = rewriter.graph, rewriter.wiring.producers, rewriter.config
        put, cache = producers[state.end], graph.tensor(state.end)
        if put.op != "ScatterElements" or not is_activation(cache) or cache.dtype != np.int8 or len(cache.shape) != 4:
            return None
        places = producers.get(put.inputs[1])
        spread = graph.tensor(places.inputs[0]).shape if places is not None and places.op == "Expand" else ()
        count = graph.tensor(put.inputs[2]).shape[2]
        if int(put.attrs.get("axis", 0)) % 4 != 2 or spread != (1, 1, count, 1) or places is None:
            return None
        batch, _, length, depth = cache.shape
        if batch != 1 or depth % config.block_in or length % max(config.block_in, config.block_out):
            return None
        return _Blocks(rewriter, state, put, places.inputs[0]) if _multiplied(rewriter, state.end) else None

    @property
    def length(self) -> int:
        """Rows of the cache."""
        return self.rewriter.graph.tensor(self.state.end).shape[2]

    def position(self) -> str | None:
        """Returns the graph's input that the rows' numbers are, or are modulo the cache's length."""
        graph, producers, rows = self.rewriter.graph, self.rewriter.wiring.producers, self.rows
        while (maker := producers.get(rows)) is not None:
            if maker.op == "Mod":
                period = graph.const(maker.inputs[1])
                whole = period is not None and period.size == 1 and not maker.attrs.get("fmod", 0)
                if period is None or not whole or int(period.reshape(())) != self.length:
                    return None
            elif maker.op not in ("Reshape", "Unsqueeze", "Squeeze", "Identity"):
                return None
            rows = maker.inputs[0]
        return rows if rows in graph.inputs and (graph.tensor(rows).size == 1 or rows in graph.rising) else None

    def write(self, position: str | None) -> None:
        """Replaces the state's tensors and the node that puts rows into it.

        Args:
            position: the input that the new rows follow from, None where the CPU puts rows in.
        """
        graph, state, put = self.rewriter.graph, self.state, self.put
        cache, lanes = graph.tensor(state.end), self.rewriter.config.block_in
        _, heads, length, depth = cache.shape
        count = graph.tensor(put.inputs[2]).shape[2]
        parts = depth // lanes
        shape = (heads * parts, length, lanes)
        begin = graph.like(graph.tensor(state.begin), f"{state.begin}.blocks", shape)
        end = graph.like(cache, f"{cache.name}.blocks", shape)
        made: list[Node] = []
        mover = Mover(graph, made)
        places = mover.reshape(self.rows, (1, count, 1))
        if position is None:
            split = mover.transpose(mover.reshape(put.inputs[2], (heads, count, parts, lanes)), [0, 2, 1, 3])
            new = mover.reshape(split, (heads * parts, count, lanes))
            target = graph.constant("shape", np.array((heads * parts, count, lanes), np.int64))
            wide = graph.like(graph.tensor(put.inputs[1]), f"{put.inputs[1]}.blocks", (heads * parts, count, lanes))
            made.append(Node("Expand", [places, target], [wide], {}, wide))
            made.append(_moved(put, [begin, wide, new], end))
        else:
            made.append(Node.of(QPut(position=position), [begin, put.inputs[2], position], [end], put.name, put.origin))
        joined = mover.transpose(mover.reshape(end, (heads, parts, length, lanes)), [0, 2, 1, 3])
        mover.reshape(joined, cache.shape, cache.name)
        at = next(i for i, node in enumerate(graph.nodes) if node is put)
        graph.nodes[at : at + 1] = made
        graph.inputs[graph.inputs.index(state.begin)] = begin
        graph.outputs[graph.outputs.index(state.end)] = end
        initial = state.initial.reshape(heads, length, parts, lanes).transpose(0, 2, 1, 3).reshape(shape)
        kept = replace(state, begin=begin, end=end, initial=initial, plain=cache.name)
        graph.states = [kept if other is state else other for other in graph.states]


def _moved(put: Node, inputs: list[str], output: str) -> Node:
    """Returns a ScatterElements along axis 1 in place of another one."""
    return Node("ScatterElements", inputs, [output], {**put.attrs, "axis": 1}, put.name, put.origin)


def _multiplied(rewriter: Rewriter, name: str) -> bool:
    """Returns True if products of activations alone read a tensor, directly or through moves."""
    left, seen, products = [name], {name}, 0
    while left:
        for reader in rewriter.wiring.readers(left.pop()):
            if reader.op in MOVES:
                left += [made for made in reader.outputs if made and made not in seen]
                seen.update(reader.outputs)
            elif isinstance(reader.quantized, QMatMul) and reader.inputs[1] in seen:
                products += 1
            else:
                return False
    return products > 0 and math.prod(rewriter.wiring.shape(name)) > 0
