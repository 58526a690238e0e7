"""Images and rows that are repeated or gathered become a Concat of parts, which the NPU reads in place.

    QMatMul of activations with unequal batch axes      =>  QMatMul of images repeated to equal ones
    QTake of images (Tile or Expand of batch axes)      =>  QConcat(Slice, Slice, ...) of images
    Gather of rows of channels, with constant places    =>  QConcat(Slice, Slice, ...) of rows

Keys and values of grouped-query attention, which several heads of queries share, are such images. Images are repeated
before rows and columns are exchanged, because then the product reads its second operand in place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.graph.moves import Mover, permutation, places_of
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.take import QTake
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.isa.config import NpuConfig

#: Largest number of parts of a Concat: each is a layer.
_MOST_PARTS = 64


def lower_copies(graph: Graph, config: NpuConfig) -> None:
    """Replaces repeated images and gathered rows by a QConcat of Slices."""
    rewriter = Rewriter(graph, config)
    rewriter.replace_nodes(lambda node: _Copies(rewriter, node).nodes())


class _Copies:
    """A node that copies images or rows, and the nodes that replace it.

    Attributes:
        made: the replacing nodes so far.
    """

    def __init__(self, rewriter: Rewriter, node: Node) -> None:
        self.rewriter, self.graph, self.node = rewriter, rewriter.graph, node
        self.made: list[Node] = []
        self.mover = Mover(self.graph, self.made)

    def nodes(self) -> list[Node]:
        """Returns the nodes that replace the node; none if it stays."""
        if isinstance(self.node.quantized, QMatMul):
            return self._product()
        if not isinstance(self.node.quantized, QTake) and self.node.op != "Gather":
            return []
        x, y = self._ends()
        if not self._in_rows(x) or not self.rewriter.read_by_npu(y.name):
            return []
        return self._gather() if self.node.quantized is None else self._take()

    def _ends(self) -> tuple[Tensor, Tensor]:
        """Returns the tensors of the first operand and the result."""
        return self.graph.tensor(self.node.inputs[0]), self.graph.tensor(self.node.outputs[0])

    def _in_rows(self, x: Tensor) -> bool:
        """Returns True if the NPU may make a tensor with its channels on the last axis."""
        made = is_activation(x) and self.rewriter.made_by_npu(x.name)
        return made and not self.rewriter.in_planes(x.name)

    def _product(self) -> list[Node]:
        """Returns a QMatMul of images repeated to equal batch axes, and their copies; nothing if the node stays."""
        graph, (a, b) = self.graph, (self.graph.tensor(name) for name in self.node.inputs[:2])
        batch = graph.tensor(self.node.outputs[0]).shape[:-2]
        if len(self.node.inputs) > 2 or b.is_const or a.shape[:-2] == b.shape[:-2]:
            return []
        if not all(self._in_rows(t) for t in (a, b) if t.shape[:-2] != batch):
            return []
        inputs: list[str] = []
        for t in (a, b):
            places = _repeated(t.shape[:-2], batch)
            found = t.name if t.shape[:-2] == batch else self._images(t.name, places, batch)
            if found is None:
                return []
            inputs.append(found)
        assert self.node.quantized is not None
        product = Node.of(self.node.quantized, inputs, self.node.outputs, self.node.name, self.node.origin)
        return [*self.made, product] if self.rewriter.runs_on_npu(product) else []

    def _take(self) -> list[Node]:
        """Returns the nodes that replace a QTake of batch axes; none if it stays."""
        op, (x, y) = self.node.quantized, self._ends()
        assert isinstance(op, QTake)
        if len(x.shape) < 3 or op.indices[-2:] != (None, None):
            return []
        axes = op.places(x.shape)[:-2]
        places = np.ravel_multi_index(np.ix_(*axes), x.shape[:-2]).reshape(-1)
        made = self._images(x.name, places, y.shape[:-2])
        return [*self.made, self._renamed(made)] if made is not None else []

    def _gather(self) -> list[Node]:
        """Returns the nodes that replace a Gather of rows; none if it stays."""
        x, y = self._ends()
        places, axis = places_of(self.graph, self.node), len(x.shape) - 2
        if places is None or axis not in (0, 1) or int(self.node.attrs["axis"]) % len(x.shape) != axis:
            return []
        if len(y.shape) != len(x.shape) or len(places[axis]) < 2 or x.quant is None or not x.quant.same_as(y.quant):
            return []
        made = self._parts(x.name, axis, np.array(places[axis]))
        return [*self.made, self._renamed(made)] if made is not None else []

    def _images(self, name: str, places: np.ndarray, batch: Sequence[int]) -> str | None:
        """Adds the nodes that copy images of [.., rows, columns]; returns the result's name.

        Args:
            name: name of the tensor.
            places: numbers of the images, counted along all axes before the last two.
            batch: axes of the result before the last two.

        Returns:
            The name; None if that takes too many parts.
        """
        maker = self.rewriter.wiring.producers.get(name)
        if maker is not None and maker.op == "Transpose":
            perm = permutation(maker)
            if perm[-1] < perm[-2]:  # rows and columns are exchanged behind the copies, not before
                rows = self.mover.transpose(maker.inputs[0], [*perm[:-2], perm[-1], perm[-2]])
                copied = self._flat_images(rows, places, batch)
                swapped = [*range(len(batch)), len(batch) + 1, len(batch)]
                return None if copied is None else self.mover.transpose(copied, swapped)
        return self._flat_images(name, places, batch)

    def _flat_images(self, name: str, places: np.ndarray, batch: Sequence[int]) -> str | None:
        """Adds the nodes that copy images, without looking through a Transpose; returns the result's name or None."""
        shape = self.graph.tensor(name).shape
        copied = self._parts(self.mover.reshape(name, (math.prod(shape[:-2]), *shape[-2:])), 0, places)
        return None if copied is None else self.mover.reshape(copied, (*batch, *shape[-2:]))

    def _parts(self, name: str, axis: int, places: np.ndarray) -> str | None:
        """Adds the nodes that copy indices `places` of an axis, consecutive ones as one part.

        Returns:
            The result's name; None if there are too many parts.
        """
        x = self.graph.tensor(name)
        runs = list(_runs(places))
        if len(runs) > _MOST_PARTS:
            return None
        cut = {run: self.mover.slice(name, axis, *run) for run in dict.fromkeys(runs)}
        if len(runs) == 1:
            return cut[runs[0]]
        shape = tuple(len(places) if a == axis else size for a, size in enumerate(x.shape))
        made = self.graph.like(x, f"{name}.copies", shape)
        op = QConcat(axis=axis, tables=(None,) * len(runs))
        self.made.append(Node.of(op, [cut[run] for run in runs], [made], self.node.name, self.node.origin))
        return made

    def _renamed(self, made: str) -> Node:
        """Returns the Identity that gives another tensor the name of the node's result."""
        return Node("Identity", [made], self.node.outputs, {}, self.node.name, self.node.origin)


def _repeated(before: tuple[int, ...], after: tuple[int, ...]) -> np.ndarray:
    """Returns the number of the image of `before` for each image of `after`, int64 [images]."""
    numbers = np.arange(math.prod(before)).reshape(before)
    return np.broadcast_to(numbers, after).reshape(-1)


def _runs(places: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields the (first, end) of consecutive indices."""
    cuts = [0, *(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(places)]
    for first, end in pairwise(cuts):
        yield int(places[first]), int(places[first]) + end - first
