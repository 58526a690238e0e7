"""Activations that follow from one integer input alone, tokens or their positions, become rows of tables.

    QuantizeLinear(Where(LessOrEqual(numbers, position), 0, least))  =>  QRow(table [positions, 1, 1, 1, W], position)

So do rows of an embedding and of RoPE's cosine and sine, and several rows whose numbers rise by one. The runtime moves
a window to the first row before it starts the NPU, which then reads from its own memory: nothing is left for the CPU to
look up.

The table is computed here, a row for each value that the input may have. Those are known from the Gathers that it is
the index of: an input is a row of every table, so negative ones, which count from the end, are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.put import QPut
from tilewright.compiler.graph.ops.row import QRow
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.graph.tensor import Tensor
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.compiler.passes.fold.evaluate import node_value
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import REGIONS
from tilewright.isa.program import WINDOW_REGION

_SAME_VALUE = ("Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten")
_ELEMENTWISE = frozenset({
    "Mod", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Not", "And", "Or", "Where", "Cast", "Add",
    "Sub", "Mul", "Cos", "Sin", "QuantizeLinear", "DequantizeLinear",
})  # fmt: skip
_FOLLOWED = frozenset({*_SAME_VALUE, *_ELEMENTWISE, "Gather", "Slice", "Concat", "Transpose", "Expand", "MatMul"})
"""Ops without a random or hidden part, whose values the compiler computes as it folds constants."""
_MOST_VALUES = 1 << 14
"""Values for which the ops of a table are computed; rows of a table that is there already may be more."""


def rows_by_windows(graph: Graph, config: NpuConfig) -> None:
    """Replaces activations that follow from one integer input by rows of tables, as far as there are windows."""
    rewriter = Rewriter(graph, config)
    found = _Followers(rewriter)
    if not any(isinstance(n.quantized, QPut) for n in graph.nodes):
        return  # a table pays where it is what is left for the CPU to do
    others = {w.region: (w.tensor, w.period, w.rows, w.stride) for w in graph.windows}
    taken = others | {WINDOW_REGION: ("", 0, 0, 0)}
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
    if period is None or len(y.shape) < 2 or lanes % rewriter.config.bus_bytes:
        return
    data = found.table(y.name, follows, period)
    if data is None:
        return
    table = Tensor("", data.shape, data.dtype, data, y.quant)
    window = follows, period, QRow.starts(table, y, period), QRow.stride(table, lanes)
    free = next((number for number in range(WINDOW_REGION, REGIONS) if number not in taken), None)
    region = next((number for number, other in taken.items() if other == window), free)
    if region is None:
        return
    taken[region] = window
    rows = graph.constant(f"{y.name}.rows", data, y.quant)
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
            chooses = t.size == 1 or name in self.graph.rising
            self._of[name] = name if name not in states and chooses and t.dtype.kind == "i" else None
        for node in self.graph.nodes:  # in an order in which operands come first
            used = {self._of.get(name) for name in node.inputs if name and self.graph.const(name) is None}
            follows = used.pop() if len(used) == 1 and node.op in _FOLLOWED and len(node.outputs) == 1 else None
            if node.op == "Slice" and follows is not None and self.graph.tensor(follows).size > 1:
                follows = None  # the NPU reads a part of the rows in place
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
        """Returns a tensor's value, of several its row, for every value of the input, without the last ones that are
        equal; None if they are too many to compute, or a row follows from other values, too."""
        shape, count = self.graph.tensor(name).shape, self.graph.tensor(follows).size
        nodes = self._nodes(name)
        if count > 1:
            if math.prod(shape[:-1]) != count or shape[-2] != count or not self._by_rows(nodes, name, follows):
                return None
            shape = (*shape[:-2], 1, shape[-1])
        gather = self.producers.get(self.index_of(name))
        data = None if gather is None or gather.op != "Gather" else self.graph.const(gather.inputs[0])
        if gather is not None and data is not None and self.index_of(gather.inputs[1]) == follows:
            if int(gather.attrs.get("axis", 0)) == 0:
                return data[:period].reshape(period, *shape)
        if period > _MOST_VALUES or period * math.prod(shape) > 1 << 28:
            return None
        values = [self._value(nodes, name, follows, first, period - 1) for first in range(0, period, count)]
        rows = np.stack(values) if count == 1 else np.concatenate(values, -2)[..., :period, :]
        rows = rows.reshape(period, *shape)
        differs = np.flatnonzero((rows != rows[-1]).reshape(period, -1).any(1))
        return rows[: (int(differs[-1]) + 1 if differs.size else 0) + count]

    def _nodes(self, name: str) -> list[Node]:
        """Returns the nodes that make a tensor, in an order in which operands come first."""
        needed, found = {name}, []
        for node in reversed(self.graph.nodes):
            if needed.intersection(node.outputs):
                found.append(node)
                needed.update(node.inputs)
        return found[::-1]

    def _by_rows(self, nodes: list[Node], name: str, follows: str) -> bool:
        """Returns True if each row of a tensor, along its last axis but one, follows from its own value of the input.

        Args:
            nodes: the nodes that make the tensor.
        """
        axes = {follows: _longest(self.graph.tensor(follows).shape)}  # of the values, counted from the end
        for node in nodes:
            made = node.outputs[0]
            if self._of[made] == follows:
                axes[made] = self._axis(node, axes, len(self.graph.tensor(made).shape))
        return axes[name] == -2

    def _axis(self, node: Node, axes: Mapping[str, int | None], rank: int) -> int | None:
        """Returns the axis of the values in a node's result, None where each place follows from several of them."""
        shapes = {name: self.graph.tensor(name).shape for name in (*node.inputs, node.outputs[0]) if name}
        first, shape = node.inputs[0], shapes[node.outputs[0]]
        axis, own = axes.get(first), len(shapes[first])
        if node.op == "Gather":
            whole = first not in axes and int(node.attrs.get("axis", 0)) == 0
            at = axes[node.inputs[1]] if whole else None
            return at if at is None else at - (own - 1)
        if node.op in _SAME_VALUE:
            before = None if axis is None else math.prod(shapes[first][:axis])
            found = [i - rank for i in range(rank) if axis is not None and shape[i] == shapes[first][axis]]
            return next((i for i in found if math.prod(shape[:i]) == before), None)
        if node.op == "Transpose":
            return None if axis is None else list(node.attrs["perm"]).index(axis + own) - rank
        if node.op == "Expand":
            return axis if node.inputs[1] not in axes else None
        if node.op not in _ELEMENTWISE:
            return None
        found_axes = {axes[name] for name in node.inputs if name in axes}
        axis = found_axes.pop() if len(found_axes) == 1 else None
        fixed = [shapes[name] for name in node.inputs if name and name not in axes]
        return axis if axis is not None and all(len(s) < -axis or s[axis] == 1 for s in fixed) else None

    def _value(self, nodes: list[Node], name: str, follows: str, first: int, last: int) -> np.ndarray:
        """Returns a tensor's value for one value of the input, of several the first; none is greater than `last`."""
        t = self.graph.tensor(follows)
        known = {follows: np.minimum(first + np.arange(t.size), last).reshape(t.shape).astype(t.dtype)}
        for node in nodes:
            inputs = [known[x] if x in known else self.graph.const(x) if x else None for x in node.inputs]
            known[node.outputs[0]] = node_value(self.graph, node, inputs)[0]
        return known[name]


def _longest(shape: tuple[int, ...]) -> int | None:
    """Returns the one axis of a shape that is longer than 1, counted from the end; None if there are several."""
    found = [axis - len(shape) for axis, size in enumerate(shape) if size > 1]
    return found[0] if len(found) == 1 else None
