"""Sets of tensors whose channels can have common factors, which leave the float function what it is.

A factor passes through functions with f(s x) = s f(x) and through pools, moves and sums. Products write and read the
tensors of a set; whatever else reads or writes one keeps all of the set as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from tilewright.quantize.groups import Groups
from tilewright.quantize.layers import PRODUCTS, Kind, Network, attributes_of
from tilewright.quantize.recipe import Precision, Recipe
from tilewright.quantize.writing import quantised_layers

_THROUGH = {"Relu", "LeakyRelu", "Identity", "Dropout"}
_SPATIAL = {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"}
_RESHAPES = {"Reshape", "Flatten", "Squeeze", "Unsqueeze"}


@dataclass
class Writer:
    """A node whose constants are divided by the factors: (initialiser, axis of the channels)."""

    node: onnx.NodeProto
    constants: list[tuple[str, int]]


@dataclass
class Reader:
    """A product whose weights are multiplied by the factors of the tensor it reads.

    Attributes:
        weights: initialiser.
        kind: "conv" [outputs, inputs / groups, ...], "transposed" or "rows" [inputs, outputs, ...], "columns".
        groups: of a Conv.
    """

    weights: str
    kind: str
    groups: int = 1

    def matrix(self, weights: np.ndarray) -> np.ndarray:
        """[channels, outputs of the channel, others]; rows of one output that share a scale are of one group."""
        if self.kind == "conv":
            shaped = weights.reshape(self.groups, weights.shape[0] // self.groups, weights.shape[1], -1)
            return shaped.transpose(0, 2, 1, 3).reshape(-1, shaped.shape[1], shaped.shape[3])
        if self.kind == "columns":
            return np.ascontiguousarray(weights.T)[:, :, None]
        return weights.reshape(*weights.shape[:2], -1)

    def scaled(self, weights: np.ndarray, factors: np.ndarray) -> np.ndarray:
        if self.kind == "conv":
            wide = np.repeat(factors.reshape(self.groups, -1), weights.shape[0] // self.groups, axis=0)
            return np.asarray(weights * wide.reshape(*weights.shape[:2], *[1] * (weights.ndim - 2)))
        wide = factors[None] if self.kind == "columns" else factors.reshape(-1, *[1] * (weights.ndim - 1))
        return np.asarray(weights * wide)


@dataclass(frozen=True)
class End:
    """A tensor that a product writes for floats only.

    Attributes:
        tensor, axis: with its channels.
        writer: the product.
    """

    tensor: str
    axis: int
    writer: Writer


@dataclass
class Set:
    """Tensors with common factors.

    Attributes:
        channels: how many factors.
        tensors: each with the axis of its channels.
        sums: sums in floats that read a tensor, which take its factors back.
    """

    channels: int
    tensors: dict[str, int] = field(default_factory=dict)
    writers: list[Writer] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    sums: dict[str, list[onnx.NodeProto]] = field(default_factory=dict)
    fixed: bool = False


def sets(network: Network) -> list[Set]:
    """The sets of tensors whose channels can be scaled, each with at least one that writes and one that reads."""
    return Finder(network).found()


class Finder:
    """Walks over the nodes of a network and joins tensors that have to have the same factors.

    Args:
        precision: of layers; 8 bits where there is none.
    """

    def __init__(self, network: Network, precision: Mapping[str, Precision] | None = None) -> None:
        self.network = network
        self.precision = dict(precision or {})
        self.groups = Groups()
        self.axis: dict[str, int] = {}
        self.fixed: set[str] = {*network.inputs}
        self.writers: list[tuple[str, Writer]] = []
        self.readers: list[tuple[str, Reader]] = []
        self.sums: list[tuple[str, onnx.NodeProto]] = []
        for node in network.nodes:
            if not self._writes_or_reads(node) and not self._passes(node):
                self.fixed.update([*node.input, *node.output])
        names = {name for users in network.readers.values() for node in users for name in node.input}
        self.fixed.update(name for name in [*names, *self.axis] if network.exposed(name))

    def found(self) -> list[Set]:
        by_root: dict[str, Set] = {}
        blocked = {self.groups.find(name) for name in self.fixed}
        for name, axis in self.axis.items():
            root = self.groups.find(name)
            size = (self.network.shape(name) or [0] * 9)[axis]
            one = by_root.setdefault(root, Set(size))
            one.fixed = one.fixed or root in blocked or size != one.channels or size < 2
            one.tensors[name] = axis
        for name, writer in self.writers:
            by_root[self.groups.find(name)].writers.append(writer)
        for name, reader in self.readers:
            if self.groups.find(name) in by_root:
                by_root[self.groups.find(name)].readers.append(reader)
        for name, node in self.sums:
            if self.groups.find(name) in by_root:
                by_root[self.groups.find(name)].sums.setdefault(name, []).append(node)
        return [one for one in by_root.values() if not one.fixed and one.writers and one.readers]

    def ends(self) -> list[End]:
        """Finds the tensors that products write for floats only, with a Relu behind them perhaps. Scores of the output
        are none of them: a class that the samples do not have would saturate."""
        quantised = quantised_layers(self.network, Recipe(self.network.model, precision=self.precision))
        found = []
        for name, writer in self.writers:
            layer = self.network.layer_of.get(name)
            if layer is None or layer.kind is not Kind.PRODUCT or any(n.op_type == "Clip" for n in layer.nodes):
                continue
            result = layer.outputs[0]
            users = [self.network.layer_of.get(o) for node in self.network.readers.get(result, []) for o in node.output]
            only_floats = all(user is None or user.name not in quantised for user in users)
            if only_floats and self._leads_to_product(result):
                found.append(End(result, self.axis[name], writer))
        return found

    def _leads_to_product(self, name: str) -> bool:
        seen, pending = set(), [name]
        while pending:
            for node in self.network.readers.get(pending.pop(), []):
                if node.op_type in PRODUCTS:
                    return True
                pending += [x for x in node.output if x and x not in seen]
                seen.update(node.output)
        return False

    def _is_own_constant(self, name: str) -> bool:
        """Whether only one node reads a float constant."""
        held = self.network.constants.get(name)
        return held is not None and self.network.is_float(name) and len(self.network.readers[name]) == 1

    def _writes_or_reads(self, node: onnx.NodeProto) -> bool:
        """Registers products and normalisations with constants of their own as writers or readers; False for other
        nodes."""
        if node.op_type == "LayerNormalization":
            return self._normalisation(node)
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul") or not self._is_own_constant(node.input[1]):
            return False
        attributes, rank = attributes_of(node), len(self.network.constants[node.input[1]].dims)
        biases = [name for name in node.input[2:] if name]
        if not all(self._is_own_constant(name) for name in biases):
            return False
        groups = int(attributes.get("group", 1))  # type: ignore[call-overload]
        weights, x, y = node.input[1], node.input[0], node.output[0]
        if node.op_type == "Conv":
            made, reader, axis = 0, Reader(weights, "conv", groups), 1
        elif node.op_type == "ConvTranspose" and groups == 1:
            made, reader, axis = 1, Reader(weights, "transposed"), 1
        elif node.op_type != "ConvTranspose" and rank == 2:
            turned = bool(attributes.get("transB", 0))
            if attributes.get("transA", 0) or any(attributes.get(k, 1.0) != 1.0 for k in ("alpha", "beta")):
                return False
            made, reader = (0, Reader(weights, "columns")) if turned else (1, Reader(weights, "rows"))
            axis = -1
        else:
            return False
        channels = self.network.constants[weights].dims[made]
        if any(int(np.prod(self.network.constants[b].dims)) != channels for b in biases):
            return False
        last = [(b, len(self.network.constants[b].dims) - 1) for b in biases]
        self._write(node, y, axis, [(weights, made), *last])
        if self._axis_is(x, axis):
            self.readers.append((x, reader))
        else:
            self.fixed.add(x)
        return True

    def _normalisation(self, node: onnx.NodeProto) -> bool:
        shape = self.network.shape(node.input[0])
        last = attributes_of(node).get("axis", -1) in (-1, len(shape or []) - 1)
        constants = [name for name in node.input[1:] if name]
        if not last or len(node.output) > 1 or not all(self._is_own_constant(name) for name in constants):
            return False
        if any(len(self.network.constants[name].dims) != 1 for name in constants):
            return False
        self.fixed.add(node.input[0])
        self._write(node, node.output[0], -1, [(name, 0) for name in constants])
        return True

    def _write(self, node: onnx.NodeProto, name: str, axis: int, constants: list[tuple[str, int]]) -> None:
        shape = self.network.shape(name)
        if shape is None:
            self.fixed.add(name)
            return
        self.axis[name] = axis % len(shape)
        self.writers.append((name, Writer(node, constants)))

    def _axis_is(self, name: str, axis: int) -> bool:
        shape = self.network.shape(name)
        return shape is not None and self.axis.get(name) == axis % len(shape)

    def _passes(self, node: onnx.NodeProto) -> bool:
        """True for nodes that a factor per channel passes through."""
        x = node.input[0] if node.input else ""
        y = node.output[0] if node.output else ""
        if node.domain not in ("", "ai.onnx") or len([name for name in node.output if name]) != 1:
            return False
        if node.op_type in ("Add", "Mul"):
            return self._pair(node)
        axis = self.axis.get(x)
        if axis is None:
            return False
        if node.op_type in _THROUGH:
            return self._join(x, y, axis)
        if node.op_type in _SPATIAL or (node.op_type == "Resize" and self._resizes(node)):
            return axis == 1 and self._join(x, y, 1)
        if node.op_type == "Transpose":
            order = attributes_of(node).get("perm")
            return isinstance(order, list) and self._join(x, y, order.index(axis))
        if node.op_type in _RESHAPES:
            place = self._reshaped(x, y, axis)
            return place is not None and self._join(x, y, place)
        return False

    def _pair(self, node: onnx.NodeProto) -> bool:
        """Gives a sum's operands common factors. A product has those of its larger operand, or of the one that the
        other one gates; that one keeps its own."""
        a, b = node.input
        y, shapes = node.output[0], [self.network.shape(name) for name in (*node.input, node.output[0])]
        if a in self.network.constants or b in self.network.constants or any(s is None for s in shapes):
            return False
        if node.op_type == "Add" and shapes[0] == shapes[1] and self._in_floats(node):
            self.fixed.add(y)
            self.sums += [(a, node), (b, node)]
            return True
        if node.op_type == "Add":
            axis = self.axis.get(a)
            same = axis is not None and shapes[0] == shapes[1] and self.axis.get(b) == axis
            return same and self._join(a, y, axis or 0) and self._join(b, y, axis or 0)
        large, small = (a, b) if shapes[0] == shapes[2] else (b, a)
        if shapes[0] == shapes[1]:
            if self._gates(a, b):
                large, small = b, a
            elif not self._gates(b, a):
                return False
        axis = self.axis.get(large)
        if axis is None or self.network.shape(large) != shapes[2]:
            return False
        self.fixed.add(small)
        return self._join(large, y, axis)

    def _gates(self, gate: str, name: str) -> bool:
        """Whether a tensor is a function of a product of another one, as `self_gated` writes it."""
        function = self.network.layer_of.get(gate)
        if function is None or function.kind is not Kind.ELEMENTWISE:
            return False
        product = self.network.layer_of.get(function.inputs[0])
        return product is not None and product.kind is Kind.PRODUCT and product.inputs == [name]

    def _in_floats(self, node: onnx.NodeProto) -> bool:
        """Whether a node's layer is kept in floats."""
        layer = self.network.layer_of.get(node.output[0])
        return layer is not None and self.precision.get(layer.name) is Precision.FLOAT

    def _join(self, x: str, y: str, axis: int) -> bool:
        if self.network.shape(y) is None:
            return False
        self.axis[y] = axis
        self.groups.join(y, x)
        return True

    def _resizes(self, node: onnx.NodeProto) -> bool:
        return attributes_of(node).get("coordinate_transformation_mode", b"half_pixel") != b"tf_crop_and_resize"

    def _reshaped(self, x: str, y: str, axis: int) -> int | None:
        """The channel axis after a reshape that leaves channels whole, or None."""
        before, after = self.network.shape(x), self.network.shape(y)
        if before is None or after is None or min([*before, *after]) < 0:
            return None
        outer = int(np.prod(before[:axis]))
        for place, size in enumerate(after):
            if size == before[axis] and int(np.prod(after[:place])) == outer:
                return place
        return None
