"""Reductions, ARGMAX, pools and RESIZE."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.ops.convolution import QConv
from tilewright.compiler.graph.ops.pooling import QMaxPool
from tilewright.compiler.importer.tosa.builder import PLANES, TosaBuilder, handles
from tilewright.compiler.importer.tosa.products import Sums
from tilewright.compiler.importer.tosa.records import TosaOp
from tilewright.compiler.importer.tosa.rescale import _limits, _product
from tilewright.compiler.importer.tosa.scaling import Scaling

_REDUCE = {
    "reduce_max": "ReduceMax", "reduce_min": "ReduceMin", "reduce_sum": "ReduceSum", "reduce_product": "ReduceProd",
    "reduce_any": "ReduceMax", "reduce_all": "ReduceMin",
}  # fmt: skip


@handles(*_REDUCE)
def reduce(b: TosaBuilder, op: TosaOp) -> None:
    """Imports a reduction along one axis, which stays with the size 1."""
    dtype = b.type(0).dtype
    axis = b.axis(len(b.shape(0)))
    small = dtype == np.bool_ or (dtype.kind in "iu" and dtype.itemsize < 4)
    inner = np.dtype(np.int32) if small else dtype if dtype.kind in "iu" else np.dtype(np.float32)
    made = b.onnx(_REDUCE[op.name], [b.cast(b.value(0), inner), b.constant([axis], np.int64)], {"keepdims": 1})
    b.finish(b.cast(made, b.target().dtype))


@handles("argmax")
def argmax(b: TosaBuilder, op: TosaOp) -> None:
    axis = b.axis(len(b.shape(0)))
    x = b.value(0)
    if b.type(0).dtype.kind not in "iu":
        x = b.cast(x, np.float32)
    found = b.onnx("ArgMax", [x], {"axis": axis, "keepdims": 0, "select_last_index": 0})
    b.finish(b.cast(found, b.target().dtype))


def _pool(b: TosaBuilder) -> tuple[list[int], list[int], list[int]]:
    """Kernel, strides and pads of a pool of rank 4."""
    kernel, strides, pad = b.numbers("kernel", 2), b.numbers("stride", 2), b.numbers("pad", 4)
    if len(b.shape(0)) != 4 or min(*kernel, *strides) < 1 or min(pad) < 0:
        raise b.damaged(f"kernel {kernel}, stride {strides}, pad {pad} of {b.type(0)}")
    return kernel, strides, [pad[0], pad[2], pad[1], pad[3]]


@handles("max_pool2d")
def max_pool(b: TosaBuilder, op: TosaOp) -> None:
    kernel, strides, pads = _pool(b)
    x = b.value(0, PLANES)
    old, dtype = b.graph.tensor(x), b.type(0).dtype
    if dtype == np.int8 and old.quant is not None and old.data is None:
        pool = QMaxPool(kernel=tuple(kernel), strides=tuple(strides), pads=tuple(pads))
        shape = (*old.shape[:2], *pool.positions(old.shape[2:]))
        b.finish(b.quantized(pool, [x], shape, dtype, int(old.quant.zero_point)), PLANES)
        return
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": [1, 1]}
    inner = np.float32 if dtype.kind not in "iu" or dtype.itemsize == 2 else dtype
    b.finish(b.cast(b.onnx("MaxPool", [b.cast(x, inner)], attrs), dtype), PLANES)


@handles("avg_pool2d")
def average_pool(b: TosaBuilder, op: TosaOp) -> None:
    """Imports AVG_POOL2D: a sum, then the multiplier nearest to 1/count, where padding does not count."""
    kernel, strides, pads = _pool(b)
    dtype, x = b.type(0).dtype, b.value(0, PLANES)
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if dtype.kind not in "iu":
        made = b.onnx("AveragePool", [b.cast(x, np.float32)], {**attrs, "count_include_pad": 0, "dilations": [1, 1]})
        b.finish(b.cast(made, dtype), PLANES)
        return
    zero, out_zero = b.scalar(1, "input_zp"), b.scalar(2, "output_zp")
    (_, c, h, w), taps = b.graph.tensor(x).shape, kernel[0] * kernel[1]
    ones = np.ones((c, 1, *kernel))
    sliding = {**attrs, "dilations": [1, 1], "group": c}
    sums = b.onnx("Conv", [b.cast(b.pair("Sub", b.wide(x), zero), np.float64), b.constant(ones, np.float64)], sliding)
    inside = np.zeros(b.graph.tensor(sums).shape[2:], np.int64)
    for row in range(inside.shape[0]):
        for column in range(inside.shape[1]):
            top, left = row * strides[0] - pads[0], column * strides[1] - pads[1]
            rows = min(top + kernel[0], h) - max(top, 0)
            inside[row, column] = rows * (min(left + kernel[1], w) - max(left, 0))
    if inside.min() < 1:
        raise b.damaged("a window that lies in the padding alone")
    scales = {int(v): reciprocal_scale(int(v)) for v in np.unique(inside)}
    m, s = (np.array([[scales[int(v)][k] for v in row] for row in inside], np.int64) for k in (0, 1))
    low, high = _limits(b.target(), False)
    if dtype == np.int8 and inside.min() == taps:
        scaling = Scaling(m.reshape(-1)[:1], s.reshape(-1)[:1], 0, out_zero, low, high)
        if _on_npu(b, x, kernel, strides, pads, zero, taps, scaling):
            return
    y = b.pair("Add", b.pair("Mul", b.wide(sums), m), np.int64(1) << (s - 1))
    y = b.pair("Add", b.shifted_right(y, s), out_zero)
    b.finish(b.cast(b.clipped(y, low, high), dtype), PLANES)


def reciprocal_scale(count: int) -> tuple[int, int]:
    """TOSA's multiplier and shift of 1/count."""
    k = (count - 1).bit_length()
    return (((1 << 30) + 1) << k) // count, 30 + k


