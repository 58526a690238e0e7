"""The op of a model's node that only a kernel of the user's can run, and what the kernel is told about the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tilewright.compiler.graph.ops.quantized_op import Operands, QuantizedOp
from tilewright.compiler.graph.tensor import EIGHT_BIT, Tensor

#: What messages about an unknown op offer.
BY_A_KERNEL = "others run by a kernel (`tilewright compile --kernels FILE`, in Python kernels=)"


@dataclass(frozen=True)
class NodeValue:
    """An input or the result of a node.

    Attributes:
        name: name in the model.
        shape: shape; of tensors as kernels have them, [N, C, H, W] or [rows, channels]. None for a result whose shape
            the model does not say.
        values: values of a constant, the integers where it is quantised; None for a tensor.
        scale, zero_point: float32 and int of the quantisation, arrays where a constant has one for each channel; a
            tensor's zero point is that of int8, also where the model has uint8. The scale is None where the model says
            nothing of it.
    """

    name: str
    shape: tuple[int, ...] | None
    values: np.ndarray | None = None
    scale: Any = None
    zero_point: Any = 0


@dataclass(frozen=True)
class NodeFacts:
    """A node of a model, for a kernel that may run it.

    Attributes:
        name: name of the node.
        op: domain and op, such as "com.me::Deform".
        attributes: attributes by name: numbers, text, lists and arrays.
        inputs: inputs in the node's order, None for those left out. Those without values are the kernel's tensors.
        output: the result.
    """

    name: str
    op: str
    attributes: Mapping[str, Any]
    inputs: Sequence[NodeValue | None]
    output: NodeValue

    @property
    def label(self) -> str:
        """Op and name, for messages."""
        return f"{self.op} {self.name!r}"

    @property
    def tensors(self) -> list[NodeValue]:
        """The inputs that are no constants."""
        return [value for value in self.inputs if value is not None and value.values is None]


class NodeKernel(Protocol):
    """A kernel that can run nodes of a model, as `tilewright.kernel.Kernel` is.

    Attributes:
        name: name for messages.
    """

    name: str

    @property
    def runs_nodes(self) -> bool:
        """True if it runs any."""

    def runs_op(self, op: str) -> bool:
        """Returns True if it can run nodes of an op, such as "com.me::Deform"."""

    def constants_for(self, node: NodeFacts) -> Mapping[str, Any] | None:
        """Returns the kernel's constants for a node; None to leave it to other kernels."""

    def result_shape(self, node: NodeFacts, constants: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Returns the shape of a node's result as the kernel has it; None if it does not know."""

    def expected(self, inputs: Sequence[np.ndarray], constants: Mapping[str, Any]) -> Any:
        """Returns the result by the kernel's reference in numpy, int8, of int8 inputs."""

    def layer_of(self, op: QKernel, inputs: Sequence[Any], output: Any) -> Any:
        """Returns the layer of the NPU (`tilewright.compiler.npu.layers.layer.Layer`) that runs a node on views."""


@dataclass(frozen=True, kw_only=True, eq=False)
class QKernel(QuantizedOp):
    """A node that a kernel runs on the NPU, and nothing else. Its operands are the node's tensors.

    Attributes:
        kernel: the kernel.
        facts: the node.
        constants: the kernel's constants.
    """

    arity = (1, 1 << 16)

    kernel: NodeKernel
    facts: NodeFacts
    constants: Mapping[str, Any] = field(default_factory=dict)

    def check(self, operands: Operands, result: Tensor) -> str | None:
        errors = (self.activation_error(t) for t in operands if t is not None)
        return super().check(operands, result) or next(filter(None, errors), None)

    def activation_error(self, tensor: Tensor) -> str | None:
        return None if tensor.dtype in EIGHT_BIT else f"{tensor.name} is {tensor.dtype}, not int8 or uint8"

    def attributes(self) -> list[tuple[str, str]]:
        return [("kernel", self.kernel.name), ("op", self.facts.op)]


def kernel_shape(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Returns a tensor's shape as kernels have it, [N, C, H, W] or [rows, channels]; None for a tensor without one."""
    if len(shape) == 4 or len(shape) == 2:
        return shape
    return shape[1:] if len(shape) == 3 and shape[0] == 1 else None
