"""Functions of one 8-bit tensor that differ from channel to channel, between layers of the NPU.

    PRelu with a slope for each channel  =>  QConv of the negative part, each channel by itself, + a table of the rest
    Mul, Div by one for each channel     =>  QConv, each channel by itself

A table is the same for all lanes, but the requantiser has a scale for each channel. Its product is rounded once where
the model's floats are rounded several times, so every channel's scale is tried on all values of a byte, and its
neighbours where it fails; where none gives the model's bytes the op stays what it is.
"""

from __future__ import annotations

import numpy as np

from compiler.graph import Graph, Node, Quant, Tensor
from compiler.npu.blocks.wiring import Wiring
from compiler.npu.moves import made_by_npu, read_by_npu
from compiler.ops.convolution import QConv
from compiler.ops.elementwise import AddConstants, QAdd, QLut
from compiler.passes.annotate import quant_of
from compiler.quantization import is_activation, limits, quantize
from isa import numerics
from isa.config import NpuConfig

#: Steps of a float32 by which a scale may be off.
_NEIGHBOURS = 64


def convolve_by_channel(graph: Graph, config: NpuConfig) -> None:
    wiring = Wiring.of(graph)
    made: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.op == "QuantizeLinear":
            found = _replaced(wiring, config, node)
            if found is not None:
                made[id(node)] = found
    if made:
        graph.nodes = [other for node in graph.nodes for other in made.get(id(node), [node])]
        graph.prune()


def _replaced(wiring: Wiring, config: NpuConfig, quantizer: Node) -> list[Node] | None:
    """Integer ops that make what a QuantizeLinear makes of such a function; None where it is none, or not exactly."""
    function = wiring.producers.get(quantizer.inputs[0])
    if function is None or function.op not in ("PRelu", "Mul", "Div") or len(function.inputs) != 2:
        return None
    for index in (0, 1) if function.op == "Mul" else (0,):
        source = wiring.producers.get(function.inputs[index])
        factors = wiring.graph.const(function.inputs[1 - index])
        if source is None or source.op != "DequantizeLinear" or factors is None or factors.dtype != np.float32:
            continue
        x, y = wiring.tensor(source.inputs[0]), wiring.tensor(quantizer.outputs[0])
        if not (_says(wiring.graph, source, x) and _says(wiring.graph, quantizer, y)):
            continue
        if (
            len(x.shape) != 4
            or x.shape != y.shape
            or x.dtype != y.dtype
            or not is_activation(x)
            or not is_activation(y)
        ):
            continue
        if factors.ndim > 4 or (1,) * (4 - factors.ndim) + factors.shape != (1, x.shape[1], 1, 1):
            continue
        if made_by_npu(wiring, config, x.name) and read_by_npu(wiring, config, y.name):
            if function.op == "Div" and (factors == 0).any():
                return None
            origin = (*function.origin, *quantizer.origin)
            return _ByChannel(wiring.graph, function, x, y, factors.reshape(-1), origin).nodes()
    return None


def _says(graph: Graph, node: Node, tensor: Tensor) -> bool:
    """Whether a QuantizeLinear or DequantizeLinear has the scale that a tensor has in the graph."""
    quant = quant_of(graph, node)
    return quant is not None and quant.per_tensor and quant.same_as(tensor.quant)


class _ByChannel:
    """x to y, multiplied by a factor for each channel, by PRelu only where it is negative."""

    def __init__(
        self, graph: Graph, function: Node, x: Tensor, y: Tensor, factors: np.ndarray, origin: tuple[str, ...]
    ) -> None:
        assert x.quant is not None and y.quant is not None
        self.graph, self.function, self.x, self.y, self.factors, self.origin = graph, function, x, y, factors, origin
        self.from_quant, self.to_quant = x.quant, y.quant

    def nodes(self) -> list[Node] | None:
        low, high = limits(self.x.dtype)
        values, zero = np.arange(low, high + 1), int(self.to_quant.zero_point)
        centred = values - int(self.from_quant.zero_point)
        floats = centred.astype(np.float32) * np.float32(self.from_quant.scale)
        divided = self.function.op == "Div"
        with np.errstate(over="ignore"):  # what is infinite is quantised to a limit
            found = floats[:, None] / self.factors if divided else floats[:, None] * self.factors
        products = quantize(found, self.to_quant, self.y.dtype).astype(np.int64)
        plain = self.function.op != "PRelu"
        rows = np.full(len(values), True) if plain else centred <= 0
        scales = self._scales(centred[rows], products[rows], zero)
        if scales is None:
            return None
        if plain:
            return [self._conv(self.x.name, scales, self.y.name)]
        positive = np.where(centred > 0, quantize(floats, self.to_quant, self.y.dtype).astype(np.int64), zero)
        negative = np.minimum(values, int(self.from_quant.zero_point))
        below, scaled, above = (
            self._tensor(stem, like) for stem, like in (("below", self.x), ("scaled", self.y), ("above", self.y))
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

    def _scales(self, centred: np.ndarray, wanted: np.ndarray, zero: int) -> np.ndarray | None:
        """Scales of weights of 1 with which products of these values are what is wanted, float32 [channels]."""
        least, (low, high) = limits(self.y.dtype)[0] + 128, limits(np.dtype(np.int8))
        sx, sy = self.from_quant.scale, self.to_quant.scale
        with np.errstate(over="ignore"):
            factors = np.float32(1) / self.factors if self.function.op == "Div" else self.factors
        found, open_ = factors.copy(), np.full(len(factors), True)
        for step in sorted(range(-_NEIGHBOURS, _NEIGHBOURS + 1), key=abs):
            tried = (factors.view(np.int32) + step).view(np.float32)
            scale = numerics.scale_bits(numerics.product_scale(sx, tried, sy).astype(np.float32))
            got = numerics.requantize(centred[:, None], scale, zero - least, low, high).astype(np.int64) + least
            fits = open_ & (got == wanted).all(axis=0)
            found[fits], open_ = tried[fits], open_ & ~fits
            if not open_.any():
                return found
        return None

    def _conv(self, x: str, scales: np.ndarray, y: str) -> Node:
        channels = len(scales)
        quant = Quant.of(scales, np.zeros(channels, np.int64), 0)
        weights = self.graph.constant(f"{y}.factors", np.ones((channels, 1, 1, 1), np.int8), quant)
        return Node.of(QConv(kernel=(1, 1), group=channels), [x, weights], [y], self.function.name, self.origin)

    def _table(self, results: np.ndarray, y: str) -> Node:
        """A table from the values in their order."""
        places = np.arange(256, dtype=np.uint8).view(self.x.dtype).astype(np.int64) - limits(self.x.dtype)[0]
        table = results[places].astype(self.y.dtype).tobytes()
        return Node.of(QLut(table=table), [self.x.name], [y], self.function.name, self.origin)

    def _tensor(self, stem: str, like: Tensor) -> str:
        name = self.graph.unique(f"{self.y.name}.{stem}")
        self.graph.add(Tensor(name, like.shape, like.dtype, None, like.quant))
        return name
