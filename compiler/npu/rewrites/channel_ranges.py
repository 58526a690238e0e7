"""The least and greatest integer of every channel, for any input: interval analysis of the quantised ops.

Every rule is monotone in every operand, or looks at all bytes of a range, so the ends of the operands' ranges give the
ends of the result's. A channel whose ends are equal is constant. Where a padded window may or may not see padding, its
zero point belongs to the range; where a sum may leave int32, or a scale is no ordinary number, nothing is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.ops.convolution import QConv, QConvTranspose
from tilewright.compiler.graph.ops.elementwise import Elementwise, QAdd, QLut, QMul
from tilewright.compiler.graph.ops.interpolate import QInterpolate
from tilewright.compiler.graph.ops.pooling import QAveragePool, QGlobalAveragePool, QMaxPool
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.quantized_op import Windowed
from tilewright.compiler.graph.ops.take import QTake
from tilewright.compiler.graph.quantization import limits, ordinary
from tilewright.compiler.graph.tensor import Tensor
from tilewright.compiler.npu.rewrites.channel_links import Channels, Link
from tilewright.isa import numerics

#: Least and greatest integer of each channel, int64 [channels].
Range = tuple[np.ndarray, np.ndarray]
#: Most places of a window over all positions along an axis, of a pool that is looked at.
_MOST_PLACES = 1 << 20
_INT32 = np.iinfo(np.int32)
_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Sums:
    """What is known of the int32 sums of a product or a depthwise convolution, bias included.

    Attributes:
        low, high: int64 [outputs], of the sums.
        read: bool [outputs, inputs], False where all weights are zero; [outputs, 1] of a depthwise convolution.
        weights: int64 [outputs, inputs], the sums of the weights over the window, less the zero point.
    """

    low: np.ndarray
    high: np.ndarray
    read: np.ndarray
    weights: np.ndarray


@dataclass
class ChannelRanges:
    """Ranges of the tensors that `Channels` knows, by name, and of the sums they are made of, by name of the result."""

    channels: Channels
    of: dict[str, Range] = field(default_factory=dict)
    sums: dict[str, Sums] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.graph.nodes:
            name = node.outputs[0]
            if name in self.channels.axes:
                low, high = self._made(node, self.channels.count(name))
                self.of[name] = low.astype(np.int64), high.astype(np.int64)

    @property
    def graph(self) -> Graph:
        return self.channels.graph

    def constant(self, name: str) -> np.ndarray:
        """bool [channels]: the channels that have one value for every input."""
        low, high = self.of[name]
        return np.asarray(low == high)

    def operand(self, name: str, axis: int) -> Range:
        """The range of an operand for each place along an axis; of all of it for an axis that it does not have."""
        t = self.graph.tensor(name)
        others = tuple(a for a in range(len(t.shape)) if a != axis)
        if t.data is not None and t.data.size:
            return t.data.min(others).astype(np.int64), t.data.max(others).astype(np.int64)
        low, high = self.of.get(name, tuple(np.array([v]) for v in limits(t.dtype)))
        if self.channels.axes.get(name, axis) != axis:
            low, high = low.min(keepdims=True), high.max(keepdims=True)
        count = t.shape[axis] if axis < len(t.shape) else 1
        return np.broadcast_to(low, count), np.broadcast_to(high, count)

    def _made(self, node: Node, count: int) -> Range:
        """The range of the result of a node in `Channels`."""
        op, result = node.quantized, self.graph.tensor(node.outputs[0])
        anything: Range = tuple(np.full(count, v) for v in limits(result.dtype))  # type: ignore[assignment]
        if not all(_is_ordinary(t) for t in (*self.graph.operands(node), result)):
            return anything
        if isinstance(op, QConv | QConvTranspose | QMatMul):
            return self._product(node, op, anything)
        linked = self.channels.linked(node)
        if isinstance(op, QAdd | QMul):
            return self._corners(node, op, linked, count)
        ranges = [self.operand(node.inputs[link.index], link.axis) for link in linked]
        x = self.graph.tensor(node.inputs[0])
        if isinstance(op, QLut):
            return _by_table(op.table, ranges[0], x, result)
        if isinstance(op, Elementwise):
            return anything
        if isinstance(op, QAveragePool | QGlobalAveragePool):
            return _mean(op, ranges[0], x, result)
        if isinstance(op, QConcat):
            tables = zip(ranges, op.tables, node.inputs, strict=True)
            ranges = [r if t is None else _by_table(t, r, self.graph.tensor(n), result) for r, t, n in tables]
            return _placed(ranges, linked, count)
        whole = isinstance(op, QMaxPool) and _taps(op, x.shape[2:]).all()  # no window lies on padding alone
        moved = isinstance(op, QInterpolate | QTake) or node.op in ("Transpose", "Reshape")
        return _placed(ranges, linked, count) if whole or moved else anything

    def _product(self, node: Node, op: QConv | QConvTranspose | QMatMul, anything: Range) -> Range:
        """The range of a product or a depthwise convolution; keeps what is known of its sums."""
        graph, name = self.graph, node.outputs[0]
        x, w, y = (graph.tensor(n) for n in (node.inputs[0], node.inputs[1], name))
        assert w.data is not None and w.quant is not None and x.quant is not None and y.quant is not None
        product = self.channels.of_product(node)
        axis = 1 if product is None else product.axis
        outputs, inputs = (0, 1) if product is None else (product.outputs, product.inputs)
        positive, negative = _weight_sums(w.data, w.quant.zero_point, outputs, inputs)
        low, high = (r - float(x.quant.zero_point) for r in self.operand(x.name, axis))
        if isinstance(op, QConvTranspose) or (isinstance(op, QConv) and max(op.pads) > 0):
            low, high = np.minimum(low, 0), np.maximum(high, 0)  # a tap may be outside of the input
        if product is None:
            copies = len(positive) // len(low)
            ends = [np.repeat(end, copies)[:, None] for end in (low, high)]
            least, most = (
                (positive * ends[0] + negative * ends[1])[:, 0],
                (positive * ends[1] + negative * ends[0])[:, 0],
            )
        else:
            least, most = positive @ low + negative @ high, positive @ high + negative @ low
        bias = graph.const(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
        least, most = (np.asarray(s, np.int64) + (0 if bias is None else bias.astype(np.int64)) for s in (least, most))
        self.sums[name] = Sums(least, most, (positive > 0) | (negative < 0), (positive + negative).astype(np.int64))
        scale = numerics.product_scale(x.quant.scale, w.quant.scale, y.quant.scale)
        scale = np.broadcast_to(scale.reshape(-1), least.shape)
        known = (least >= _INT32.min) & (most <= _INT32.max) & np.isfinite(scale)
        known &= (scale == 0) | (np.abs(scale) >= _TINY)
        within = op.limits(y.dtype)
        ends = [_requantised(np.where(known, s, 0), np.where(known, scale, 0), y, within) for s in (least, most)]
        return np.where(known, np.minimum(*ends), anything[0]), np.where(known, np.maximum(*ends), anything[1])

    def _corners(self, node: Node, op: QAdd | QMul, linked: list[Link], count: int) -> Range:
        """The range of an op that is monotone in each of its two operands: that of its values at the four corners."""
        operands = [self.graph.tensor(name) for name in node.inputs]
        axes = {link.index: link.axis for link in linked}
        ranges = []
        for index, t in enumerate(operands):
            low, high = self.operand(t.name, axes.get(index, len(t.shape)))
            ranges.append([np.broadcast_to(v, count).astype(t.dtype) for v in (low, high)])
        result = self.graph.tensor(node.outputs[0])
        found = np.array([op.value([a, b], operands, result) for a in ranges[0] for b in ranges[1]], np.int64)
        return found.min(0), found.max(0)


def _is_ordinary(t: Tensor | None) -> bool:
    """False for an activation with a negative scale or one that rules of floats may take beyond float32."""
    return t is None or t.quant is None or not t.quant.per_tensor or ordinary(t.quant)


def _weight_sums(w: np.ndarray, zero_point: np.ndarray, outputs: int, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """The sums of the positive and of the negative weights over a window, float64 [outputs, inputs]."""
    z = np.asarray(zero_point, np.int16)
    if z.any():
        w = w.astype(np.int16) - (z.reshape([-1 if a == outputs else 1 for a in range(w.ndim)]) if z.ndim else z)
    taps = w.reshape(*w.shape[:2], -1)
    ones = np.ones(taps.shape[2], np.float32 if taps.shape[2] < 1 << 15 else np.float64)  # for exact sums
    parts = (np.maximum(taps, 0), np.minimum(taps, 0))
    found = [np.asarray(part.astype(ones.dtype) @ ones, np.float64) for part in parts]
    return (found[0], found[1]) if outputs < inputs else (found[0].T, found[1].T)


def _requantised(sums: np.ndarray, scale: np.ndarray, y: Tensor, within: tuple[int, int]) -> np.ndarray:
    """`clamp(RNE(f32(f32(sum) * scale)) + zy)`, int64."""
    assert y.quant is not None
    with np.errstate(over="ignore"):
        steps = np.rint(sums.astype(np.float32) * scale.astype(np.float32)).astype(np.float64)
    return np.asarray(np.clip(steps + int(y.quant.zero_point), *within).astype(np.int64))


def _by_table(table: bytes, ends: Range, x: Tensor, y: Tensor) -> Range:
    """The range of a table's results: the least and greatest of its entries for all values of each range."""
    values = np.arange(limits(x.dtype)[0], limits(x.dtype)[1] + 1)
    results = np.frombuffer(table, np.uint8)[values.astype(x.dtype).view(np.uint8)].view(y.dtype).astype(np.int64)
    pairs, which = np.unique(np.stack(ends), axis=1, return_inverse=True)
    parts = [results[low - values[0] : high - values[0] + 1] for low, high in pairs.T]
    low, high = (np.array([f(part) for part in parts], np.int64)[which.reshape(-1)] for f in (np.min, np.max))
    return low, high


