"""onnxruntime as the reference of models with nodes that kernels run: their references in numpy stand for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tilewright.checking.onnxruntime_reference import Reference, load_model
from tilewright.compiler.graph.ops.kernel import NodeKernel, QKernel
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.importer.onnx.kernel_nodes import KernelNodes
from tilewright.compiler.importer.onnx.loader import load, source_name


class KernelReference(Reference):
    """A model in onnxruntime whose nodes that kernels run are inputs, with the values of the kernels' references.

    Args:
        model: what `tilewright.compile` takes.
        kernels: the kernels.
        shapes: shapes of the model's inputs.

    Attributes:
        nodes: names of the tensors of each such node, in order, with its op and the name of its result.
    """

    def __init__(
        self,
        model: str | Path | bytes | onnx.ModelProto,
        kernels: Sequence[NodeKernel],
        shapes: Mapping[str, Sequence[int]],
    ) -> None:
        given = load_model(model)
        graph = import_onnx(given, dict(shapes), kernels=kernels)
        self.nodes = [(n.inputs, n.quantized, n.outputs[0]) for n in graph if isinstance(n.quantized, QKernel)]
        loaded = load(given, source_name(model), kernels)
        for node in KernelNodes(loaded, kernels).nodes:
            loaded.graph.node.remove(node)
        self._tensors = {name: graph.tensor(name) for _, _, name in self.nodes}
        for name, t in self._tensors.items():
            kind = helper.np_dtype_to_tensor_dtype(t.dtype)
            loaded.graph.input.append(helper.make_tensor_value_info(name, kind, t.shape))
        super().__init__(loaded)

    @property
    def name(self) -> str:
        kernels = sorted({op.kernel.name for _, op, _ in self.nodes})
        return " and ".join([super().name, *(f"the reference of kernel {name}" for name in kernels)])

    def feeds(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = dict(inputs)
        for names, op, result in self.nodes:
            if result not in found:
                found[result] = self._made(op, self._values(names, found), result)
        return found

    def intermediates(
        self, names: Sequence[str], inputs: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        return super().intermediates(names, self.feeds(inputs))

    def _values(self, names: Sequence[str], known: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The values of tensors that need no more than the known ones."""
        missing = [name for name in names if name not in known]
        found: dict[str, Any] = {}
        if missing:
            part = _part(self.proto, missing, known)
            feeds = {value.name: known[value.name] for value in part.graph.input}
            found = dict(zip(missing, self.session(part).run(None, feeds), strict=True))
        return [found[name] if name in found else known[name] for name in names]

    def _made(self, op: QKernel, values: Sequence[np.ndarray], result: str) -> np.ndarray:
        """The result of a node, by the reference of its kernel."""
        shapes = [value.shape for value in op.facts.tensors]
        stored = [_int8(value).reshape(shape) for value, shape in zip(values, shapes, strict=True) if shape is not None]
        made = np.asarray(op.kernel.expected(stored, op.constants), np.int8)
        tensor = self._tensors[result]
        return (made if tensor.dtype == np.int8 else made.view(np.uint8) ^ np.uint8(0x80)).reshape(tensor.shape)


def _int8(value: np.ndarray) -> np.ndarray:
    """The bytes of a tensor as kernels have them."""
    return value if value.dtype == np.int8 else (value ^ np.uint8(0x80)).view(np.int8)


def _part(proto: onnx.ModelProto, wanted: Sequence[str], known: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model that makes some tensors of the known ones."""
    part = onnx.ModelProto()
    part.CopyFrom(proto)
    producers = {name: node for node in proto.graph.node for name in node.output}
    names, needed = [*wanted], set[str]()
    while names:
        name = names.pop()
        if not name or name in needed:
            continue
        needed.add(name)
        if name in producers and name not in known:
            names += producers[name].input
    kept = [n for n in proto.graph.node if any(name in needed and name not in known for name in n.output)]
    inputs = [value for value in proto.graph.input if value.name in needed]
    for field, values in (("node", kept), ("input", inputs), ("output", [onnx.ValueInfoProto(name=n) for n in wanted])):
        part.graph.ClearField(field)
        getattr(part.graph, field).extend(values)
    return part