def _on_npu(
    b: TosaBuilder,
    x: str,
    kernel: list[int],
    strides: list[int],
    pads: list[int],
    zero: int,
    taps: int,
    scaling: Scaling,
) -> bool:
    """Makes the average a depthwise convolution by 1."""
    old = b.graph.tensor(x)
    if old.quant is None or old.data is not None:
        return False
    channels = old.shape[1]
    op = QConv(
        kernel=tuple(kernel), strides=tuple(strides), pads=tuple(pads), dilations=(1, 1), group=channels, moves=True
    )
    reach = tuple(np.full(channels, taps * (end - zero), np.int64) for end in (-128, 127))
    shape = (old.shape[0], channels, *op.positions(old.shape[2:]))
    weights = np.ones((channels, 1, *kernel), np.int8)
    return _product(b, Sums(op, x, zero, weights, 0, 0, None, shape, (reach[0], reach[1])), scaling)


@handles("resize")
def resize(b: TosaBuilder, op: TosaOp) -> None:
    """Imports RESIZE: nearest or bilinear, by the fractions of the specification."""
    attribute = lambda k, name, n: b.ints(k, name, n)
    (yn, yd, xn, xd), (oy, ox) = attribute(1, "scale", 4), attribute(2, "offset", 2)
    border = attribute(3, "border", 2)
    (_, h, w, _), (_, oh, ow, _) = b.shape(0), b.target().shape
    nearest = "NEAREST" in str(op.attrs.get("mode", "")).upper()
    made, dtype = b.value(0), b.type(0).dtype
    if min(yn, yd, xn, xd) < 1:
        raise b.damaged(f"scale {[yn, yd, xn, xd]}")
    spans = (h - 1) * yn - oy + border[0], (w - 1) * xn - ox + border[1]
    if spans != ((oh - 1) * yd, (ow - 1) * xd):
        made_of = f"{spans[0] / yd + 1:g}x{spans[1] / xd + 1:g}"
        raise b.damaged(f"scale, offset and border make a size of {made_of}; the text has {b.target()}")
    integers = dtype.kind in "iu"
    inner = np.int64 if integers else np.float32
    axes = []
    for size, out, numerator, denominator, offset in ((h, oh, yn, yd, oy), (w, ow, xn, xd, ox)):
        at = np.arange(out, dtype=np.int64) * denominator + offset
        base = at // numerator
        rest = at - base * numerator
        low, high = np.clip(base, 0, size - 1), np.clip(base + 1, 0, size - 1)
        axes.append((low, high, rest, numerator))
    if nearest:
        for axis, (low, high, rest, numerator) in enumerate(axes, 1):
            chosen = np.where(2 * rest >= numerator, high, low)
            made = b.moved("Gather", [made, b.constant(chosen, np.int64)], {"axis": axis})
        b.finish(made)
        return
    made = b.cast(made, inner)
    for axis, (low, high, rest, numerator) in enumerate(axes, 1):
        sides = [b.onnx("Gather", [made, b.constant(v, np.int64)], {"axis": axis}) for v in (low, high)]
        along = rest.reshape(-1, *[1] * (3 - axis))
        weights = [numerator - along, along] if integers else [1 - along / numerator, along / numerator]
        made = b.onnx("Add", [b.onnx("Mul", [s, b.constant(v, inner)]) for s, v in zip(sides, weights)])
    b.finish(b.cast(made, b.target().dtype))
