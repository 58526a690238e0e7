"""Functions of an 8-bit tensor with a constant for each channel, of planes or rows, between layers of the NPU.

    PRelu with a slope for each channel  =>  QConv of the negative part, each channel by itself, + a table of the rest
    Mul, Div by one for each channel     =>  QConv, each channel by itself
    Add, Sub of one for each channel     =>  QConv, each channel by itself, with a bias

A table is the same for all lanes, but the requantiser has a scale for each channel. It rounds a product once where the
model's floats are rounded several times. So every channel's scale, and its neighbours, are compared on all values of a
byte; where none gives the model's bytes, the op stays as it is. A summand is a whole number of parts of a step, and the
weight is the number of parts: the first weight with which all values of a byte are right.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.moves import Mover
from tilewright.compiler.graph.ops.convolution import QConv
from tilewright.compiler.graph.ops.elementwise import AddConstants, QAdd, QLut
from tilewright.compiler.graph.quantization import AS_LITERT, is_activation, limits, quantize
from tilewright.compiler.npu.blocks.alias import MOVES
from tilewright.compiler.npu.rewrites.exact_scales import exact_scales
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.compiler.passes.annotate import quant_of
from tilewright.isa.config import NpuConfig

#: What may be between the layer that makes a tensor and the function: views, and what `lower_moves` lowers behind this.
_MOVES = MOVES | {"DepthToSpace", "SpaceToDepth", "Pad"}
_FUNCTIONS = {"PRelu": (0,), "Mul": (0, 1), "Div": (0,), "Add": (0, 1), "Sub": (1,)}
"""Numbers of the operands that may be the tensor; x - constant has become an Add before."""
#: Largest magnitude of a channel's bias: sums of products are exact far beyond.
_MOST_ADDED = 1 << 22


def lower_per_channel(graph: Graph, config: NpuConfig) -> None:
    """Replaces functions with a constant for each channel by depthwise convolutions, where these give equal bytes."""
    rewriter = Rewriter(graph, config)
    rewriter.replace_nodes(lambda node: _replaced(rewriter, node) if node.op == "QuantizeLinear" else None)


def _replaced(rewriter: Rewriter, quantizer: Node) -> list[Node] | None:
    """Returns integer ops in place of such a function and its QuantizeLinear; None if it is another one, or inexact."""
    graph, wiring = rewriter.graph, rewriter.wiring
    function = wiring.producers.get(quantizer.inputs[0])
    if function is None or function.op not in _FUNCTIONS or len(function.inputs) != 2:
        return None
    if quantizer.attrs.get(AS_LITERT):
        return None
    for index in _FUNCTIONS[function.op]:
        source = wiring.producers.get(function.inputs[index])
        factors = graph.const(function.inputs[1 - index])
        if source is None or source.op != "DequantizeLinear" or factors is None or factors.dtype != np.float32:
            continue
        x, y = wiring.tensor(source.inputs[0]), wiring.tensor(quantizer.outputs[0])
        if not (_has_scale_of(graph, source, x) and _has_scale_of(graph, quantizer, y)):
            continue
        if x.shape != y.shape or x.dtype != y.dtype or not (is_activation(x) and is_activation(y)):
            continue
        if not _of_channels(x.shape, factors.shape):
            continue
        if rewriter.made_by_npu(x.name, _MOVES) and rewriter.read_by_npu(y.name):
            if function.op == "Div" and (factors == 0).any():
                return None
            origin = (*function.origin, *quantizer.origin)
            lowered = _of_planes if len(x.shape) == 4 else _of_rows
            return lowered(graph, function, x, y, factors.reshape(-1), origin)
    return None


def _of_channels(shape: tuple[int, ...], factors: tuple[int, ...]) -> bool:
    """Returns True if constants have one value for each channel: of planes, or on the last axis of rows."""
    wanted = (1, shape[1], 1, 1) if len(shape) == 4 else (*(1,) * (len(shape) - 1), shape[-1])
    return len(shape) in (2, 3, 4) and len(factors) <= len(shape) and factors == wanted[len(shape) - len(factors) :]


def _of_rows(
    graph: Graph, function: Node, x: Tensor, y: Tensor, factors: np.ndarray, origin: tuple[str, ...]
) -> list[Node] | None:
    """Returns integer ops that make rows y of rows x [(batch), rows, channels], as planes; None where none is exact."""
    *batch, rows, channels = x.shape
    pixels = (*(batch or [1]), 1, rows, channels)
    before, after = (Mover(graph, [], function.name, origin) for _ in range(2))
    planes = before.transpose(before.reshape(x.name, pixels), (0, 3, 1, 2))
    made = graph.like(y, f"{y.name}.planes", graph.tensor(planes).shape)
    nodes = _of_planes(graph, function, graph.tensor(planes), graph.tensor(made), factors, origin)
    after.reshape(after.transpose(made, (0, 2, 3, 1)), y.shape, y.name)
    return None if nodes is None else [*before.nodes, *nodes, *after.nodes]


def _of_planes(
    graph: Graph, function: Node, x: Tensor, y: Tensor, factors: np.ndarray, origin: tuple[str, ...]
) -> list[Node] | None:
    """Returns integer ops that make the planes y of the planes x; None where none is exact."""
    by_channel = _ByChannel(graph, function, x, y, factors, origin)
    return by_channel.sum(minus=function.op == "Sub") if function.op in ("Add", "Sub") else by_channel.nodes()


def _has_scale_of(graph: Graph, node: Node, tensor: Tensor) -> bool:
    """Returns True if a QuantizeLinear or DequantizeLinear has the scale that a tensor has in the graph."""
    quant = quant_of(graph, node)
    return quant is not None and quant.per_tensor and quant.same_as(tensor.quant)


class _ByChannel:
    """A function of x with a factor or summand for each channel, and the nodes that compute y from x."""

    def __init__(
        self, graph: Graph, function: Node, x: Tensor, y: Tensor, factors: np.ndarray, origin: tuple[str, ...]
    ) -> None:
        assert x.quant is not None and y.quant is not None
        self.graph, self.function, self.x, self.y, self.factors, self.origin = graph, function, x, y, factors, origin
        self.from_quant, self.to_quant = x.quant, y.quant

    def sum(self, minus: bool) -> list[Node] | None:
        """Returns the nodes that add a constant to each channel of x; with `minus` those that subtract x from it."""
        low, high = limits(self.x.dtype)
        centred = np.arange(low, high + 1) - int(self.from_quant.zero_point)
        floats = centred.astype(np.float32) * np.float32(self.from_quant.scale)
        with np.errstate(over="ignore"):  # infinities are quantised to a limit
            wanted = quantize((-floats if minus else floats)[:, None] + self.factors, self.to_quant, self.y.dtype)
        found = [self._weight(-centred if minus else centred, column) for column in wanted.astype(np.int64).T]
        if None in found:
            return None
        weights, biases, scales = (np.array(values) for values in zip(*(one for one in found if one), strict=True))
        return [self._conv(self.x.name, scales, self.y.name, -weights if minus else weights, biases)]

    def _weight(self, centred: np.ndarray, wanted: np.ndarray) -> tuple[int, int, np.float32] | None:
        """Returns the (weight, bias, scale of the weight) with which a channel's products equal `wanted`, or None."""
        zero, (low, high) = int(self.to_quant.zero_point), limits(self.y.dtype)
        steps = float(self.to_quant.scale) / float(self.from_quant.scale)  # steps of the operand in one of the result
        inner = wanted[(wanted > low) & (wanted < high)]
        if not inner.size:
            return None  # nearly all of the channel is a limit
        begins = ((wanted - zero - 0.5) * steps - centred)[wanted > low].max(initial=-math.inf)
        ends = ((wanted - zero + 0.5) * steps - centred)[wanted < high].min(initial=math.inf)
        for weight in range(1, 128):
            bias = round((begins + ends) / 2 * weight)
            if abs(bias) > _MOST_ADDED or not begins * weight <= bias <= ends * weight:
                continue
            scale = self._scale(centred * weight + bias, wanted, np.float32(1 / weight))
            if scale is not None:
                return weight, bias, scale
        return None

    def _scale(self, sums: np.ndarray, wanted: np.ndarray, near: np.float32) -> np.float32 | None:
        """Returns a scale of weights near `near` with which sums become the wanted values; None without any."""
        found = self._scales(sums, wanted[:, None], int(self.to_quant.zero_point), np.array([near]))
        return None if found is None else np.float32(found[0])

    def nodes(self) -> list[Node] | None:
        """Returns the nodes that multiply each channel by its factor, or None if they are inexact.

        For PRelu these multiply only negative values of x.
        """
        low, high = limits(self.x.dtype)
        values, zero = np.arange(low, high + 1), int(self.to_quant.zero_point)
        centred = values - int(self.from_quant.zero_point)
        floats = centred.astype(np.float32) * np.float32(self.from_quant.scale)
        divided = self.function.op == "Div"
        with np.errstate(over="ignore"):  # infinities are quantised to a limit
            found = floats[:, None] / self.factors if divided else floats[:, None] * self.factors
        products = quantize(found, self.to_quant, self.y.dtype).astype(np.int64)
        plain = self.function.op != "PRelu"
        rows = np.full(len(values), True) if plain else centred <= 0
        with np.errstate(over="ignore"):
            factors = np.float32(1) / self.factors if divided else self.factors
        scales = self._scales(centred[rows], products[rows], zero, factors)
        if scales is None:
            return None
        if plain:
            return [self._conv(self.x.name, scales, self.y.name)]
        positive = np.where(centred > 0, quantize(floats, self.to_quant, self.y.dtype).astype(np.int64), zero)
        negative = np.minimum(values, int(self.from_quant.zero_point))
        below, scaled, above = (
            self.graph.like(like, f"{self.y.name}.{stem}")
            for stem, like in (("below", self.x), ("scaled", self.y), ("above", self.y))
        )
        return [
            self._table(negative, below),
            self._conv(below, scales, scaled),
            self._table(positive, above),
            Node.of(
                QAdd(constants=AddConstants(1, 1, -zero, 0)), [scaled, above], [self.y.name], self.function.name,
                self.origin,
            ),
        ]  # fmt: skip

    def _scales(self, sums: np.ndarray, wanted: np.ndarray, zero: int, factors: np.ndarray) -> np.ndarray | None:
        """Returns scales of weights near `factors` with which sums become `wanted`, float32 [channels], or None."""
        steps = self.from_quant.scale, self.to_quant.scale
        return exact_scales(sums, wanted, steps, zero, self.y.dtype, factors)

    def _conv(
        self, x: str, scales: np.ndarray, y: str, weights: np.ndarray | None = None, biases: np.ndarray | None = None
    ) -> Node:
        """Returns a depthwise QConv that multiplies each channel by a weight (1 if None) and adds a bias, if any."""
        channels = len(scales)
        quant = Quant.of(scales, np.zeros(channels, np.int64), 0)
        values = np.ones(channels) if weights is None else weights
        inputs = [x, self.graph.constant(f"{y}.factors", values.astype(np.int8).reshape(-1, 1, 1, 1), quant)]
        if biases is not None:
            inputs.append(self.graph.constant(f"{y}.summands", biases.astype(np.int32)))
        return Node.of(QConv(kernel=(1, 1), group=channels), inputs, [y], self.function.name, self.origin)

    def _table(self, results: np.ndarray, y: str) -> Node:
        """Returns a QLut of x whose results are given for x's values in ascending order."""
        places = np.arange(256, dtype=np.uint8).view(self.x.dtype).astype(np.int64) - limits(self.x.dtype)[0]
        table = results[places].astype(self.y.dtype).tobytes()
        return Node.of(QLut(table=table), [self.x.name], [y], self.function.name, self.origin)