def _mean(op: QAveragePool | QGlobalAveragePool, ends: Range, x: Tensor, y: Tensor) -> Range:
    """The range of averages: those of windows that hold one end of the range only."""
    assert x.quant is not None and y.quant is not None
    within = op.limits(y.dtype)
    spatial = x.shape[2:]
    counts = np.array([np.prod(spatial)]) if isinstance(op, QGlobalAveragePool) else np.unique(_taps(op, spatial))
    anything = np.full_like(ends[0], limits(y.dtype)[0]), np.full_like(ends[0], limits(y.dtype)[1])
    if counts.size == 0 or counts[0] < 1 or counts[-1] > 1 << 22:
        return anything
    if isinstance(op, QAveragePool) and op.count_include_pad and counts[0] < np.prod(op.kernel):
        return anything
    found = []
    for end in ends:
        values, which = np.unique(end, return_inverse=True)
        means = np.array([[_mean_of(op, int(v), int(n), x, y) for v in values] for n in counts])
        if not np.isfinite(means).all():
            return anything
        found.append(np.clip(means, *within)[:, which.reshape(-1)])
    return found[0].min(0), found[1].max(0)


def _mean_of(op: QAveragePool | QGlobalAveragePool, value: int, n: int, x: Tensor, y: Tensor) -> float:
    """The average of n elements of a value, before the clamp."""
    assert x.quant is not None and y.quant is not None
    (sx, zx), (sy, zy) = ((np.float32(q.scale), int(q.zero_point)) for q in (x.quant, y.quant))
    if op.half_away:
        return value
    if isinstance(op, QAveragePool):
        total = np.add.accumulate(np.full(n, np.float32(value - zx) * sx, np.float32))[-1]
        return float(np.rint(total / np.float32(n) / sy + np.float32(zy)))
    if op.offset is not None:
        assert op.factor is not None
        return float(np.rint(np.float32(n * value) * np.float32(op.factor) + np.float32(op.offset)))
    factor = numerics.mean_scale(sx, sy, n) if op.factor is None else np.float32(op.factor)
    return float(np.rint(np.float32(n * (value - zx)) * factor)) + zy


def _taps(op: Windowed, spatial: tuple[int, ...]) -> np.ndarray:
    """The numbers of taps inside of the input at every position of a window; 0 where there are too many to look at."""
    found = np.ones((), np.int64)
    for i, (n, positions) in enumerate(zip(spatial, op.positions(spatial), strict=True)):
        if positions * op.kernel[i] > _MOST_PLACES or positions * found.size > _MOST_PLACES:
            return np.zeros(1, np.int64)
        at = np.arange(positions)[:, None] * op.strides[i] - op.pads[i] + np.arange(op.kernel[i]) * op.dilations[i]
        found = np.multiply.outer(found, ((at >= 0) & (at < n)).sum(1))
    return found


def _placed(ranges: list[Range], linked: list[Link], count: int) -> Range:
    """The range of a result that takes its elements from the operands; of several parts it covers all."""
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    for (least, most), link in zip(ranges, linked, strict=True):
        low[link.places] = np.minimum(low[link.places], least[:, None])
        high[link.places] = np.maximum(high[link.places], most[:, None])
    return low, high


__all__ = ["ChannelRanges", "Range", "Sums"]
