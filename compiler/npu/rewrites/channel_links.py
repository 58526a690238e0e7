"""Links between the channels of tensors: which channel of a result each channel of an operand becomes.

A layer that works on each channel for itself hands channel i on to channels of its result, so both stay or both go.
A product takes any of its operand's channels for any of its result's. All else reads and makes whole tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from msgspec import Struct

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.moves import permutation
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.ops.convolution import QConv, QConvTranspose
from tilewright.compiler.graph.ops.elementwise import Elementwise
from tilewright.compiler.graph.ops.interpolate import QInterpolate
from tilewright.compiler.graph.ops.pooling import QAveragePool, QGlobalAveragePool, QMaxPool
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.take import QTake
from tilewright.compiler.graph.quantization import is_activation

_PLANES = (QMaxPool, QAveragePool, QGlobalAveragePool, QInterpolate)


class Link(Struct, frozen=True):
    """The channels that an operand and the result of a node have in common.

    Attributes:
        index: number of the operand.
        axis: of the operand, along which its channels lie.
        places: int64 [channels, copies], the channels of the result that each channel of the operand becomes.
    """

    index: int
    axis: int
    places: np.ndarray


class Product(Struct, frozen=True):
    """The axes of a product by constant weights.

    Attributes:
        axis: of the operand, along which its channels lie.
        inputs, outputs: axes of the weights.
    """

    axis: int
    inputs: int
    outputs: int


@dataclass
class Channels:
    """The axis of channels of every 8-bit tensor that a product or a layer behind one makes.

    Attributes:
        axes: by name. Tensors of other nodes have none: all of their channels stay.
        links: of nodes that work on each channel for itself, by name of their result.
        products: by name of their result.
    """

    graph: Graph
    axes: dict[str, int] = field(default_factory=dict)
    links: dict[str, list[Link]] = field(default_factory=dict)
    products: dict[str, Product] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.graph.nodes:
            name = node.outputs[0]
            if len(node.outputs) != 1 or not is_activation(self.graph.tensors.get(name)):
                continue
            product = self._product(node)
            if product is not None:
                self.products[name], self.axes[name] = product
                continue
            axis, links = self._linked(node)
            if links:
                self.axes[name], self.links[name] = axis, links

    @cached_property
    def linked_group(self) -> dict[str, str]:
        """A tensor by which those are known that a tensor in `axes` is linked to, through any number of links."""
        group = {name: name for name in self.axes}

        def first(name: str) -> str:
            while group[name] != name:
                name = group[name]
            return name

        for node in self.graph.nodes:
            for link in self.linked(node):
                if node.inputs[link.index] in group:
                    group[first(node.outputs[0])] = first(node.inputs[link.index])
        return {name: first(name) for name in group}

    def count(self, name: str) -> int:
        """The number of channels of a tensor in `axes`."""
        return self.graph.tensor(name).shape[self.axes[name]]

    def of_product(self, node: Node) -> Product | None:
        """The axes of a product, None for other nodes."""
        return self.products.get(node.outputs[0])

    def linked(self, node: Node) -> list[Link]:
        """The links of a node between operands and its result, [] without any."""
        return self.links.get(node.outputs[0], [])

    def reads_all(self, node: Node) -> Iterator[str]:
        """The operands of a node that need all of their channels, whatever is needed of the result."""
        product, linked = self.of_product(node), {link.index: link for link in self.linked(node)}
        for index, name in enumerate(node.inputs):
            if name in self.axes:
                axis = product.axis if product is not None and index == 0 else None
                axis = linked[index].axis if index in linked else axis
                if axis != self.axes[name]:
                    yield name

    def _product(self, node: Node) -> tuple[Product, int] | None:
        """The axes of a product and the axis of its result's channels; None for other nodes."""
        op, x = node.quantized, self.graph.tensors.get(node.inputs[0]) if node.inputs else None
        if x is None or len(node.inputs) < 2 or any(self.graph.const(name) is None for name in node.inputs[1:] if name):
            return None
        if isinstance(op, QConv | QConvTranspose) and op.group == 1:
            inputs = 1 if isinstance(op, QConv) else 0
            return Product(1, inputs, 1 - inputs), 1
        if isinstance(op, QMatMul) and len(self.graph.tensor(node.inputs[1]).shape) == 2:
            last = len(x.shape) - 1
            return Product(last, 0, 1), last
        return None

    def _linked(self, node: Node) -> tuple[int, list[Link]]:
        """The axis of the result's channels and the links of a node that works on each channel for itself."""
        op = node.quantized
        shapes = [self.graph.tensor(name).shape if name else () for name in node.inputs]
        result = self.graph.tensor(node.outputs[0]).shape
        if not shapes:
            return 0, []
        first, nowhere = self.axes.get(node.inputs[0]), (0, list[Link]())
        if isinstance(op, Elementwise):
            return self._elementwise(node, shapes, result)
        if isinstance(op, QConcat):
            return self._concat(node, op.axis % len(result), shapes)
        if first is None or any(self.graph.const(name) is None for name in node.inputs[1:] if name):
            return nowhere
        count = shapes[0][first]
        if isinstance(op, QConv) and op.group == count and first == 1:
            return 1, [Link(0, 1, np.arange(result[1]).reshape(count, -1))]
        if (isinstance(op, _PLANES) and first == 1) or (isinstance(op, QTake) and op.indices[first] is None):
            return first, [_same(0, first, count)]
        if node.op == "Transpose":
            return permutation(node).index(first), [_same(0, first, count)]
        if node.op == "Reshape":
            return _reshaped(shapes[0], first, result)
        return nowhere

    def _elementwise(
        self, node: Node, shapes: list[tuple[int, ...]], result: tuple[int, ...]
    ) -> tuple[int, list[Link]]:
        """The links of operands whose channels are those of the result, which others have once for all channels."""
        known = [self.axes[name] - len(s) for name, s in zip(node.inputs, shapes, strict=True) if name in self.axes]
        axes = {axis for axis in known if -axis <= len(result) and result[axis] > 1}
        if len(axes) != 1:
            return 0, []
        behind = axes.pop()
        links = [
            _same(index, len(shape) + behind, result[behind])
            for index, shape in enumerate(shapes)
            if -behind <= len(shape) and shape[behind] == result[behind]
        ]
        return len(result) + behind, links

    def _concat(self, node: Node, along: int, shapes: list[tuple[int, ...]]) -> tuple[int, list[Link]]:
        axes = {self.axes[name] for name in node.inputs if name in self.axes}
        if len(axes) != 1:
            return 0, []
        axis = axes.pop()
        links, first = [], 0
        for index, shape in enumerate(shapes):
            links.append(Link(index, axis, first + np.arange(shape[axis])[:, None]))
            first += shape[axis] if axis == along else 0
        return axis, links


def _same(index: int, axis: int, count: int) -> Link:
    return Link(index, axis, np.arange(count)[:, None])


def _reshaped(before: tuple[int, ...], axis: int, after: tuple[int, ...]) -> tuple[int, list[Link]]:
    """The link of a Reshape that keeps the axis of channels, or joins it with axes beside it."""
    count, outside = before[axis], int(np.prod(before[:axis]))
    for target, size in enumerate(after if count else ()):
        begin = int(np.prod(after[:target]))
        if begin > outside or begin * size < outside * count or size < count or not begin or size % count:
            continue
        # Elements of a channel: `more` places of axes before it, then `inside` behind it, within the joined axis.
        more = outside // begin
        inside = size // (count * more)
        if outside % begin or more * count * inside != size:
            continue
        places = np.arange(size).reshape(more, count, inside).transpose(1, 0, 2).reshape(count, -1)
        return target, [Link(0, axis, places)]
    return 0, []


__all__ = ["Channels", "Link", "Product"]
