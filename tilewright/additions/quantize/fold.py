"""Scales and shifts per channel become part of the product before them.

    Conv, ConvTranspose, Gemm, MatMul -> x * s + t        W' = W * s,  b' = b * s + t, per output channel
    MatMul with a bias                                    Gemm, between Reshapes where there are more than two axes
    Gemm with alpha, beta, transB                         1, 1, 0
    a BatchNormalization behind anything else             a depthwise Conv of size 1, or Mul and Add

x * s + t is a BatchNormalization, or a Mul, Div, Add or Sub with a constant of one value per channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.quantize.layers import Network, attributes_of


def fold(model: onnx.ModelProto) -> None:
    """Changes the model in place; shapes of its tensors must have been inferred."""
    _Folder(model).run()


@dataclass
class _Affine:
    """x * scale + shift, float64 [channels] or []."""

    scale: np.ndarray
    shift: np.ndarray


class _Folder:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.network = Network(model)
        self.made: dict[str, onnx.TensorProto] = {}
        self.made_of: dict[str, list[str]] = {}
        self.fresh = 0

    def run(self) -> None:
        nodes: list[onnx.NodeProto] = []
        gone: set[str] = set()  # results of nodes that are part of others now
        for node in self.network.nodes:
            if node.output and node.output[0] in gone:
                continue
            product = self._product(node)
            if product is not None:
                name = node.output[0]
                while (found := self._affine_reader(name, product.axis)) is not None:
                    after, affine = found
                    if not product.apply(affine):
                        break
                    name = after.output[0]
                    gone.add(name)
                nodes += product.nodes(self, name)
            elif node.op_type == "BatchNormalization" and self._batch_norm(node) is not None:
                nodes += self._as_depthwise(node)
            else:
                nodes.append(node)
        del self.model.graph.node[:]
        self.model.graph.node.extend(nodes)
        self.model.graph.initializer.extend(self.made.values())
        _drop_unread(self.model)

    def add(self, stem: str, value: np.ndarray) -> str:
        """A new initialiser."""
        self.fresh += 1
        name = f"{stem}_folded_{self.fresh}"
        self.made[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def shared(self, source: str, stem: str, value: np.ndarray) -> str:
        """Adds an initialiser made of another one, or returns an equal one made before: the steps of an unrolled
        recurrent network have the same weights."""
        for name in self.made_of.setdefault(source, []):
            if np.array_equal(numpy_helper.to_array(self.made[name]), value):
                return name
        self.made_of[source].append(self.add(stem, value))
        return self.made_of[source][-1]

    # -- what is folded -----------------------------------------------------------------------------------------------

    def _affine_reader(self, name: str, axis: int) -> tuple[onnx.NodeProto, _Affine] | None:
        """The scale and shift that is the only reader of a tensor, whose channels are on `axis` (from the end if <
        0)."""
        node = self.network.sole_reader(name)
        shape = self.network.shape(name)
        if node is None or shape is None or node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type == "BatchNormalization":
            affine = self._batch_norm(node) if axis == 1 or len(shape) == 2 else None
            return (node, affine) if affine is not None else None
        if node.op_type not in ("Mul", "Div", "Add", "Sub") or len(node.input) != 2:
            return None
        first = node.input[0] == name
        constant = self.network.constant(node.input[1 if first else 0])
        if constant is None or constant.dtype != np.float32 or (node.op_type == "Div" and not first):
            return None
        values = _per_channel(constant, len(shape), axis % len(shape), shape[axis])
        if values is None:
            return None
        one, none = np.ones(()), np.zeros(())
        if node.op_type == "Mul":
            return node, _Affine(values, none)
        if node.op_type == "Div":
            return (node, _Affine(1 / values, none)) if np.all(values != 0) else None
        if node.op_type == "Add":
            return node, _Affine(one, values)
        return node, _Affine(one, -values) if first else _Affine(-one, values)

    def _batch_norm(self, node: onnx.NodeProto) -> _Affine | None:
        """Scale and shift of a BatchNormalization with constants, in inference; else None."""
        values = [self.network.constant(name) for name in node.input[1:5]]
        attributes = attributes_of(node)
        if len(values) != 4 or any(v is None or v.dtype != np.float32 for v in values):
            return None
        if attributes.get("training_mode", 0) or len([o for o in node.output if o]) != 1:
            return None
        scale, bias, mean, variance = (np.asarray(v, np.float64) for v in values)
        wide = scale / np.sqrt(variance + float(attributes.get("epsilon", 1e-5)))  # type: ignore[arg-type]
        return _Affine(wide, bias - mean * wide)

    def _as_depthwise(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        affine = self._batch_norm(node)
        shape = self.network.shape(node.input[0])
        assert affine is not None
        if shape is None:
            return [node]
        x, y, channels = node.input[0], node.output[0], affine.scale.size
        scale, shift = affine.scale.astype(np.float32), affine.shift.astype(np.float32)
        if len(shape) >= 3:
            ones = [1] * (len(shape) - 2)
            inputs = [x, self.add(node.name, scale.reshape(channels, 1, *ones)), self.add(node.name, shift)]
            return [helper.make_node("Conv", inputs, [y], node.name, group=channels, kernel_shape=ones)]
        return [
            helper.make_node("Mul", [x, self.add(node.name, scale)], [f"{y}_scaled"], f"{node.name}_scale"),
            helper.make_node("Add", [f"{y}_scaled", self.add(node.name, shift)], [y], node.name),
        ]

    def _product(self, node: onnx.NodeProto) -> _Product | None:
        """The product of a node whose weights may be changed; None for other nodes."""
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul") or node.domain not in ("", "ai.onnx"):
            return None
        weights = self.network.constant(node.input[1])
        if weights is None or weights.dtype != np.float32 or node.input[0] in self.network.constants:
            return None
        shape = self.network.shape(node.input[0])
        attributes = attributes_of(node)
        bias: np.ndarray | None = None
        if len(node.input) > 2 and node.input[2]:
            bias = self.network.constant(node.input[2])
            if bias is None:
                return None
        if node.op_type == "MatMul":
            return _Product(node, weights, None, 1, shape, -1) if weights.ndim == 2 and shape is not None else None
        if node.op_type == "Gemm":
            alpha, beta = (float(attributes.get(name, 1.0)) for name in ("alpha", "beta"))  # type: ignore[arg-type]
            if attributes.get("transB", 0):
                weights = weights.T
            if bias is not None:
                flat = _per_channel(bias, 2, 1, weights.shape[1])
                if flat is None:
                    return None
                bias = np.broadcast_to(flat * beta, weights.shape[1:])
            return _Product(node, weights, bias, 1, shape, -1, scale=alpha)
        axis = 1 if node.op_type == "ConvTranspose" else 0
        if axis == 1 and attributes.get("group", 1) != 1:
            return None
        return _Product(node, weights, None if bias is None else bias.astype(np.float64), axis, shape, 1)


@dataclass
class _Product:
    """A product in the making.

    Attributes:
        weights: float32, without what was taken in.
        bias: float64.
        channels: axis of the output channels in the weights.
        shape: of the input.
        axis: of the channels in the result.
    """

    node: onnx.NodeProto
    weights: np.ndarray
    bias: np.ndarray | None
    channels: int
    shape: list[int] | None
    axis: int
    changed: bool = False
    scale: np.ndarray | float = 1.0  # of the weights, per channel or for all

    def apply(self, affine: _Affine) -> bool:
        """Multiplies a scale into the weights and adds a shift to the bias; False if the result could not be
        written."""
        count = self.weights.shape[self.channels]
        shifts = bool(np.any(affine.shift != 0))
        if shifts and self.node.op_type == "MatMul" and self._rows() is None:
            return False
        wide = np.broadcast_to(affine.scale, (count,))
        self.scale = self.scale * wide
        if self.bias is not None or shifts:
            before = np.zeros(count) if self.bias is None else self.bias
            self.bias = before * wide + affine.shift
        self.changed = True
        return True

    def _rows(self) -> list[int] | None:
        """The axes before the last as a shape for Reshape, None if two of them are open."""
        assert self.shape is not None
        rows = self.shape[:-1]
        return rows if sum(n < 0 for n in rows) <= 1 and 0 not in rows else None

    def nodes(self, folder: _Folder, result: str) -> list[onnx.NodeProto]:
        """The nodes that write `result`."""
        node, kind = self.node, self.node.op_type
        attributes = attributes_of(node)
        unusual = kind == "Gemm" and any(
            attributes.get(a, d) != d for a, d in (("alpha", 1), ("beta", 1), ("transB", 0))
        )
        flat = self.bias is None or (len(node.input) > 2 and len(folder.network.constants[node.input[2]].dims) == 1)
        if not self.changed and not unusual and flat:
            return [node]
        made = onnx.NodeProto()
        made.CopyFrom(node)
        wide = [-1 if i == self.channels else 1 for i in range(self.weights.ndim)]
        scale = self.scale.reshape(wide) if isinstance(self.scale, np.ndarray) else np.float64(self.scale)
        weights = np.empty(self.weights.shape, np.float32)
        np.multiply(self.weights, scale, out=weights, casting="same_kind")  # in float64, without a copy in float64
        made.input[1] = folder.shared(node.input[1], node.name or kind, weights)
        del made.input[2:]
        if self.bias is not None:
            made.input.append(folder.add(f"{node.name or kind}_bias", self.bias.astype(np.float32)))
        made.output[0] = result
        if kind == "Gemm":
            keep = [a for a in made.attribute if a.name == "transA"]
            del made.attribute[:]
            made.attribute.extend(keep)
        if kind != "MatMul" or self.bias is None:
            return [made]
        made.op_type = "Gemm"
        assert self.shape is not None
        if len(self.shape) == 2:
            return [made]
        rows = self._rows()
        assert rows is not None
        stem = node.name or result
        flat_shape = folder.add(stem, np.array([-1, self.weights.shape[0]], np.int64))
        full_shape = folder.add(stem, np.array([*(-1 if n < 0 else n for n in rows), self.weights.shape[1]], np.int64))
        before = helper.make_node("Reshape", [node.input[0], flat_shape], [f"{result}_rows"], f"{stem}_flatten")
        made.input[0] = f"{result}_rows"
        made.output[0] = f"{result}_flat"
        after = helper.make_node("Reshape", [f"{result}_flat", full_shape], [result], f"{stem}_unflatten")
        return [before, made, after]


def _per_channel(constant: np.ndarray, rank: int, axis: int, channels: int) -> np.ndarray | None:
    """float64 [channels] or [] if the constant has one value per channel of a tensor, None if it has more."""
    if constant.size == 1:
        return np.asarray(constant.reshape(()), np.float64) if constant.ndim <= rank else None
    if constant.ndim > rank:
        return None
    full = [1] * (rank - constant.ndim) + list(constant.shape)
    if full[axis] != channels or constant.size != channels:
        return None
    return np.asarray(constant.reshape(-1), np.float64)


def _drop_unread(model: onnx.ModelProto) -> None:
    """Removes initialisers that nothing reads any more."""
    network = Network(model)
    kept = [x for x in model.graph.initializer if x.name in network.readers or x.name in network.outputs]
    names = {x.name for x in model.graph.initializer} - {x.name for x in kept}
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    inputs = [x for x in model.graph.input if x.name not in names]  # old files list initialisers as inputs
    del model.graph.input[:]
    model.graph.input.extend(inputs)
