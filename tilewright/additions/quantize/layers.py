"""Layers: what is quantised together. Between the tensors of a layer's border there are no QuantizeLinear nodes.

    product       Conv, ConvTranspose, Gemm, MatMul, and a Relu or Clip behind it
    elementwise   any chain of functions of one tensor, such as x * sigmoid(x): one table in the machine
    by channel    PRelu with a slope for each channel
    pair          Add, Mul of two tensors, and a Relu or Clip behind it
    join          Concat, and ops that put rows into a tensor, such as a cache (ScatterElements, ...)
    pool          AveragePool, GlobalAveragePool, ReduceMean over the image, Softmax
    norm          LayerNormalization of the last axis; with `whole`, norms by a root mean square however written
    recurrent     LSTM, GRU, RNN behind the products of their inputs, with the Concat that joins these
    move          MaxPool, Reshape, Transpose, Resize, ...: the result has the quantisation of the input

Everything else stays in floats.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tilewright.compiler.graph.macs import hands_on
from tilewright.compiler.onnx.onnx_graphs import reads_of
from tilewright.quantize import whole
from tilewright.quantize.recurrent_ops import GATES, MAX_STEPS


class Kind(enum.Enum):
    PRODUCT = "product"
    ELEMENTWISE = "elementwise"
    BY_CHANNEL = "by channel"
    PAIR = "pair"
    JOIN = "join"
    POOL = "pool"
    NORM = "norm"
    RECURRENT = "recurrent"
    MOVE = "move"


PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
PAIRS = {"Add", "Mul"}
JOINS = {"Concat"}
SCATTERS = {"ScatterElements": (0, 2), "ScatterND": (0, 2), "TensorScatter": (0, 1)}
"""Positions of the values among the inputs of scattering ops; the other inputs are indices."""
POOLS = {"AveragePool", "GlobalAveragePool", "ReduceMean", "Softmax"}
NORMS = {"LayerNormalization", "RMSNormalization"}
MOVES = {
    "MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather", "Expand", "Tile",
    "DepthToSpace", "SpaceToDepth", "Split", "Identity", "ReduceMax", "ReduceMin",
}  # fmt: skip
FUNCTIONS = {
    "Abs", "Celu", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Neg",
    "Relu", "Selu", "Shrink", "Sigmoid", "Softplus", "Softsign", "Swish", "Tanh", "ThresholdedRelu", "Sqrt", "Log",
    "Reciprocal", "Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu",
}  # fmt: skip
"""Elementwise ops that may be part of a chain."""


@dataclass
class Layer:
    """Nodes that are quantised together.

    Attributes:
        name: of its first node.
        op: of its first node.
        nodes: in the order of the model.
        inputs: float tensors it reads that are no constants; for products the activation(s) only.
        outputs: float tensors it writes that something outside of it reads.
        weights: initialiser with the weights of a product, "" without constant ones.
        bias: initialiser with its bias, "" if there is none.
        axis: output channels in the weights.
        constants: float initialisers that the layer reads as a second operand; they are quantised as tensors.
    """

    kind: Kind
    nodes: list[onnx.NodeProto]
    inputs: list[str]
    outputs: list[str]
    weights: str = ""
    bias: str = ""
    axis: int = 0
    constants: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.nodes[0].name)

    @property
    def op(self) -> str:
        return str(self.nodes[0].op_type)

    @property
    def multiplies(self) -> bool:
        """Whether it has products, so that it is worth quantising."""
        return self.kind in (Kind.PRODUCT, Kind.RECURRENT)


class Network:
    """The nodes of a prepared float model, who reads and who writes what, and its layers.

    Args:
        model: as `prepare.prepare` leaves it; not changed.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.nodes = list(model.graph.node)
        self.constants = {x.name: x for x in model.graph.initializer}
        self.inputs = [x.name for x in model.graph.input if x.name not in self.constants]
        self.outputs = [x.name for x in model.graph.output]
        self.producer = {name: node for node in self.nodes for name in node.output if name}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        self._inside: set[str] = set()  # tensors that branches and bodies read
        self._root_of: dict[str, str] = {}
        self.whole = whole.is_whole(model)
        for node in self.nodes:
            for name in reads_of([node]):
                self.readers.setdefault(name, []).append(node)
            self._inside.update(set(reads_of([node])) - set(node.input))
        infos = [*model.graph.value_info, *model.graph.input, *model.graph.output]
        self.info = {x.name: x.type.tensor_type for x in infos}
        self.layers = self._find()
        self.layer_of = {name: layer for layer in self.layers for node in layer.nodes for name in node.output if name}

    def is_float(self, name: str) -> bool:
        if name in self.constants:
            return bool(self.constants[name].data_type == TensorProto.FLOAT)
        return name in self.info and self.info[name].elem_type == TensorProto.FLOAT

    def float_outputs(self) -> list[str]:
        """Outputs of real numbers: also of doubles or halves, which no layer writes."""
        kinds = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
        return [name for name in self.outputs if name in self.info and self.info[name].elem_type in kinds]

    def shape(self, name: str) -> list[int] | None:
        """Sizes, -1 for open ones; None where not even the rank is known."""
        if name in self.constants:
            return list(self.constants[name].dims)
        kind = self.info.get(name)
        if kind is None or not kind.HasField("shape"):
            return None
        return [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]

    def constant(self, name: str) -> np.ndarray | None:
        return numpy_helper.to_array(self.constants[name]) if name in self.constants else None

    def exposed(self, name: str) -> bool:
        """Whether the graph's outputs or a branch or body read the tensor."""
        return name in self.outputs or name in self._inside

    def sole_reader(self, name: str) -> onnx.NodeProto | None:
        users = self.readers.get(name, [])
        return users[0] if len(users) == 1 and not self.exposed(name) else None

    # -- layers -------------------------------------------------------------------------------------------------------

    def _find(self) -> list[Layer]:
        layers: list[Layer] = []
        taken: set[str] = set()  # first outputs of nodes that are part of a layer
        norms: dict[str, Layer] = {}  # by the results of their nodes
        for x, nodes in whole.norms(self) if self.whole else ():
            norms |= dict.fromkeys([n.output[0] for n in nodes], Layer(Kind.NORM, nodes, [x], [nodes[-1].output[0]]))
        self._root_of = roots = self._roots(norms)
        chains: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            root = roots.get(node.output[0] if node.output else "")
            if root is not None:
                chains.setdefault(root, []).append(node)
        begun: set[str] = set()
        for node in self.nodes:
            if not node.output or node.output[0] in taken or not all(self.is_float(o) for o in node.output if o):
                continue
            layer: Layer | None
            root = roots.get(node.output[0])
            if node.output[0] in norms:
                layer = norms[node.output[0]]
            elif root is not None:
                if root in begun:
                    continue
                begun.add(root)
                layer = self._chain(root, chains[root])
            else:
                layer = self._single(node)
            if layer is not None:
                layers.append(layer)
                taken.update(o for n in layer.nodes for o in n.output)
        return layers

    def _roots(self, others: Collection[str]) -> dict[str, str]:
        """Maps each result of a chain to the tensor that the chain is a function of.

        Args:
            others: results that are parts of other layers.
        """
        found: dict[str, str] = {}
        clamps: set[str] = set()
        for node in self.nodes:
            if node.output and node.output[0] in others:
                continue
            root = None if not node.output or node.output[0] in clamps else self._root(node, found)
            if root is not None:
                found[node.output[0]] = root
            elif (clamp := self._clamp_behind(node)) is not None:
                clamps.add(clamp.output[0])
        return found

    def _root(self, node: onnx.NodeProto, found: Mapping[str, str]) -> str | None:
        if node.op_type not in FUNCTIONS or len(node.output) != 1 or node.domain not in ("", "ai.onnx"):
            return None
        operands = [name for name in node.input if name and self._values(name) != 1]
        if not operands or not all(self.is_float(name) for name in [*operands, node.output[0]]):
            return None
        behind = {found.get(name, name) for name in map(str, operands)}
        root = behind.pop()
        if behind or root in self.constants or not self._same_rank(root, node.output[0]):
            return None
        return root

    def _values(self, name: str) -> int:
        """Number of elements of a constant, 0 for other tensors."""
        return int(np.prod(self.constants[name].dims, dtype=np.int64)) if name in self.constants else 0

    def _same_rank(self, a: str, b: str) -> bool:
        """True if two shapes have the same rank: a constant of one element keeps the other operand's shape then."""
        x, y = self.shape(a), self.shape(b)
        return x is None or y is None or len(x) == len(y)

    def _chain(self, root: str, nodes: list[onnx.NodeProto]) -> Layer:
        inside = {id(n) for n in nodes}
        outputs = [
            n.output[0]
            for n in nodes
            if self.exposed(n.output[0]) or any(id(r) not in inside for r in self.readers.get(n.output[0], []))
        ]
        return Layer(Kind.ELEMENTWISE, nodes, [root], outputs or [nodes[-1].output[0]])

    def _clamp_behind(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """The Relu or Clip that becomes part of a product or pair: the only reader of its result."""
        if node.op_type not in PRODUCTS | PAIRS or not node.output:
            return None
        if node.op_type in PAIRS and len(self._activations(node)) != 2:
            return None
        user = self.sole_reader(node.output[0])
        if user is None or user.op_type not in ("Relu", "Clip") or user.input[0] != node.output[0]:
            return None
        bounds = [name for name in user.input[1:] if name]
        return user if all(name in self.constants for name in bounds) else None

    def _activations(self, node: onnx.NodeProto) -> list[str]:
        return [name for name in node.input if name and name not in self.constants]

    def _single(self, node: onnx.NodeProto) -> Layer | None:
        if node.domain not in ("", "ai.onnx") or not node.input:
            return None
        op, activations = node.op_type, self._activations(node)
        if not activations or not all(self.is_float(name) for name in activations[:1]):
            return None
        if op in PRODUCTS:
            return self._product(node, activations)
        steps = node if op in GATES else self.sole_reader(node.output[0]) if op in JOINS else None
        if steps is not None and steps.op_type in GATES:
            return self._recurrent(node, steps)
        if op in PAIRS or op in JOINS:
            constants = list(dict.fromkeys(name for name in node.input if name in self.constants))
            if not all(self.is_float(name) for name in [*activations, *constants]):
                return None
            if any(self._values(name) == 0 for name in constants) or self._stays_float(node):
                return None
            if not all(self._has_steps(name, op == "Add") for name in constants):
                return None
            clamp = self._clamp_behind(node)
            nodes = [node] if clamp is None else [node, clamp]
            kind = Kind.PAIR if op in PAIRS else Kind.JOIN
            return Layer(kind, nodes, list(dict.fromkeys(activations)), [nodes[-1].output[0]], constants=constants)
        if op == "PRelu":
            slopes = len(activations) == 1 and self._has_steps(node.input[1], False)
            return Layer(Kind.BY_CHANNEL, [node], activations, [node.output[0]]) if slopes else None
        if op in SCATTERS:
            return self._scatter(node)
        if op in POOLS:
            return Layer(Kind.POOL, [node], [node.input[0]], [node.output[0]]) if self._pools(node) else None
        if op in NORMS:
            return Layer(Kind.NORM, [node], [node.input[0]], [node.output[0]]) if self._norms_rows(node) else None
        if op in MOVES or self._moves(node):
            if node.input[0] in self.constants or len([o for o in node.output if o]) != len(node.output):
                return None
            if op == "MaxPool" and len(node.output) > 1:
                return None
            return Layer(Kind.MOVE, [node], [node.input[0]], list(node.output))
        return None

    def _recurrent(self, first: onnx.NodeProto, node: onnx.NodeProto) -> Layer | None:
        """Steps of a recurrent node whose gates `recurrent.split_inputs` has made; None where they cannot be integers.

        Args:
            first: the Concat of its gates, or the node.
        """
        shape, w = self.shape(node.input[0]), self.constant(node.input[1])
        if shape is None or w is None or not 0 < shape[0] <= MAX_STEPS or not hands_on(w[0]):
            return None
        states = [name for name in node.input[5:] if name and name not in self.constants]
        outputs = [name for name in node.output if name and (name in self.readers or self.exposed(name))]
        nodes = [node] if first is node else [first, node]
        return Layer(Kind.RECURRENT, nodes, [*first.input[: len(GATES[node.op_type])], *states], outputs)

    def _has_steps(self, name: str, mask: bool) -> bool:
        """Whether a float constant can be quantised: all of it is finite, but for what masks a sum."""
        values = numpy_helper.to_array(self.constants[name])
        return bool(np.all(np.isfinite(values) | (mask & np.isneginf(values))))

    def _scatter(self, node: onnx.NodeProto) -> Layer | None:
        """A join of the scattered values; None where they are reduced, or are constants."""
        values = [node.input[at] for at in SCATTERS[node.op_type]]
        reduced = attributes_of(node).get("reduction", b"none") != b"none"
        if reduced or any(name in self.constants or not self.is_float(name) for name in values):
            return None
        return Layer(Kind.JOIN, [node], list(dict.fromkeys(values)), [node.output[0]])

    def _stays_float(self, node: onnx.NodeProto) -> bool:
        """Whether an operand is too fine for steps of 8 bits: a function of a mean that is no pool, such as a root mean
        square; or a look-up in a table of floats, such as the angles of RoPE. One rounding behind the sum is better
        than one behind each term. Nothing is in a whole model."""
        if self.whole:
            return False
        for name in node.input:
            maker = self.producer.get(self._root_of.get(name, name))
            while maker is not None and maker.op_type in MOVES - {"Gather"}:
                maker = self.producer.get(maker.input[0])
            if maker is not None and (
                (maker.op_type == "ReduceMean" and not self._pools(maker))
                or (maker.op_type == "Gather" and maker.input[0] in self.constants)
            ):
                return True
        return False

    def _product(self, node: onnx.NodeProto, activations: list[str]) -> Layer | None:
        clamp = self._clamp_behind(node)
        nodes = [node] if clamp is None else [node, clamp]
        outputs = [nodes[-1].output[0]]
        weights = node.input[1]
        bias = node.input[2] if len(node.input) > 2 else ""
        if weights not in self.constants:
            both = node.input[0] not in self.constants and node.op_type == "MatMul"
            if not both or not all(self.is_float(name) for name in activations):
                return None
            return Layer(Kind.PRODUCT, nodes, list(dict.fromkeys(activations)), outputs)
        if node.input[0] in self.constants or not self.is_float(weights) or (bias and bias not in self.constants):
            return None
        attributes = attributes_of(node)
        rank = len(self.constants[weights].dims)
        axis = 0
        if node.op_type == "ConvTranspose":
            axis = 1
        elif node.op_type == "MatMul":
            axis = rank - 1
        elif node.op_type == "Gemm":
            if attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0 or attributes.get("transA", 0):
                return None
            axis = 0 if attributes.get("transB", 0) else 1
        if rank < 2 or self._values(weights) == 0:
            return None
        return Layer(Kind.PRODUCT, nodes, [node.input[0]], outputs, weights, bias, axis)

    def _pools(self, node: onnx.NodeProto) -> bool:
        """True for a mean over whole channels: other means are part of a normalisation."""
        if node.op_type != "ReduceMean":
            return True
        shape = self.shape(node.input[0])
        axes = attributes_of(node).get("axes")
        if axes is None and len(node.input) > 1:
            value = self.constant(node.input[1])
            axes = None if value is None else value.reshape(-1).tolist()
        if shape is None or len(shape) < 3 or not isinstance(axes, list):
            return False
        kept = [i for i in range(len(shape)) if i not in [int(a) % len(shape) for a in axes]]
        return len(kept) == 2 and kept[0] == 0

    def _norms_rows(self, node: onnx.NodeProto) -> bool:
        """Whether a norm has one result, of rows along the last axis, and constant scale and bias."""
        shape, axis = self.shape(node.input[0]), attributes_of(node).get("axis", -1)
        last = axis == -1 or (shape is not None and axis == len(shape) - 1)
        return last and len(node.output) == 1 and all(name in self.constants for name in node.input[1:] if name)

    def interpolates(self, node: onnx.NodeProto) -> bool:
        """Whether a node is a linear Resize to 2, 4 or 8 times as many rows and columns, or as many. Where its scale is
        a power of two, the machine's integers are onnxruntime's."""
        if node.op_type != "Resize":
            return False
        attributes = attributes_of(node)
        places = (b"half_pixel", b"pytorch_half_pixel", b"asymmetric")
        if attributes.get("mode") != b"linear" or attributes.get("antialias", 0):
            return False
        if attributes.get("coordinate_transformation_mode", b"half_pixel") not in places:
            return False
        x, y = self.shape(node.input[0]), self.shape(node.output[0])
        if x is None or y is None or len(x) != 4 or min(*x, *y) < 1 or x[:2] != y[:2]:
            return False
        return all(b in (a, 2 * a, 4 * a, 8 * a) for a, b in zip(x[2:], y[2:], strict=True))

    def _moves(self, node: onnx.NodeProto) -> bool:
        attributes = attributes_of(node)
        if node.op_type == "Resize":
            mode = attributes.get("mode", b"nearest")
            place = attributes.get("coordinate_transformation_mode", b"half_pixel")
            return (mode == b"nearest" and place != b"tf_crop_and_resize") or self.interpolates(node)
        if node.op_type == "Pad":
            value = self.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(())
            return value is not None and bool(np.all(value == 0))
        return False


def attributes_of(node: onnx.NodeProto) -> dict[str, object]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def tensors_to_observe(network: Network) -> list[str]:
    """Names of the tensors whose ranges `writing.write` may ask for: borders of layers, in the order of the nodes.

    Ranges of constants are taken from their values.
    """
    names = dict.fromkeys(name for layer in network.layers for name in [*layer.inputs, *layer.outputs])
    order = {name: at for at, name in enumerate([*network.inputs, *(o for n in network.nodes for o in n.output)])}
    return sorted((n for n in names if n not in network.constants), key=lambda name: order.get(name, -1))
