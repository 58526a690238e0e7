"""Nodes that kernels of the user run, such as those of a domain of the user's own.

A kernel computes int8. So before the import such a node takes the bytes behind the DequantizeLinear of its inputs and
gives those of the QuantizeLinear behind it, whose scales the kernel is told of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.graph.graph import Node, Tensor
from tilewright.compiler.graph.ops.kernel import NodeFacts, NodeKernel, NodeValue, QKernel, kernel_shape
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.importer.onnx.builder import Handler, OnnxBuilder
from tilewright.compiler.importer.onnx.loader import op_of
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.onnx.onnx_ops import numpy_dtype

#: Attributes that stand-ins in sessions of onnxruntime need, of which kernels are not told.
SHAPE, ZERO = "tilewright_shape", "tilewright_zero"
_DEQUANTIZE, _QUANTIZE = "DequantizeLinear", "QuantizeLinear"


@dataclass(frozen=True)
class _Step:
    """A scale with its zero point, as the model has them; no scale where the model says nothing."""

    scale: Any = None
    zero_point: Any = 0

    def same_as(self, other: _Step) -> bool:
        return np.array_equal(self.scale, other.scale) and np.array_equal(self.zero_point, other.zero_point)


@dataclass(frozen=True)
class _Link:
    """The steps of a node's inputs and of its result, whose type and shape are None where they are not known."""

    inputs: list[_Step]
    output: _Step
    dtype: np.dtype | None
    shape: tuple[int, ...] | None


