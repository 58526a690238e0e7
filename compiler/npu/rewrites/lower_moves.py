"""Movement between layers of the NPU for which no view exists becomes products with weights of 0 and 1.

    DepthToSpace                                    =>  QConvTranspose, kernel and stride of a block
    SpaceToDepth                                    =>  QConv, kernel and stride of a block
    Reshape, Transpose, Reshape of channel groups   =>  QConv 1x1 (a channel shuffle)
    Gather of channels; Slice, Split within a block =>  QConv 1x1
    Pad with the zero point                         =>  QConv 1x1, of each channel by itself if only planes are padded

The scale of these weights is 1, and that of the result its operand's, so every byte passes unchanged. The array needs
less time than the host to take a tensor out of blocks, move it and put it back. Where the host makes the tensor or is
its only reader, the host moves it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.graph.moves import Mover, is_box, permutation, places_of
from tilewright.compiler.graph.ops.convolution import QConv, QConvTranspose
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.npu.rewrites.channel_moves import moving, selected
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.isa.config import NpuConfig

#: Largest number of weights of a move: more take longer to load than the host's move takes.
_MOST_WEIGHTS = 1 << 20


def lower_moves(graph: Graph, config: NpuConfig) -> None:
    """Replaces movement between layers of the NPU, for which no view exists, by products with weights of 0 and 1."""
    rewriter = Rewriter(graph, config)

    rewriter.replace_nodes(lambda node: _Move(rewriter, node).products() if _between_layers(rewriter, node) else None)


def _between_layers(rewriter: Rewriter, node: Node) -> bool:
    """Returns True if a move of 8-bit planes is between nodes that the NPU may run."""
    if node.quantized is not None or not node.inputs or not node.inputs[0]:
        return False
    graph = rewriter.graph
    x = graph.tensor(node.inputs[0])
    outputs = [graph.tensor(name) for name in node.outputs if name]
    same = all(is_activation(y) and x.quant is not None and x.quant.same_as(y.quant) for y in outputs)
    if not same or not is_activation(x) or x.dtype not in {y.dtype for y in outputs} or len(outputs[0].shape) != 4:
        return False
    if node.op != "Reshape" and not rewriter.in_planes(x.name):
        return False
    return rewriter.made_by_npu(x.name) and any(rewriter.read_by_npu(y.name) for y in outputs)


class _Move:
    """A node that moves data, and the products that replace it."""

    def __init__(self, rewriter: Rewriter, node: Node) -> None:
        self.rewriter, self.graph, self.wiring, self.node = rewriter, rewriter.graph, rewriter.wiring, node
        self.x, self.y = self.graph.tensor(node.inputs[0]), self.graph.tensor(node.outputs[0])

    def products(self) -> list[Node] | None:
        """Returns the nodes that replace the move.

        The result is None for another op, too many weights, or nodes that the NPU does not run.
        """
        found = self._nodes()
        made = [node for node in found or () if node.quantized is not None]
        if any(self.graph.tensor(node.inputs[1]).size > _MOST_WEIGHTS for node in made):
            return None
        return found if all(self.rewriter.runs_on_npu(node) for node in made) else None

    def _nodes(self) -> list[Node] | None:
        """Returns the nodes that replace the move, without checking them; None for other ops."""
        match self.node.op:
            case "DepthToSpace" | "SpaceToDepth" if len(self.x.shape) == 4:
                return self._space()
            case "Reshape":
                return self._shuffled()
            case "Slice" | "Split" | "Gather" if len(self.x.shape) == 4:
                return self._parts()
            case "Pad" if len(self.x.shape) == 4:
                return self._padded()
        return None

    def _space(self) -> list[Node]:
        """Returns the product of a DepthToSpace or SpaceToDepth."""
        block = int(self.node.attrs["blocksize"])
        deep = self.node.op == "DepthToSpace"
        few = (self.y if deep else self.x).shape[1]
        # Channel of the deep tensor for every one of the other, row and column in a block.
        every = np.arange(few * block * block)
        if deep and self.node.attrs.get("mode") == "CRD":
            places = every.reshape(few, block, block)
        else:
            places = every.reshape(block, block, few).transpose(2, 0, 1)
        weights = (places == every[:, None, None, None]).astype(np.int8)  # [deep, few, row, column]
        op = QConvTranspose if deep else QConv
        return [self._conv(op(kernel=(block, block), strides=(block, block), moves=True), weights, self.x, self.y)]

    def _shuffled(self) -> list[Node] | None:
        """Returns the product of a channel shuffle, whose last node this Reshape is; else None."""
        turned = self.wiring.producers.get(self.x.name)
        split = self.wiring.producers.get(turned.inputs[0]) if turned is not None and turned.op == "Transpose" else None
        if turned is None or split is None or split.op != "Reshape":
            return None
        source = self.wiring.tensor(split.inputs[0])
        shape = self.wiring.shape(split.outputs[0])
        n, c, h, w = self.y.shape
        if source.shape != self.y.shape or len(shape) != 5 or (shape[0], *shape[3:]) != (n, h, w):
            return None
        same = source.quant is not None and source.quant.same_as(self.y.quant)
        if permutation(turned) != [0, 2, 1, 3, 4] or not same:
            return None
        places = np.arange(c).reshape(shape[1:3]).T.reshape(-1)
        return [self._selected(source, self.y, places)]

    def _parts(self) -> list[Node] | None:
        """Returns the nodes that cut channels, if a part begins within a block, or take a Gather's; else None."""
        block, gather, chosen = self.rewriter.config.block_in, self.node.op == "Gather", list[Sequence[int]]()
        for number in range(len(self.node.outputs)):
            places = places_of(self.graph, self.node, number)
            if places is None or any(places[axis] != range(self.x.shape[axis]) for axis in (0, 2, 3)):
                return None
            chosen.append(places[1])
        if not gather and (not is_box(tuple(chosen)) or all(channels[0] % block == 0 for channels in chosen)):
            return None
        found: list[Node] = []
        mover = Mover(self.graph, found, self.node.name, self.node.origin)
        for name, channels in zip(self.node.outputs, chosen, strict=True):
            if gather or channels[0] % block:
                found.append(self._selected(self.x, self.wiring.tensor(name), np.array(channels)))
            else:
                mover.slice(self.x.name, 1, channels[0], channels[-1] + 1, name)
        return found

    def _padded(self) -> list[Node] | None:
        """Returns the convolution that pads planes or channels with the zero point; else None."""
        pads, value = (
            (self.graph.const(name) for name in self.node.inputs[1:3]) if len(self.node.inputs) > 2 else (None,) * 2
        )
        quant, mode = self.x.quant, self.node.attrs.get("mode", "constant")
        if pads is None or value is None or quant is None or mode != "constant":
            return None
        n, c, top, left, m, d, bottom, right = (int(p) for p in pads) if pads.size == 8 else (-1,) * 8
        if n or m or min(c, d, top, left, bottom, right) < 0 or int(value.reshape(())) != int(quant.zero_point):
            return None
        around = (top, left, bottom, right)
        channels = self.x.shape[1]
        if c or d:
            weights = np.eye(self.y.shape[1], channels, -c, dtype=np.int8)[:, :, None, None]
            return [self._conv(QConv(kernel=(1, 1), pads=around, moves=True), weights, self.x, self.y)]
        op = QConv(kernel=(1, 1), pads=around, group=channels, moves=True)
        return [self._conv(op, np.ones((channels, 1, 1, 1), np.int8), self.x, self.y)]

    def _selected(self, x: Tensor, y: Tensor, places: np.ndarray) -> Node:
        """Returns the product that gives y the channels `places` of x."""
        return selected(self.graph, self.node, x.name, y.name, places)

    def _conv(self, op: QConv | QConvTranspose, weights: np.ndarray, x: Tensor, y: Tensor) -> Node:
        """Returns the product of x with weights of 0 and 1, as y."""
        return moving(self.graph, self.node, op, weights, x.name, y.name)
