"""One place where an op stands between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.graph import Graph, Node, Quant, Tensor
from compiler.passes.quantization import is_activation, quant_of


@dataclass
class Site:
    """The op, what dequantises its inputs, and what quantises its output.

    Attributes:
        quantizer: the QuantizeLinear that takes the op's result.
        low, high: clamp in the output's quantised units.
    """

    graph: Graph
    node: Node
    producers: dict[str, Node]
    quantizer: Node
    low: int
    high: int

    @property
    def out(self) -> Tensor:
        """The quantised result; its `quant` is set."""
        return self.graph.tensor(self.quantizer.outputs[0])

    @property
    def out_quant(self) -> Quant:
        quant = self.out.quant
        assert quant is not None
        return quant

    def dequantizer(self, index: int) -> Node | None:
        """The DequantizeLinear that makes an input, None if something else does."""
        if index >= len(self.node.inputs):
            return None
        node = self.producers.get(self.node.inputs[index])
        return node if node is not None and node.op == "DequantizeLinear" else None

    def activation(self, index: int) -> Tensor | None:
        """The 8-bit per-tensor integers behind an input, None if there are none."""
        node = self.dequantizer(index)
        if node is None:
            return None
        tensor, quant = self.graph.tensor(node.inputs[0]), quant_of(self.graph, node)
        if not is_activation(tensor) or quant is None or not quant.same_as(tensor.quant):
            return None
        return tensor

    def has(self, index: int) -> bool:
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def make(self, op: str, inputs: list[str], clamped: bool = True, **attrs: Any) -> Node:
        """The integer op that writes the quantised result."""
        if clamped:
            attrs |= {"out_min": self.low, "out_max": self.high}
        origin = (*self.node.origin, *self.quantizer.origin)
        return Node(op, inputs, [self.out.name], attrs, self.node.name, origin)

    def clamp_table(self, table: np.ndarray) -> np.ndarray:
        """A table uint8[256] of result bytes with the clamp applied."""
        return np.clip(table.view(self.out.dtype), self.low, self.high).astype(self.out.dtype).view(np.uint8)