class KernelNodes:
    """The nodes of a model that kernels run: makes them take and give bytes, and imports them.

    Args:
        model: a loaded model, which is changed.
        kernels: the kernels; the first that takes a node runs it.

    Raises:
        UnsupportedError: a result is read as floats.
    """

    def __init__(self, model: onnx.ModelProto, kernels: Sequence[NodeKernel]) -> None:
        self.kernels = kernels
        self._links: dict[str, _Link] = {}
        self.nodes = [n for n in model.graph.node if any(k.runs_op(op_of(n)) for k in kernels)]
        if not self.nodes:
            return
        self._constants = {t.name: t for t in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._constants[node.output[0]] = node.attribute[0].t
        graph = model.graph
        self._shapes = {v.name: _shape_of(v) for v in (*graph.value_info, *graph.output)}
        for node in self.nodes:
            self._take(model, node)

    @property
    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        """The importers of the nodes, by domain and op."""
        return {("" if n.domain == "ai.onnx" else n.domain, n.op_type): self._import for n in self.nodes}

    def _take(self, model: onnx.ModelProto, node: onnx.NodeProto) -> None:
        """Makes a node take and give bytes."""
        label = f"{op_of(node)} {node.name or node.output[0]!r}"
        if sum(map(bool, node.output)) != 1:
            raise UnsupportedError(f"{label} has {len(node.output)} results; kernels make one")
        producers = {name: n for n in model.graph.node for name in n.output}
        steps = []
        for index, name in enumerate(node.input):
            before, step = producers.get(name), None
            if before is not None and before.op_type == _DEQUANTIZE:
                step = self._step(before)
            if step is not None and before is not None:
                node.input[index] = before.input[0]
            steps.append(step or _Step())
        result = node.output[0]
        readers = [n for n in model.graph.node if result in n.input]
        found = [self._step(n) if n.op_type == _QUANTIZE and n.input[0] == result else None for n in readers]
        shape = self._shapes.get(result)
        if not readers or found[0] is None:
            if any(step.scale is not None for step in steps):
                raise UnsupportedError(
                    f"{label}: its result {result!r} goes to {_names(readers)} as floats, but a kernel makes bytes: "
                    "QuantizeLinear with a constant scale must follow it"
                )
            self._links[result] = _Link(steps, _Step(), None, shape)
            return
        if not all(step is not None and step.same_as(found[0]) for step in found):
            raise UnsupportedError(f"{label}: {_names(readers)} quantise its result {result!r} with different scales")
        first = readers[0]
        node.output[0] = first.output[0]
        self._links[first.output[0]] = _Link(
            steps, found[0], self._dtype(first), shape or self._shapes.get(first.output[0])
        )
        for other in readers[1:]:
            other.CopyFrom(helper.make_node("Identity", [first.output[0]], [other.output[0]], other.name))
        model.graph.node.remove(first)

    def _step(self, node: onnx.NodeProto) -> _Step | None:
        """Returns the step of a QuantizeLinear or DequantizeLinear; None if it is no constant."""
        parts = [self._constants.get(name) for name in node.input[1:3] if name]
        if any(part is None for part in parts):
            return None
        scale, *zero = (numpy_helper.to_array(part) for part in parts if part is not None)
        scale = np.asarray(scale, np.float32)
        zero_point = zero[0].astype(np.int64) if zero else np.zeros(scale.shape, np.int64)
        if scale.size == 1:
            return _Step(np.float32(scale.reshape(())), int(zero_point.reshape(())))
        return _Step(scale, zero_point)

    def _dtype(self, node: onnx.NodeProto) -> np.dtype:
        """Returns the type that a QuantizeLinear makes."""
        if len(node.input) > 2 and node.input[2]:
            return numpy_dtype(self._constants[node.input[2]].data_type, node.input[2])
        given = [a.i for a in node.attribute if a.name == "output_dtype" and a.i]
        return numpy_dtype(given[0], "output_dtype") if given else np.dtype(np.uint8)

    def _import(self, builder: OnnxBuilder, node: OnnxNode) -> None:
        """Imports a node: asks the kernels for the one that runs it."""
        link, name = self._links[node.outputs[0]], f"{node.domain}::{node.op}" if node.domain else node.op
        label = f"{name} {node.name or node.outputs[0]!r}"
        tensors = [builder.tensor(i) if i else None for i in node.inputs]
        inputs = [None if t is None else _value(label, t, step) for t, step in zip(tensors, link.inputs, strict=True)]
        acts = [t for t in tensors if t is not None and not t.is_const]
        if not acts:
            raise UnsupportedError(f"{label} reads constants alone; a kernel runs it where it reads a tensor")
        dtype = link.dtype or acts[0].dtype
        if dtype not in EIGHT_BIT:
            raise UnsupportedError(f"{label}: its result is quantised to {dtype}; kernels make int8 or uint8")
        shape = None if link.shape is None else kernel_shape(link.shape)
        output = NodeValue(node.outputs[0], shape, None, link.output.scale, _stored(link.output.zero_point, dtype))
        attributes = {key: value for key, value in node.attrs.items() if key not in (SHAPE, ZERO)}
        facts = NodeFacts(node.name or node.outputs[0], name, attributes, inputs, output)
        kernel, constants = self._chosen(facts)
        if link.shape is None:
            made = kernel.result_shape(facts, constants)
            if made is None:
                raise UnsupportedError(
                    f"{label}: the model does not say the shape of its result {output.name!r}; give it there "
                    f"(value_info), or give {kernel.name} a reference, which shows it"
                )
            facts = replace(facts, output=replace(output, shape=made))
            shape = (1, *made) if len(acts[0].shape) == 3 and len(made) == 2 else made
        else:
            shape = link.shape
        op = QKernel(kernel=kernel, facts=facts, constants=constants)
        names = [t.name for t in acts]
        builder.graph.add(Tensor(output.name, shape, dtype))
        builder.graph.nodes.append(Node.of(op, names, [output.name], facts.name, (facts.name,)))

    def _chosen(self, facts: NodeFacts) -> tuple[NodeKernel, Mapping[str, Any]]:
        """Returns the first kernel that takes a node, and its constants. Raises `UnsupportedError` if none does."""
        asked = [kernel for kernel in self.kernels if kernel.runs_op(facts.op)]
        for kernel in asked:
            constants = kernel.constants_for(facts)
            if constants is not None:
                return kernel, constants
        raise UnsupportedError(f"{facts.label}: no kernel takes it (asked: {', '.join(k.name for k in asked)})")


def _value(label: str, t: Tensor, step: _Step) -> NodeValue:
    """Returns an input of a node for the kernel. Raises `UnsupportedError` for a tensor that kernels cannot read."""
    if t.data is not None:
        return NodeValue(t.name, t.shape, t.data, step.scale, step.zero_point)
    if t.dtype not in EIGHT_BIT:
        raise UnsupportedError(
            f"{label} reads {t.name!r}, {t.dtype}; kernels read int8 and uint8: QuantizeLinear and DequantizeLinear "
            "with constant scales must be in front of it"
        )
    shape = kernel_shape(t.shape)
    if shape is None or np.ndim(step.scale):
        raise UnsupportedError(
            f"{label} reads {t.name!r} {list(t.shape)}; kernels read [N, C, H, W], [rows, channels] or "
            "[1, rows, channels], with one scale"
        )
    return NodeValue(t.name, shape, None, step.scale, _stored(step.zero_point, t.dtype))


def _stored(zero_point: Any, dtype: np.dtype) -> Any:
    """Returns the zero point of a tensor as the machine has it, int8."""
    return zero_point - 128 if dtype == np.uint8 else zero_point


def _shape_of(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """Returns the shape of a tensor if the model says all of it."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or any(d.dim_value < 1 for d in tensor.shape.dim):
        return None
    return tuple(d.dim_value for d in tensor.shape.dim)


def _names(nodes: Iterable[onnx.NodeProto]) -> str:
    """Returns the ops and names of nodes as text."""
    return ", ".join(f"{n.op_type} {n.name!r}" for n in nodes) or "the outputs"
