"""Means and sums over any axes of tensors that the NPU makes.

The importers turn the axes of a mean into planes by a Transpose and a Reshape; a layer would have to wait for the CPU
to move the bytes. The array adds up the bytes in place:

    a mean over channels, rows, columns    =>  QConv with weights of 1, and a kernel of the size of the added axes
    a mean over rows and columns           =>  QGlobalAveragePool of the planes themselves
    rows of channels [N, T, C]             =>  the same of planes [N, C, T], which are the same bytes

The scale of the weights is such that every sum gives the byte of the mean.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
from msgspec import Struct, field

from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.moves import Mover
from tilewright.compiler.graph.ops.convolution import QConv
from tilewright.compiler.graph.ops.pooling import QGlobalAveragePool
from tilewright.compiler.graph.quantization import limits
from tilewright.compiler.npu.rewrites.channel_moves import MOST_KERNEL, ROWS_AS_PLANES
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.compiler.passes.fold.clean_up import clean_up
from tilewright.isa import numerics
from tilewright.isa.config import NpuConfig

#: Largest number of elements whose sums are all compared.
_MOST_TRIED = 1 << 12
#: Number of neighbouring float32 values that are tried as a scale.
_NEIGHBOURS = 8
_MOVES = ("Transpose", "Reshape")


def lower_means(graph: Graph, config: NpuConfig) -> None:
    """Replaces means and sums over any axes on the NPU by convolutions with weights of 1, or by means of planes."""
    rewriter = Rewriter(graph, config)
    nodes: list[Node] = []
    replaced: set[int] = set()
    for node in graph.nodes:
        if id(node) in replaced:
            continue
        made = _Mean(rewriter, node)
        if made.replaces():
            nodes += made.nodes
            replaced.update(id(other) for other in (node, *made.passed))
            rewriter.wiring.exchange([node, *made.passed], made.nodes)
        else:
            nodes.append(node)
    if replaced:
        graph.nodes = nodes
        clean_up(graph)  # removes the moves that brought the result back in place


class _Mean(Struct):
    """A mean of moved elements, and the nodes that replace it.

    Attributes:
        rewriter: the graph.
        node: the mean.
        nodes: the replacing nodes.
        passed: moves behind the mean that are replaced as well.
    """

    rewriter: Rewriter
    node: Node
    nodes: list[Node] = field(default_factory=list)
    passed: list[Node] = field(default_factory=list)

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.rewriter.graph

    def replaces(self) -> bool:
        """Makes the nodes; returns False if the node is no such mean, or not for the NPU."""
        op = self.node.quantized
        if not isinstance(op, QGlobalAveragePool):
            return False
        moves = self._moves()
        return any(self._replaces(op, moves[first:]) for first in range(len(moves) + 1))

    def _replaces(self, op: QGlobalAveragePool, moves: list[Node]) -> bool:
        """Makes the nodes with `moves` before the mean as part of it; returns False if that is not possible."""
        self.nodes, self.passed = [], []
        x = self.graph.tensor(moves[0].inputs[0] if moves else self.node.inputs[0])
        planes = self.rewriter.in_planes(x.name)
        if not self.rewriter.made_by_npu(x.name) or (planes and not moves):
            return False
        if len(x.shape) != 3 and not (planes and len(x.shape) == 4):
            return False
        found = self._axes(x, moves)
        return found is not None and self._add_up(op, x, planes, *found)

    def _moves(self) -> list[Node]:
        """Returns the nodes that move the elements before they are added up, in order."""
        found: list[Node] = []
        name = self.node.inputs[0]
        quant = self.graph.tensor(name).quant
        while (maker := self.rewriter.wiring.producers.get(name)) is not None and maker.op in _MOVES:
            before = self.graph.tensor(maker.inputs[0])
            if quant is None or not quant.same_as(before.quant):
                break
            found.insert(0, maker)
            name = before.name
        return found

    def _axes(self, x: Tensor, moves: list[Node]) -> tuple[set[int], tuple[int, ...]] | None:
        """Returns the axes of `x` that are added up, and the order of the others in the result.

        Both are found by moving element numbers. The result is None if an axis is added up in parts.
        """
        places = np.arange(x.size).reshape(x.shape)
        for move in moves:
            places = self._moved(move, places)
        count = math.prod(places.shape[2:])
        sums = places.reshape(-1, count)
        coordinates = np.unravel_index(sums, x.shape)
        added = {axis for axis, at in enumerate(coordinates) if (at[0] != at[0, 0]).any()}
        if math.prod(x.shape[axis] for axis in added) != count:
            return None  # a part of an axis
        kept = [axis for axis in range(len(x.shape)) if axis not in added]
        if any((coordinates[axis] != coordinates[axis][:, :1]).any() for axis in kept):
            return None
        sizes = [x.shape[axis] for axis in kept]
        order = np.ravel_multi_index([coordinates[axis][:, 0] for axis in kept], sizes) if kept else np.zeros(1, int)
        for perm in itertools.permutations(range(len(kept))):
            if np.array_equal(np.arange(len(order)).reshape(sizes).transpose(perm).reshape(-1), order):
                return added, tuple(kept[p] for p in perm)
        return None

    def _add_up(self, op: QGlobalAveragePool, x: Tensor, planes: bool, added: set[int], order: tuple[int, ...]) -> bool:
        """Makes the nodes that add up axes `added` of `x`; returns False if the NPU cannot run them.

        Args:
            planes: True if `x` is planes, False if it is rows of channels.
            order: the other axes in the order of the result.
        """
        name, shape = x.name, x.shape
        if not planes:
            added, order = {ROWS_AS_PLANES[a] for a in added}, tuple(ROWS_AS_PLANES[a] for a in order)
            name = self.mover.transpose(name, ROWS_AS_PLANES)
            shape = self.graph.tensor(name).shape
        space = set(range(2, len(shape)))
        result = tuple(1 if axis in added else size for axis, size in enumerate(shape))
        perm = [*order, *sorted(added)]
        y, found = self._result(result, perm)
        made = y.name if found else self.graph.like(y, self._stem, result)
        if added == space:
            self._emit(Node.of(replace(op, keepdims=True), [name], [made], made))
        else:
            kernel = tuple(shape[axis] if axis in added else 1 for axis in sorted(space))
            scale = self._scale(op, x, y, math.prod(shape[axis] for axis in added))
            if 0 in added or max(kernel) > MOST_KERNEL or scale is None:
                return False
            group, outputs = (1, 1) if 1 in added else (shape[1], shape[1])
            ones = np.ones((outputs, shape[1] // group, *kernel), np.int8)
            weights = self.graph.constant(f"{y.name}.ones", ones, Quant.of(scale, 0))
            conv = QConv(
                kernel=kernel, group=group, moves=True, out_min=op.out_min, out_max=op.out_max, reason=op.reason
            )
            self._emit(Node.of(conv, [name, weights], [made], made))
        if not self.rewriter.runs_on_npu(self.nodes[-1]):
            return False
        if found:
            return True
        if list(order) != sorted(order):
            made = self.mover.transpose(made, perm)
        self.mover.reshape(made, y.shape, y.name)
        return True

    def _result(self, shape: tuple[int, ...], perm: list[int]) -> tuple[Tensor, bool]:
        """Returns the tensor to write, and True if it is made of the mean's result by moves, which are replaced too.

        Args:
            shape: shape of the tensor to write.
            perm: permutation of its axes into the order of the mean's result.
        """
        y = made = self.graph.tensor(self.node.outputs[0])
        places, passed = np.arange(y.size).reshape(shape).transpose(perm).reshape(y.shape), list[Node]()
        while True:
            if y.shape == shape and np.array_equal(places.reshape(-1), np.arange(y.size)):
                self.passed = passed
                return y, True
            readers = self.rewriter.wiring.readers(y.name)
            if len(readers) != 1 or readers[0].op not in _MOVES or y.name in self.graph.outputs:
                return made, False
            passed += readers
            places = self._moved(readers[0], places)
            y = self.graph.tensor(readers[0].outputs[0])

    def _moved(self, move: Node, places: np.ndarray) -> np.ndarray:
        """Returns element numbers after a Transpose or Reshape."""
        if move.op == "Transpose":
            return places.transpose(move.attrs["perm"])
        return places.reshape(self.graph.tensor(move.outputs[0]).shape)

    def _scale(self, op: QGlobalAveragePool, x: Tensor, y: Tensor, n: int) -> np.float32 | None:
        """Returns the scale of weights of 1 whose product equals the mean of n elements for every sum, or None."""
        assert x.quant is not None and y.quant is not None
        zeros = int(x.quant.zero_point), int(y.quant.zero_point)
        return _scale_of_ones(op, n, float(x.quant.scale), float(y.quant.scale), *zeros, *limits(x.dtype))

    @property
    def mover(self) -> Mover:
        return Mover(self.graph, self.nodes, self.node.name, self.node.origin, self._stem)

    @property
    def _stem(self) -> str:
        """The stem of names for intermediate tensors."""
        return f"{self.node.outputs[0]}.part"

    def _emit(self, node: Node) -> None:
        """Adds a node under the name and origin of the mean."""
        self.nodes.append(replace(node, name=self.node.name, origin=self.node.origin))


@functools.lru_cache(maxsize=256)
def _scale_of_ones(
    op: QGlobalAveragePool, n: int, sx: float, sy: float, zx: int, zy: int, low: int, high: int
) -> np.float32 | None:
    """Returns the scale of weights of 1 that reproduces a mean of n elements for every sum; None if none is found.

    Args:
        op: the mean.
        n: elements of a sum.
        sx, sy, zx, zy: scales and zero points of operand and result.
        low, high: limits of their type.
    """
    if op.half_away:
        return None
    factor = np.float32(numerics.mean_scale(sx, sy, n) if op.factor is None else op.factor)
    tried = np.float32(float(factor) * sy / sx)
    sums = np.arange(n * (low - zx), n * (high - zx) + 1) if n <= _MOST_TRIED else np.zeros(0, np.int64)
    if op.offset is None:
        want = _scaled(sums, factor, zy, low, high)
    elif sums.size:
        want = numerics.litert_mean(sums + n * zx, factor, np.float32(op.offset), low, high)
    else:
        return None
    for step in sorted(range(-_NEIGHBOURS, _NEIGHBOURS + 1), key=abs):
        near = (tried.view(np.int32) + np.int32(step)).view(np.float32)
        scale = np.float32(numerics.product_scale(sx, near, sy))
        if op.offset is None and scale == factor:
            return np.float32(near)
        if sums.size and np.array_equal(_scaled(sums, scale, zy, low, high), want):
            return np.float32(near)
    return None


def _scaled(sums: np.ndarray, scale: np.float32, zero: int, low: int, high: int) -> np.ndarray:
    """Returns the results of the machine's requantiser for sums, in the model's type, int32."""
    moved = low + 128
    found = numerics.requantize(sums, numerics.scale_bits(scale), zero - moved, low - moved, high - moved)
    return np.asarray(found.astype(np.int32) + moved)
