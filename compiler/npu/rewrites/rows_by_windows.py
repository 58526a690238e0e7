"""Activations that follow from one integer input alone, the token or its position, become rows of tables.

    QuantizeLinear(Where(LessOrEqual(numbers, position), 0, least))  =>  QRow(table [positions, 1, 1, 1, W], position)

So do rows of an embedding and of RoPE's cosine and sine. The runtime moves a window to the row before it starts the
NPU, which then reads it from its own memory: nothing is left for the CPU to look up.

The table is computed here, a row for each value that the input may have. Those are known from the Gathers that it is
the index of: an input is a row of every table, so negative ones, which count from the end, are refused.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.put import QPut
from tilewright.compiler.graph.ops.row import QRow
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.compiler.passes.fold.evaluate import node_value
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import REGIONS
from tilewright.isa.program import WINDOW_REGION

_SAME_VALUE = ("Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten")
_FOLLOWED = frozenset({
    *_SAME_VALUE, "Gather", "Slice", "Concat", "Transpose", "Expand", "Mod", "Less", "LessOrEqual", "Greater",
    "GreaterOrEqual", "Equal", "Not", "And", "Or", "Where", "Cast", "Add", "Sub", "Mul", "MatMul", "Cos", "Sin",
    "QuantizeLinear", "DequantizeLinear",
})  # fmt: skip
"""Ops without a random or hidden part, whose values the compiler computes as it folds constants."""
_MOST_VALUES = 1 << 14
"""Values for which the ops of a table are computed; rows of a table that is there already may be more."""


def rows_by_windows(graph: Graph, config: NpuConfig) -> None:
    """Replaces activations that follow from one integer input by rows of tables, as far as there are windows."""
    rewriter = Rewriter(graph, config)
    found = _Followers(rewriter)
    taken = {WINDOW_REGION: ("", 0, 0, 0)} if any(isinstance(n.quantized, QPut) for n in graph.nodes) else {}
    if not taken:
        return  # a table pays where it is what is left for the CPU to do
    for node in list(graph.nodes):
        name = node.outputs[0]
        follows = found.of(name)
        if follows and is_activation(graph.tensor(name)) and _is_last(rewriter, found, name):
            _replace(rewriter, found, node, follows, taken)


def _is_last(rewriter: Rewriter, found: _Followers, name: str) -> bool:
    """Returns True if all that reads a tensor needs something else, too, and the NPU reads it."""
    readers = rewriter.wiring.readers(name)
    return rewriter.read_by_npu(name) and not any(found.of(made) for node in readers for made in node.outputs)


def _replace(
    rewriter: Rewriter, found: _Followers, node: Node, follows: str, taken: dict[int, tuple[str, int, int, int]]
) -> None:
    """Makes a row of a table of a node's result.

    Args:
        taken: input, number of values, number of rows, and bytes of a row by the number of the window; it grows.
    """
    graph, y, lanes = rewriter.graph, rewriter.graph.tensor(node.outputs[0]), rewriter.config.block_in
    period = found.values(follows)
    if period is None or len(y.shape) < 2:
        return
    if lanes % rewriter.config.bus_bytes:
        return
    table = found.table(y.name, follows, period)
    if table is None:
        return
    window = follows, period, len(table), QRow.stride(y, lanes)
    region = next((number for number, other in taken.items() if other == window), WINDOW_REGION + len(taken))
    if region >= REGIONS:
        return
    taken[region] = window
    rows = graph.constant(f"{y.name}.rows", table, y.quant)
    row = Node.of(QRow(region=region, period=period), [rows, follows], [y.name], node.name, node.origin)
    graph.nodes[next(i for i, other in enumerate(graph.nodes) if other is node)] = row


class _Followers:
    """Tensors that follow from constants and one integer input.

    Args:
        rewriter: the graph.
    """

    def __init__(self, rewriter: Rewriter) -> None:
        self.graph, self.producers = rewriter.graph, rewriter.wiring.producers
        states = {state.begin for state in self.graph.states}
        self._of: dict[str, str | None] = {}
        for name in self.graph.inputs:
            t = self.graph.tensor(name)
            self._of[name] = name if name not in states and t.size == 1 and t.dtype.kind == "i" else None
        for node in self.graph.nodes:  # in an order in which operands come first
            used = {self._of.get(name) for name in node.inputs if name and self.graph.const(name) is None}
            follows = used.pop() if len(used) == 1 and node.op in _FOLLOWED and len(node.outputs) == 1 else None
            self._of.update(dict.fromkeys(node.outputs, follows))

    def of(self, name: str) -> str | None:
        """Returns the input that a tensor follows from, None for another or a constant."""
        return self._of.get(name)

    def index_of(self, name: str) -> str:
        """Returns the tensor that has the one value of another, as far back as it is the same."""
        while (maker := self.producers.get(name)) is not None and maker.op in _SAME_VALUE:
            name = maker.inputs[0]
        return name

    def values(self, follows: str) -> int | None:
        """Returns the number of values, from 0, that an input may have; None if no table says so."""
        sizes = [
            self.graph.tensor(node.inputs[0]).shape[int(node.attrs.get("axis", 0))]
            for node in self.graph.nodes
            if node.op == "Gather" and self.index_of(node.inputs[1]) == follows
        ]
        sizes += [
            node.quantized.period
            for node in self.graph.nodes
            if isinstance(node.quantized, QRow) and node.inputs[1] == follows
        ]
        return min(sizes, default=None)

    def table(self, name: str, follows: str, period: int) -> np.ndarray | None:
        """Returns a tensor's value for every value of the input, without the last ones that are equal; None if they
        are too many to compute."""
        shape = self.graph.tensor(name).shape
        gather = self.producers.get(self.index_of(name))
        data = None if gather is None or gather.op != "Gather" else self.graph.const(gather.inputs[0])
        if gather is not None and data is not None and self.index_of(gather.inputs[1]) == follows:
            if int(gather.attrs.get("axis", 0)) == 0:
                return data[:period].reshape(period, *shape)
        nodes = self._nodes(name)
        if period > _MOST_VALUES or period * math.prod(shape) > 1 << 28:
            return None
        rows = np.stack([self._value(nodes, name, follows, value) for value in range(period)])
        differs = np.flatnonzero((rows != rows[-1]).reshape(period, -1).any(1))
        return rows[: int(differs[-1]) + 2 if differs.size else 1]

    def _nodes(self, name: str) -> list[Node]:
        """Returns the nodes that make a tensor, in an order in which operands come first."""
        needed, found = {name}, []
        for node in reversed(self.graph.nodes):
            if needed.intersection(node.outputs):
                found.append(node)
                needed.update(node.inputs)
        return found[::-1]

    def _value(self, nodes: list[Node], name: str, follows: str, value: int) -> np.ndarray:
        """Returns a tensor's value for one value of the input."""
        t = self.graph.tensor(follows)
        known = {follows: np.full(t.shape, value, t.dtype)}
        for node in nodes:
            inputs = [known[x] if x in known else self.graph.const(x) if x else None for x in node.inputs]
            known[node.outputs[0]] = node_value(self.graph, node, inputs)[0]
        return known[name]
