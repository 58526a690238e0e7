"""Parts of a model: which nodes can run as one, and the model of a part by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from onnx import ModelProto, NodeProto, TensorProto


class Parts:
    """A model that is taken apart.

    Attributes:
        nodes: of the model, in an order that works; places are indices into it.
    """

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        self.nodes: Sequence[NodeProto] = model.graph.node
        self._constants = {t.name: t for t in model.graph.initializer}
        graph = model.graph
        self._values = {v.name: v for v in (*graph.output, *graph.input, *graph.value_info)}
        self._outputs = {v.name for v in graph.output}
        self._maker = {name: i for i, node in enumerate(self.nodes) for name in node.output if name}
        self._readers: dict[str, list[int]] = {}
        for i, node in enumerate(self.nodes):
            for name in node.input:
                self._readers.setdefault(name, []).append(i)

    def reason_against(self, place: int) -> str:
        """Why a node cannot be compiled whatever its operator is, "" if nothing speaks against it."""
        node = self.nodes[place]
        for name in (*node.input, *node.output):
            if not name:
                continue
            if name in self._constants:
                kind, sizes = self._constants[name].data_type, True
            else:
                value = self._values.get(name)
                if value is None or not value.type.HasField("tensor_type"):
                    return f"{name!r} is no tensor"
                tensor = value.type.tensor_type
                kind = tensor.elem_type
                sizes = tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)
            if kind in (TensorProto.STRING, TensorProto.UNDEFINED):
                return f"{name!r} holds no numbers"
            if not sizes:
                return f"the shape of {name!r} is not known before the model runs"
        return ""

    def groups(self, left: Collection[int]) -> list[list[int]]:
        """The nodes but those `left`, as groups that can each become one node: connected, with no way out of a group
        and back into it. Every group in the order of the model."""
        depth: list[int] = []
        for i, node in enumerate(self.nodes):
            before = [self._maker[name] for name in node.input if name in self._maker]
            depth.append(max((depth[j] + (i not in left and j in left) for j in before), default=0))
        root = list(range(len(self.nodes)))

        def find(i: int) -> int:
            while root[i] != i:
                root[i] = root[root[i]]
                i = root[i]
            return i

        for i, node in enumerate(self.nodes):
            for name in node.input:
                j = self._maker.get(name)
                if j is not None and i not in left and j not in left and depth[i] == depth[j]:
                    root[find(i)] = find(j)
        groups: dict[int, list[int]] = {}
        for i in range(len(self.nodes)):
            if i not in left:
                groups.setdefault(find(i), []).append(i)
        return list(groups.values())

    def values_of(self, place: int) -> set[str]:
        """Names of the inputs and outputs of a node, constants aside."""
        node = self.nodes[place]
        return {name for name in (*node.input, *node.output) if name and name not in self._constants}

    def part(self, places: Sequence[int]) -> ModelProto:
        """The model of some nodes: inputs are what they read and do not make, outputs what others read."""
        inside = set(places)
        made = {name for i in places for name in self.nodes[i].output if name}
        read = dict.fromkeys(name for i in places for name in self.nodes[i].input if name)
        part = ModelProto(ir_version=self.model.ir_version, opset_import=self.model.opset_import)
        part.graph.name = "part"
        part.graph.node.extend(self.nodes[i] for i in places)
        part.graph.initializer.extend(self._constants[name] for name in read if name in self._constants)
        part.graph.input.extend(self._values[name] for name in read if name not in made and name not in self._constants)
        for i in places:
            for name in self.nodes[i].output:
                if name in self._outputs or any(j not in inside for j in self._readers.get(name, ())):
                    part.graph.output.append(self._values[name])
        return part


def digest(model: ModelProto) -> bytes:
    """Names what a model computes: the same for the same nodes and constants, however they are ordered."""
    graph = model.graph
    pieces = [
        *(b"node" + _plain(node) for node in graph.node),
        *(b"constant" + t.SerializeToString(deterministic=True) for t in graph.initializer),
        *(b"opset" + o.SerializeToString(deterministic=True) for o in model.opset_import),
        *(b"in" + v.name.encode() for v in graph.input),
        *(b"out" + v.name.encode() for v in graph.output),
    ]
    hashes = sorted(hashlib.sha256(piece).digest() for piece in pieces)
    return hashlib.sha256(b"".join(hashes)).digest()


def _plain(node: NodeProto) -> bytes:
    plain = NodeProto(op_type=node.op_type, domain=node.domain, input=node.input, output=node.output)
    plain.attribute.extend(sorted(node.attribute, key=lambda a: a.name))
    found: bytes = plain.SerializeToString(deterministic=True)
    return found
