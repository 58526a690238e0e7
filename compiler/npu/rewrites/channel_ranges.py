"""The least and greatest integer of every channel, for any input: interval analysis of the quantised ops.

Every rule is monotone in every operand, or looks at all bytes of a range, so the ends of the operands' ranges give the
ends of the result's. A channel whose ends are equal is constant. Where a padded window may or may not see padding, its
zero point belongs to the range; where a sum may leave int32, or a scale is no ordinary number, nothing is claimed.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.ops.convolution import QConv, QConvTranspose
from tilewright.compiler.graph.ops.elementwise import Elementwise, QAdd, QLut, QMul
from tilewright.compiler.graph.ops.interpolate import QInterpolate
from tilewright.compiler.graph.ops.pooling import QAveragePool, QGlobalAveragePool, QMaxPool
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.quantized_op import Weighted, Windowed
from tilewright.compiler.graph.ops.take import QTake
from tilewright.compiler.graph.quantization import limits, ordinary
from tilewright.compiler.graph.tensor import Tensor
from tilewright.compiler.npu.rewrites.channel_links import Channels, Link
from tilewright.isa import numerics

#: Least and greatest integer of each channel, int64 [channels].
Range = tuple[np.ndarray, np.ndarray]
#: Most places of a window over all positions along an axis, of a pool that is looked at.
_MOST_PLACES = 1 << 20
#: Outputs of a product that mostly read all of its inputs.
_FIRST = 16
_INT32 = np.iinfo(np.int32)


class ChannelRanges(Struct):
    """Ranges of the tensors that `Channels` knows, by name."""

    channels: Channels
    of: dict[str, Range] = field(default_factory=dict)

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
            return np.ravel(t.data.min(others)).astype(np.int64), np.ravel(t.data.max(others)).astype(np.int64)
        low, high = self.of.get(name, tuple(np.array([v]) for v in limits(t.dtype)))
        if self.channels.axes.get(name, axis) != axis:
            low, high = low.min(keepdims=True), high.max(keepdims=True)
        count = t.shape[axis] if axis < len(t.shape) else 1
        return np.broadcast_to(low, count), np.broadcast_to(high, count)

    def _made(self, node: Node, count: int) -> Range:
        """The range of the result of a node in `Channels`."""
        op, result = node.quantized, self.graph.tensor(node.outputs[0])
        anything: Range = tuple(np.full(count, v) for v in limits(result.dtype))  # type: ignore[assignment]
        operands = self.graph.operands(node)[: 1 if isinstance(op, Weighted) else None]
        if not all(t is None or t.quant is None or ordinary(t.quant) for t in (*operands, result)):
            return anything  # a negative scale, or one that rules of floats may take beyond float32
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
        """The range of a product or a depthwise convolution.

        If the zero point is in the range of every operand, each product widens the range of its sum. Where those of
        some inputs reach both ends of the result's type or clamp, so do all: most channels need no look at all weights.
        """
        w, y, scale = self.weights(node), self.graph.tensor(node.outputs[0]), self._scales(node)
        within, (low, high) = op.limits(y.dtype), self._centred(node)
        found = np.full(len(w), within[0]), np.full(len(w), within[1])
        rows = np.arange(len(w))
        widened = within[0] < within[1] and (low <= 0).all() and (high >= 0).all()
        for weights in (1 << 7, 1 << 9, 1 << 11) if widened else ():
            part = weights // w.shape[2]
            if 0 < part < w.shape[1] and rows.size:
                ends = self._ends(node, rows, w[rows, :part], low[:part], high[:part])
                least, most = _requantised(ends, scale[rows], y, within)
                rows = rows[(least > within[0]) | (most < within[1])]
        if not rows.size:
            return found
        ends = self._ends(node, rows, w[rows], low, high)
        known = (ends[0] >= _INT32.min) & (ends[1] <= _INT32.max) & _is_normal(scale[rows])
        least, most = _requantised(ends, scale[rows], y, within)
        found[0][rows], found[1][rows] = np.where(known, least, anything[0][0]), np.where(known, most, anything[1][0])
        return found

    def weights(self, node: Node) -> np.ndarray:
        """The weights of a product or a depthwise convolution less their zero points, [outputs, inputs, taps]."""
        w = self.graph.tensor(node.inputs[1])
        assert w.data is not None and w.quant is not None
        product = self.channels.of_product(node)
        data = w.data if product is None or product.outputs == 0 else w.data.swapaxes(0, 1)
        data = data.reshape(*data.shape[:2], -1)
        zero = w.quant.zero_point.reshape(-1, 1, 1).astype(np.int16)
        return data.astype(np.int16) - zero if zero.any() else data

    def read(self, node: Node, rows: np.ndarray) -> np.ndarray:
        """bool [inputs]: the inputs of a product by which some of these outputs multiplies another weight than zero."""
        w, numbers = self.weights(node), np.flatnonzero(rows)
        found = w[numbers[:_FIRST]].any((0, 2))
        return np.asarray(found if found.all() else w[numbers].any((0, 2)))

    def least_sums(self, node: Node) -> np.ndarray:
        """int64 [outputs]: the least sum of every output of a product, bias included."""
        w = self.weights(node)
        return np.asarray(self._ends(node, np.arange(len(w)), w, *self._centred(node))[0], np.int64)

    def bias(self, node: Node) -> np.ndarray:
        """int64 [outputs]: the bias of a product."""
        given = self.graph.const(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
        return np.zeros(self.channels.count(node.outputs[0]), np.int64) if given is None else given.astype(np.int64)

    def _centred(self, node: Node) -> Range:
        """The range of a product's operand for each input less the zero point, float64."""
        x, op, product = self.graph.tensor(node.inputs[0]), node.quantized, self.channels.of_product(node)
        assert x.quant is not None
        ends = self.operand(x.name, 1 if product is None else product.axis)
        low, high = (end - float(x.quant.zero_point) for end in ends)
        if isinstance(op, QConvTranspose) or (isinstance(op, QConv) and max(op.pads) > 0):
            return np.minimum(low, 0), np.maximum(high, 0)  # a tap may be outside of the input
        return low, high

    def _ends(self, node: Node, rows: np.ndarray, w: np.ndarray, low: np.ndarray, high: np.ndarray) -> Range:
        """The least and greatest sums of some outputs, bias included, float64.

        Args:
            w: the weights of these outputs, [rows, inputs, taps].
            low, high: the range of each input.
        """
        bias, inputs = self.bias(node)[rows], w.shape[1]
        if self.channels.of_product(node) is None:
            low, high = (np.repeat(end, self.channels.count(node.outputs[0]) // len(end))[rows] for end in (low, high))
        else:
            low, high = _one_if_equal((low, high))
        if len(low) == 1 or inputs == 1:
            positive, negative = (_added(f(w, 0).reshape(len(w), -1)) for f in (np.maximum, np.minimum))
            return positive * low + negative * high + bias, positive * high + negative * low + bias
        parts = (f(w, 0).reshape(-1, w.shape[2]) for f in (np.maximum, np.minimum))
        positive, negative = (_added(part).reshape(len(w), -1) for part in parts)
        return positive @ low + negative @ high + bias, positive @ high + negative @ low + bias

    def _scales(self, node: Node) -> np.ndarray:
        """The factors of the sums, float32 [outputs]."""
        x, w, y = (self.graph.tensor(name).quant for name in (*node.inputs[:2], node.outputs[0]))
        assert x is not None and w is not None and y is not None
        scale = np.asarray(numerics.product_scale(x.scale, w.scale, y.scale))
        return np.broadcast_to(scale.reshape(-1), self.channels.count(node.outputs[0]))

    def _corners(self, node: Node, op: QAdd | QMul, linked: list[Link], count: int) -> Range:
        """The range of an op that is monotone in each of its two operands: that of its values at the four corners."""
        operands = [self.graph.tensor(name) for name in node.inputs]
        axes = {link.index: link.axis for link in linked}
        ends = [_one_if_equal(self.operand(t.name, axes.get(i, len(t.shape)))) for i, t in enumerate(operands)]
        pairs = zip(*((a, b) for a in ends[0] for b in ends[1]), strict=True)
        arrays = [np.stack(side).astype(t.dtype) for side, t in zip(pairs, operands, strict=True)]
        found = op.value(arrays, operands, self.graph.tensor(node.outputs[0])).astype(np.int64)
        return np.broadcast_to(found.min(0), count), np.broadcast_to(found.max(0), count)


def _one_if_equal(ends: Range) -> Range:
    """The range of one channel for all, if all have that range."""
    return (ends[0][:1], ends[1][:1]) if all(end.size and (end == end[0]).all() for end in ends) else ends


def _added(weights: np.ndarray) -> np.ndarray:
    """float64 [rows]: the sums of rows of weights below 2^9."""
    ones = np.ones(weights.shape[1], np.float32 if weights.shape[1] < 1 << 15 else np.float64)  # for exact sums
    return np.asarray(weights.astype(ones.dtype) @ ones, np.float64)


def _is_normal(scale: np.ndarray) -> np.ndarray:
    """True for scales that are zero or normal numbers, by which CPU and NPU multiply alike."""
    size = np.abs(scale)
    return np.asarray((size == 0) | ((size >= np.finfo(np.float32).tiny) & np.isfinite(size)))


def _requantised(sums: Range, scale: np.ndarray, y: Tensor, within: tuple[int, int]) -> Range:
    """The range of `clamp(RNE(f32(f32(sum) * scale)) + zy)`, which falls with the sum where the scale is negative."""
    assert y.quant is not None
    with np.errstate(over="ignore", invalid="ignore"):
        ends = [np.rint(s.astype(np.float32) * scale).astype(np.float64) + int(y.quant.zero_point) for s in sums]
    low, high = (np.clip(np.nan_to_num(end), *within).astype(np.int64) for end in ends)
    return np.minimum(low, high), np.maximum(low, high)


def _by_table(table: bytes, ends: Range, x: Tensor, y: Tensor) -> Range:
    """The range of a table's results: the least and greatest of its entries for all values of each range."""
    values = np.arange(limits(x.dtype)[0], limits(x.dtype)[1] + 1)
    results = np.frombuffer(table, np.uint8)[values.astype(x.dtype).view(np.uint8)].view(y.dtype).astype(np.int64)
    pairs, which = np.unique(np.stack(_one_if_equal(ends)), axis=1, return_inverse=True)
    parts = [results[low - values[0] : high - values[0] + 1] for low, high in pairs.T]
    low, high = (np.array([f(part) for part in parts], np.int64)[which.reshape(-1)] for f in (np.min, np.max))
    return np.broadcast_to(low, len(ends[0])), np.broadcast_to(high, len(ends[0]))


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
    both = np.concatenate(found)
    return both.min(0), both.max(0)


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


__all__ = ["ChannelRanges", "Range"]
