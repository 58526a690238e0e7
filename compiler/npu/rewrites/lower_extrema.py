"""Maxima and minima of integers, lowered to ops of the NPU.

    Max(a, b)                   =>  max(a - b, 0) + b        two QAdds: the difference is a uint8
    Min(a, b)                   =>  b - max(b - a, 0)
    Where(constant, a, b)       =>  Max(Min(a, m), Min(b, n))   m is the largest value where a is chosen, n where b is;
                                    Max(Min(a, m), n)           of a constant b, which is n elsewhere
    ReduceMax of rows, columns  =>  QMaxPool with a window of their size
    ReduceMin of rows, columns  =>  the same of all bits inverted
    ReduceMax of channels       =>  Max of the first half of them and the last, until one is left; within a block a
                                    QConv 1x1 with weights 0 and 1 moves the last half to the place of the first

All tensors have one scale, and every step is exact. A tensor that the CPU makes and reads stays as it is.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.moves import Mover
from tilewright.compiler.graph.ops.elementwise import IDENTITY_TABLE, AddConstants, QAdd, QLut
from tilewright.compiler.graph.ops.pooling import QMaxPool
from tilewright.compiler.graph.quantization import is_activation, limits
from tilewright.compiler.npu.place.place import usual_layout
from tilewright.compiler.npu.rewrites.channel_moves import MOST_KERNEL, ROWS_AS_PLANES, selected
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.compiler.npu.views import broadcast_ok
from tilewright.compiler.passes.fold.clean_up import clean_up
from tilewright.isa.config import NpuConfig

_MINUS, _PLUS = AddConstants(1, -1, 0, 0), AddConstants(1, 1, 0, 0)


def lower_extrema(graph: Graph, config: NpuConfig) -> None:
    """Replaces Max, Min, Where and their reductions between layers of the NPU by integer Adds and pools."""
    rewriter = Rewriter(graph, config)

    def replacement(node: Node) -> list[Node] | None:
        made = _Extremum(rewriter, node)
        return made.nodes if made.replaces() else None

    if rewriter.replace_nodes(replacement, track=True):
        clean_up(graph)  # removes the moves that brought the result back in place


class _Extremum(Struct):
    """A node that finds extrema of 8-bit integers, and the nodes that replace it.

    Attributes:
        rewriter: the graph.
        node: the node.
        nodes: the replacing nodes.
    """

    rewriter: Rewriter
    node: Node
    nodes: list[Node] = field(default_factory=list)

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.rewriter.graph

    def replaces(self) -> bool:
        """Makes the nodes; returns False if the node is no such op, or not for the NPU."""
        node = self.node
        if node.op not in ("Max", "Min", "Where", "ReduceMax", "ReduceMin"):
            return False
        inputs = {"Where": node.inputs[1:], "Max": node.inputs, "Min": node.inputs}.get(node.op, node.inputs[:1])
        tensors = [self.graph.tensor(name) for name in inputs]
        y = self.graph.tensor(node.outputs[0])
        if y.quant is None or not all(
            is_activation(t) and t.dtype == y.dtype and y.quant.same_as(t.quant) for t in tensors
        ):
            return False
        if node.op in ("Max", "Min", "Where"):
            return self._pair(tensors, y)
        return self._reduction(tensors[0], y)

    def _pair(self, operands: list[Tensor], y: Tensor) -> bool:
        """Makes the nodes of Max, Min or Where with operands; returns False if the NPU cannot run them."""
        chosen = self.graph.const(self.node.inputs[0]) if self.node.op == "Where" else None
        layout = usual_layout(self.rewriter.wiring, self.node)
        if len(operands) != 2 or all(t.shape != y.shape for t in operands):
            return False
        if not all(broadcast_ok(t.shape, y.shape, layout, t.is_const) for t in operands):
            return False
        made = any(self.rewriter.made_by_npu(t.name) for t in operands)
        if not made and not self.rewriter.read_by_npu(y.name):
            return False
        a, b = operands
        if self.node.op == "Where":
            return chosen is not None and self._chosen(chosen, a, b, y)
        self._larger(a.name, b.name, y.name, self.node.op == "Min")
        return True

    def _chosen(self, first: np.ndarray, a: Tensor, b: Tensor, y: Tensor) -> bool:
        """Makes the nodes of a Where: elements of `a` where `first` is True, of `b` elsewhere.

        The operand that is not chosen is set to the smallest value.

        Returns:
            False if the NPU cannot run them.
        """
        low, high = limits(y.dtype)
        if any(t.shape != y.shape and not t.is_const for t in (a, b)):
            return False
        parts = []
        for t, keep in ((a, first), (b, ~first)):
            if t.data is not None:
                parts.append(self._constant(np.where(keep, t.data, low), y))
                continue
            parts.append(self._like(t.name, y.shape))
            self._larger(t.name, self._constant(np.where(keep, high, low), y), parts[-1], smaller=True)
        self._larger(parts[0], parts[1], y.name)
        return True

    def _constant(self, values: np.ndarray, y: Tensor) -> str:
        """Adds a constant with the type and quantisation of y; returns its name."""
        return self.graph.constant(f"{y.name}.chosen", values.astype(y.dtype), y.quant)

    def _larger(self, a: str, b: str, y: str, smaller: bool = False) -> None:
        """Makes the nodes that write the larger (or the smaller) one of two tensors to `y`, element by element."""
        result = self.graph.tensor(y)
        assert result.quant is not None
        name = self.graph.unique(f"{y}.above")
        self.graph.add(Tensor(name, result.shape, np.dtype(np.uint8), None, Quant.of(result.quant.scale, 0)))
        difference = [b, a] if smaller else [a, b]
        self._emit(QAdd(constants=_MINUS), difference, name)
        self._emit(QAdd(constants=_MINUS if smaller else _PLUS), [b, name] if smaller else [name, b], y)

    def _reduction(self, x: Tensor, y: Tensor) -> bool:
        """Makes the nodes of ReduceMax or ReduceMin; returns False if the NPU cannot run them.

        Rows of channels are read as planes of one row each.
        """
        axes = self.graph.const(self.node.inputs[1]) if len(self.node.inputs) > 1 else None
        if axes is None or axes.size == 0 or not self.rewriter.made_by_npu(x.name):
            return False
        chosen, perm = {int(axis) % len(x.shape) for axis in axes.reshape(-1)}, None
        maker = self.rewriter.wiring.producers.get(x.name)
        if len(x.shape) == 4 and maker is not None and maker.op == "Transpose":  # planes with their channels last
            perm, x = maker.attrs["perm"], self.graph.tensor(maker.inputs[0])
            chosen = {perm[axis] for axis in chosen}
        if x.quant is None or not x.quant.same_as(y.quant):
            return False
        rows = not self.rewriter.in_planes(x.name)
        if len(x.shape) not in (3, 4) or (rows and len(x.shape) == 4):
            return False
        if rows:
            chosen = {ROWS_AS_PLANES[axis] for axis in chosen}
        shape = tuple(x.shape[axis] for axis in ROWS_AS_PLANES) if rows else x.shape
        kernel = tuple(size if axis + 2 in chosen else 1 for axis, size in enumerate(shape[2:]))
        inverted = self.node.op == "ReduceMin"
        if 0 in chosen or max(kernel) > MOST_KERNEL or (inverted and not self.rewriter.config.table_lookup):
            return False
        found = x.name
        if rows:
            found = self.mover.transpose(found, ROWS_AS_PLANES)
        if inverted:
            found = self._inverted(found)
        if set(kernel) != {1}:
            space = tuple(1 if k > 1 else size for k, size in zip(kernel, shape[2:], strict=True))
            pooled = self._like(found, (*shape[:2], *space))
            self._emit(QMaxPool(kernel=kernel), [found], pooled)
            found = pooled
        if 1 in chosen:
            found = self._of_channels(found)
        if inverted:
            found = self._inverted(found)
        if perm is not None:
            found = self.mover.transpose(found, perm)
        self.mover.reshape(found, y.shape, y.name)
        return True

    def _of_channels(self, x: str) -> str:
        """Makes the nodes of the maximum over channels, halving their number each time; returns the result's name.

        If there are several blocks, the halves begin with one.
        """
        block = self.rewriter.config.block_in
        while (channels := self.graph.tensor(x).shape[1]) > 1:
            blocks = -(-channels // block)
            half = -(-blocks // 2) * block if blocks > 1 else -(-channels // 2)
            n, _, *space = self.graph.tensor(x).shape
            parts = []
            for first in (0, channels - half):
                part = self._like(x, (n, half, *space))
                if first % block:
                    places = np.arange(first, first + half)
                    self.nodes.append(selected(self.graph, self.node, x, part, places))
                else:
                    self.mover.slice(x, 1, first, first + half, part)
                parts.append(part)
            x = self._like(x, (n, half, *space))
            self._larger(parts[0], parts[1], x)
        return x

    def _inverted(self, x: str) -> str:
        """Makes a table that inverts all bits of a byte, so that minima become maxima; returns the result's name."""
        before = self.graph.tensor(x)
        assert before.quant is not None
        quant = Quant.of(before.quant.scale, sum(limits(before.dtype)) - int(before.quant.zero_point))
        name = self.graph.unique(f"{self.node.outputs[0]}.inverted")
        self.graph.add(Tensor(name, before.shape, before.dtype, None, quant))
        self._emit(QLut(table=IDENTITY_TABLE[::-1]), [x], name)
        return name

    def _like(self, x: str, shape: tuple[int, ...]) -> str:
        """Adds a tensor of the type and scale of x; returns its name."""
        return self.graph.like(self.graph.tensor(x), self._stem, shape)

    @property
    def mover(self) -> Mover:
        return Mover(self.graph, self.nodes, self.node.name, self.node.origin, self._stem)

    @property
    def _stem(self) -> str:
        """The stem of names for intermediate tensors."""
        return f"{self.node.outputs[0]}.part"

    def _emit(self, op: QAdd | QMaxPool | QLut, inputs: list[str], y: str) -> None:
        """Adds a quantised node under the name and origin of the replaced one."""
        self.nodes.append(Node.of(op, inputs, [y], self.node.name, self.node.origin))
