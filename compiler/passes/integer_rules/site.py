"""A site: one op between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.ops.quantized_op import Clamped, QuantizedOp
from tilewright.compiler.graph.quantization import is_activation, limits, ordinary, requantize_table
from tilewright.compiler.passes.annotate import quant_of
from tilewright.compiler.passes.mark_floats import IN_FLOATS
from tilewright.compiler.passes.weights import Bias
from tilewright.isa import numerics


@dataclass
class Site:
    """A float op with the DequantizeLinears of its inputs and the QuantizeLinear of its output.

    Attributes:
        quantizer: the QuantizeLinear that reads the op's result.
        low, high: clamp in the output's quantised units.
        alone: True if no other QuantizeLinear reads the result.
    """

    graph: Graph
    node: Node
    producers: dict[str, Node]
    consumers: dict[str, list[Node]]
    quantizer: Node
    low: int
    high: int
    alone: bool = True

    @property
    def plain(self) -> bool:
        """True if one QuantizeLinear reads the result, without a clamp but the redundant one of its type's limits."""
        return self.alone and (self.low, self.high) == limits(self.out.dtype)

    @property
    def fused(self) -> bool:
        """True if onnxruntime, too, makes one integer op here, if it has one for these types.

        It does at a plain site, if it carries DequantizeLinear and QuantizeLinear up to the op (`mark_floats`). It
        leaves everything else in floats, with their rounding.
        """
        return self.plain and not self.quantizer.attrs.get(IN_FLOATS)

    def why_floats(self, x: Tensor, dequantizer: Node) -> str:
        """The reason why the integer sums of a product may differ from onnxruntime by a step; empty where it makes
        them, too.

        Args:
            dequantizer: DequantizeLinear of the model's weights; onnxruntime has no product of int8 and uint8 or fewer
                bits.
        """
        w = self.graph.tensor(dequantizer.inputs[0]).dtype
        if self.fused and x.dtype == self.out.dtype and (w == np.int8 or (w == np.uint8 and x.dtype == np.uint8)):
            return ""
        return self.in_floats

    @property
    def in_floats(self) -> str:
        """The reason of an integer op that onnxruntime computes in floats."""
        return f"onnxruntime computes this {self.node.op} in floats, whose sums may fall to the other side of a tie"

    def bias(self, bias: Bias, x: Quant, w: Quant, reason: str) -> np.ndarray | None:
        """The int32 [channels] bias of a product. Without a `reason`, where onnxruntime computes with integers, these
        are its integers; else integers equivalent to its floats, and None where there are none, which `Graph.floats`
        then explains.
        """
        if not reason:
            return bias.integers
        zero = int(self.out_quant.zero_point)
        scale = np.float64(x.scale) * w.scale / self.out_quant.scale
        found = bias.in_floats(scale, self.low - zero, self.high - zero)
        if isinstance(found, str):
            self.graph.floats |= dict.fromkeys(self.node.origin, found)
            return None
        return found

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
        """The DequantizeLinear that makes an input, None if another op does."""
        if index >= len(self.node.inputs):
            return None
        node = self.producers.get(self.node.inputs[index])
        return node if node is not None and node.op == "DequantizeLinear" else None

    def activation(self, index: int, signed: bool = False) -> Tensor | None:
        """The 8-bit per-tensor integers behind an input, None if there are none.

        Args:
            signed: the rule holds for negative scales of inputs and output, and for inputs of scale 0, too.
        """
        node = self.dequantizer(index)
        if node is None:
            return None
        tensor, quant = self.graph.tensor(node.inputs[0]), quant_of(self.graph, node)
        if not is_activation(tensor) or quant is None or not (ordinary(quant, signed) or (signed and quant.scale == 0)):
            return None
        if not quant.same_as(tensor.quant) or not (signed or self.out_quant.scale > 0):
            return None
        return tensor

    def constant(self, index: int) -> np.ndarray | None:
        """The float32 values of a constant input, which may be dequantised; None if it is no constant."""
        found = self.graph.const(self.node.inputs[index])
        node = self.dequantizer(index)
        if found is None and node is not None:
            data, quant = self.graph.const(node.inputs[0]), quant_of(self.graph, node)
            if data is not None and quant is not None and quant.per_tensor:
                found = numerics.dequantize(data, quant.scale, quant.zero_point)
        return found if found is not None and found.dtype == np.float32 else None

    def has(self, index: int) -> bool:
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def make(self, op: QuantizedOp, inputs: list[str]) -> Node:
        """The integer op that writes the quantised result, clamped where the op can be."""
        if isinstance(op, Clamped):
            op = op.clamped(self.low, self.high)
        return Node.of(op, inputs, [self.out.name], self.node.name, self._origin)

    def make_onnx(self, op: str, inputs: list[str]) -> Node:
        """An ONNX op on integers that writes the quantised result."""
        return Node(op, inputs, [self.out.name], {}, self.node.name, self._origin)

    @property
    def _origin(self) -> tuple[str, ...]:
        return (*self.node.origin, *self.quantizer.origin)

    def operand(self, index: int, before: list[Node]) -> Tensor | None:
        """The integers of an operand of an op that only moves or selects; None if there are none.

        A float operand is quantised to the output, because QuantizeLinear is elementwise; that node is added to
        `before`.
        """
        tensor = self.activation(index)
        if tensor is not None:
            return tensor
        source = self.graph.tensor(self.node.inputs[index])
        if source.dtype != np.float32:
            return None
        name = self.graph.unique(f"{source.name}.{self.out.dtype}")
        made = self.graph.add(Tensor(name, source.shape, self.out.dtype, None, self.out_quant))
        parameters = self.quantizer.inputs[1:]
        before.append(Node("QuantizeLinear", [source.name, *parameters], [name], self.quantizer.attrs, name))
        return made

    def requantizing_table(self, tensor: Tensor) -> np.ndarray | None:
        """Table uint8[256] that requantises an operand to the output and clamps it; None where bytes pass unchanged."""
        assert tensor.quant is not None
        table = requantize_table(tensor.quant, tensor.dtype, self.out_quant, self.out.dtype)
        table = np.clip(table.view(self.out.dtype), self.low, self.high).astype(self.out.dtype).view(np.uint8)
        return None if np.array_equal(table, np.arange(256)) else table
