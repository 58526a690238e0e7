"""NpuOp: how the NPU runs an op: when it can, in which layout, and the layers of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops import QuantizedOp
from tilewright.compiler.graph.tensor import EIGHT_BIT, Tensor
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layout

Q = TypeVar("Q", bound=QuantizedOp)
O = TypeVar("O", bound=QuantizedOp, covariant=True)
C = TypeVar("C", bound="type[NpuOp[Any]]")

_MACHINE_TYPES = (*EIGHT_BIT, np.dtype(np.int16))


@dataclass(frozen=True)
class TypedNode(Generic[O]):
    """A node with its op and its graph.

    Attributes:
        graph: the graph.
        node: the node.
        op: the node's quantised op.
    """

    graph: Graph
    node: Node
    op: O

    def operand(self, index: int) -> Tensor:
        """Returns the tensor of an input."""
        return self.graph.tensor(self.node.inputs[index])

    def has(self, index: int) -> bool:
        """Returns True if the node has the optional input."""
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    @property
    def x(self) -> Tensor:
        """The tensor of the first input."""
        return self.operand(0)

    @property
    def y(self) -> Tensor:
        """The tensor of the first output."""
        return self.graph.tensor(self.node.outputs[0])


class NpuOp(ABC, Generic[Q]):
    """The NPU's implementation of a quantised op.

    Attributes:
        condition: the condition under which the NPU runs it, for the documentation.
        layout: the layout in which it works; None for elementwise ops, which work in the layout of their operands.
        takes_add: True if a QAdd behind it can run in the same pass over the data.
        takes_table: True if a QLut behind it can.
        light: True if it costs less than the conversions around it, so that between CPU nodes it runs on the CPU.
        reason: the reason why results may be off by a step, where the machine's rule is not quite that of the
            reference.
    """

    condition: ClassVar[str]
    layout: ClassVar[Layout | None] = None
    takes_add: ClassVar[bool] = False
    takes_table: ClassVar[bool] = False
    light: ClassVar[bool] = False
    reason: ClassVar[str] = ""

    def layout_of(self, rank: int) -> Layout | None:
        """Returns the layout in which it makes a tensor of that rank; None for that of its operands."""
        return self.layout

    def needs_npu_reader(self, rank: int) -> bool:
        """Returns True if it pays for a tensor of that rank only where a node on the NPU reads the result."""
        return False

    def activation_error(self, t: Tensor) -> str | None:
        """Returns the reason why the first operand or the result cannot be tensor t, None if it can."""
        if t.dtype not in EIGHT_BIT or t.quant is None or not t.quant.per_tensor:
            return f"{t.name} is not an int8 or uint8 tensor with one scale"
        if not np.isfinite(t.quant.scale) or not 2.0**-120 < float(t.quant.scale) < 2.0**120:
            return f"scale {float(t.quant.scale)} of {t.name} is outside 2^-120..2^120"
        return None

    @abstractmethod
    def unsupported(self, node: TypedNode[Q], config: NpuConfig) -> str | None:
        """Returns the reason why the machine cannot run the node exactly, None if it can."""

    @abstractmethod
    def lower(self, node: TypedNode[Q], operands: Operands, tail: list[Node]) -> list[Layer]:
        """Returns the layers for the node and its tail.

        Args:
            node: the node.
            operands: provides the views that the layers read and write.
            tail: QAdd and QLut nodes to run in the same pass, as far as the op takes them.
        """


NPU_OPS: dict[type[QuantizedOp], NpuOp[Any]] = {}
"""The NPU's implementations, by op; ops without one run on the CPU."""


def npu_op(kind: type[QuantizedOp]) -> Callable[[C], C]:
    """Returns a decorator that registers an `NpuOp` class as the NPU's implementation of `kind`."""

    def register(cls: C) -> C:
        NPU_OPS[kind] = cls()
        return cls

    return register


def npu_op_of(node: Node) -> NpuOp[Any] | None:
    """Returns the NPU's implementation of a node's op, None if there is none."""
    return NPU_OPS.get(type(node.quantized)) if node.quantized is not None else None


def is_elementwise(node: Node) -> bool:
    """Returns True if the NPU runs a node's op in the layout of its operands."""
    found = npu_op_of(node)
    return found is not None and found.layout is None


def is_light(node: Node) -> bool:
    """Returns True if a node's op is not worth conversions of its own."""
    found = npu_op_of(node)
    return found is not None and (found.layout is None or found.light)


def unsupported_reason(graph: Graph, node: Node, config: NpuConfig) -> str | None:
    """Returns the reason why a node cannot run on the NPU, None if the NPU runs it exactly."""
    found = npu_op_of(node)
    if found is None or node.quantized is None:
        return f"{node.op} is not an NPU operation"
    for name in (*node.inputs, *node.outputs):
        if name and graph.tensor(name).dtype in _MACHINE_TYPES and graph.tensor(name).size == 0:
            return f"{name} is empty"
    for name in (node.inputs[0], node.outputs[0]):
        error = found.activation_error(graph.tensor(name))
        if error is not None:
            return error
    return found.unsupported(TypedNode(graph, node, node.quantized), config)


def lower(graph: Graph, head: Node, operands: Operands, tail: list[Node]) -> list[Layer]:
    """Returns the layers for a node that the NPU runs, and for its tail."""
    assert head.quantized is not None
    layers = NPU_OPS[type(head.quantized)].lower(TypedNode(graph, head, head.quantized), operands, tail)
    for layer in layers:
        layer.source = head.outputs[0]
    return layers
