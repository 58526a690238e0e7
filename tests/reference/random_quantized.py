"""Random small quantised graphs in QDQ form, with scales and zero points that make ties and saturation likely."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from tests.reference.graph_builder import MOST_ELEMENTS, SCALES, Builder, NoOperand, QuantizedGraph, Value
from tests.reference.quantized_models import Model
from tilewright.checking.saturation import saturates


def _weights(b: Builder, shape: tuple[int, ...], axis: int | None) -> tuple[str, float]:
    """Dequantised int8 weights; scales of few digits or random, at times per channel."""
    m, r = b.model, b.random
    w = m.const(m.rng.integers(-127, 128, size=shape) // (2 if saturates() else 1), np.int8)
    if axis is None or r.random() < 0.5:
        scale = np.float32(r.choice(SCALES) * r.choice((0.25, 1, 1)))
        attrs = {}
    else:
        scale = np.float32(np.exp(m.rng.uniform(-6, -4, size=shape[axis])))
        attrs = {"axis": axis}
    name = m.op("DequantizeLinear", w, m.const(scale, np.float32), m.const(np.zeros(scale.shape), np.int8), **attrs)
    return name, float(np.max(scale))


def conv(b: Builder) -> None:
    r, m = b.random, b.model
    x = b.pick(lambda v: v.rank == 4)
    n, c, h, w = x.shape
    depthwise = r.random() < 0.4
    k = r.choice((1, 3, 3, 2))
    if min(h, w) < k:
        raise NoOperand
    stride, pad = r.choice((1, 1, 2)), r.choice((0, k // 2))
    out = c if depthwise else r.choice((3, 8, 16))
    weights, sw = _weights(b, (out, 1 if depthwise else c, k, k), 0)
    inputs = [x.name, weights] + ([m.bias(out, x.name, weights)] if r.random() < 0.5 else [])
    y = m.op("Conv", *inputs, strides=[stride] * 2, pads=[pad] * 4, group=c if depthwise else 1)
    shape = (n, out, *((i + 2 * pad - k) // stride + 1 for i in (h, w)))
    b.finish(y, shape, x.scale * sw * 70 * math.sqrt(k * k * (1 if depthwise else c)), x.scale, x.scale * sw * 256)


def conv_transpose(b: Builder) -> None:
    m = b.model
    x = b.pick(lambda v: v.rank == 4)
    n, c, h, w = x.shape
    k, stride = b.random.choice((2, 3)), b.random.choice((1, 2))
    weights, sw = _weights(b, (c, 4, k, k), None)
    inputs = [x.name, weights] + ([m.bias(4, x.name, weights)] if b.random.random() < 0.5 else [])
    y = m.op("ConvTranspose", *inputs, strides=[stride] * 2)
    shape = (n, 4, *((i - 1) * stride + k for i in (h, w)))
    b.finish(y, shape, x.scale * sw * 70 * math.sqrt(c * k), x.scale)


def product(b: Builder) -> None:
    r, m = b.random, b.model
    x = b.pick(lambda v: v.rank >= 2)
    k, out = x.shape[-1], r.choice((5, 8, 16))
    gemm = x.rank == 2 and r.random() < 0.5
    weights, sw = _weights(b, (k, out), 1)
    inputs = [x.name, weights] + ([m.bias(out, x.name, weights)] if gemm and r.random() < 0.6 else [])
    y = m.op("Gemm" if gemm else "MatMul", *inputs)
    b.finish(y, (*x.shape[:-1], out), x.scale * sw * 70 * math.sqrt(k), x.scale, x.scale * sw * 256)


def product_of_activations(b: Builder) -> None:
    x = b.pick(lambda v: v.rank >= 2)
    other = b.input((*x.shape[:-2], x.shape[-1], 7))
    y = b.model.op("MatMul", x.name, other.name)
    b.finish(y, (*x.shape[:-1], 7), x.scale * other.scale * 70 * math.sqrt(x.shape[-1]), x.scale)


def binary(b: Builder) -> None:
    x = b.pick()
    other = b.partner(x)
    op = b.random.choice(("Add", "Add", "Mul", "Mul", "Sub"))
    natural = x.scale * other.scale * 90 if op == "Mul" else max(x.scale, other.scale)
    inputs = [x.name, other.name]
    b.random.shuffle(inputs)
    shape = tuple(np.broadcast_shapes(x.shape, other.shape))
    b.finish(b.model.op(op, *inputs), shape, natural, x.scale, other.scale, x.scale * other.scale)


def extremum(b: Builder) -> None:
    """The larger or smaller of two or three tensors, or constants."""
    x = b.pick()
    others = [b.partner(x) for _ in range(b.random.choice((1, 1, 2)))]
    inputs = [x.name, *(o.name for o in others)]
    b.random.shuffle(inputs)
    shape = tuple(np.broadcast_shapes(x.shape, *(o.shape for o in others)))
    y = b.model.op(b.random.choice(("Max", "Min")), *inputs)
    b.finish(y, shape, max(x.scale, *(o.scale for o in others)), x.scale, *(o.scale for o in others))


def reduction(b: Builder) -> None:
    """A mean, a sum or an extremum over any axes."""
    x = b.pick(lambda v: v.rank >= 2)
    axes = sorted(b.random.sample(range(x.rank), b.random.randint(1, x.rank - 1)))
    op, keep = b.random.choice(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")), b.random.randrange(2)
    y = b.model.op(op, x.name, b.model.const(axes, np.int64), keepdims=keep)
    shape = tuple(1 if k in axes else n for k, n in enumerate(x.shape) if keep or k not in axes)
    count = math.prod(x.shape[a] for a in axes)
    if op in ("ReduceMax", "ReduceMin"):
        _moved(b, x, y, shape)
    else:
        b.finish(y, shape, x.scale * (math.sqrt(count) if op == "ReduceSum" else 0.4), x.scale)


def of_places(b: Builder) -> None:
    """An op of planes with one channel of theirs, as spatial attention has it."""
    x = b.pick(lambda v: v.rank == 4)
    weights, sw = _weights(b, (1, x.shape[1], 1, 1), None)
    shape = (x.shape[0], 1, *x.shape[2:])
    gate = b.finish(b.model.op("Conv", x.name, weights), shape, x.scale * sw * 70 * math.sqrt(x.shape[1]), x.scale)
    op = b.random.choice(("Mul", "Mul", "Add", "Max"))
    natural = x.scale * gate.scale * 90 if op == "Mul" else max(x.scale, gate.scale)
    b.finish(b.model.op(op, x.name, gate.name), x.shape, natural, x.scale, gate.scale)


def unary(b: Builder) -> None:
    x = b.pick()
    op = b.random.choice(("Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSwish"))
    m, attrs = b.model, {"alpha": 0.1} if op == "LeakyRelu" else {}
    bounds = [m.const(0, np.float32), m.const(x.scale * 100, np.float32)] if op == "Clip" else []
    y = m.op(op, x.name, *bounds, **attrs)
    b.finish(y, x.shape, 1 / 256 if op == "Sigmoid" else x.scale, x.scale)


def pool(b: Builder) -> None:
    r, m = b.random, b.model
    x = b.pick(lambda v: v.rank == 4 and min(v.shape[2:]) >= 3)
    k, stride, op = r.choice((2, 3)), r.choice((1, 2)), r.choice(("MaxPool", "AveragePool"))
    pad = r.choice((0, 0, 1))
    shape = (*x.shape[:2], *((i + 2 * pad - k) // stride + 1 for i in x.shape[2:]))
    y = m.op(op, x.name, kernel_shape=[k, k], strides=[stride] * 2, pads=[pad] * 4)
    _moved(b, x, y, shape) if op == "MaxPool" else b.finish(y, shape, x.scale, x.scale)


def mean(b: Builder) -> None:
    x = b.pick(lambda v: v.rank == 4)
    if b.random.random() < 0.5:
        y, shape = b.model.op("GlobalAveragePool", x.name), (*x.shape[:2], 1, 1)
    else:
        keep = b.random.randrange(2)
        y = b.model.op("ReduceMean", x.name, b.model.const([2, 3], np.int64), keepdims=keep)
        shape = (*x.shape[:2], *([1, 1] if keep else []))
    made = b.finish(y, shape, x.scale / 3, x.scale)
    if not 2.0**-31 < x.scale / (made.scale * math.prod(x.shape[2:])) < 255:
        raise NoOperand  # onnxruntime's GlobalAveragePool refuses it


def softmax(b: Builder) -> None:
    x = b.pick(lambda v: v.rank >= 2 and v.scale < 1)
    y = b.model.op("Softmax", x.name, axis=b.random.choice((-1, 1)))
    b.finish(y, x.shape, b.random.choice((1 / 255, 1 / 256, 1 / 128)), natural=True)


def concat(b: Builder) -> None:
    x = b.pick(lambda v: v.rank >= 2)
    parts = [x, b.pick(lambda v: v.shape == x.shape)]
    if parts[1] is x or b.random.random() < 0.3:
        parts.append(b.input(x.shape))
    b.random.shuffle(parts)
    shape = (x.shape[0], sum(p.shape[1] for p in parts), *x.shape[2:])
    y = b.model.op("Concat", *(p.name for p in parts), axis=1)
    b.finish(y, shape, max(p.scale for p in parts), *(p.scale for p in parts))


def _moved(b: Builder, x: Value, y: str, shape: tuple[int, ...]) -> None:
    """The result of a move: the quantisation of its operand as quantisers write it, or another."""
    if b.random.random() < 0.75:
        info = np.iinfo(b.model.dtype)
        if info.min <= x.zero <= info.max:
            b.keep(b.model.requantized(y, x.scale, x.zero), shape, x.scale, x.zero)
            return
    b.finish(y, shape, x.scale, x.scale)


def split(b: Builder) -> None:
    x = b.pick(lambda v: v.rank >= 2 and v.shape[1] >= 2)
    at = b.random.randrange(1, x.shape[1])
    sizes = (at, x.shape[1] - at)
    names = b.model.op("Split", x.name, b.model.const(sizes, np.int64), outputs=2, axis=1)
    for name, size in zip(names, sizes, strict=True):
        _moved(b, x, name, (x.shape[0], size, *x.shape[2:]))


def move(b: Builder) -> None:
    r, m = b.random, b.model
    x = b.pick(lambda v: v.rank >= 2)
    op = r.choice(("Reshape", "Transpose", "Pad", "Slice", "Resize"))
    shape: tuple[int, ...]
    if op == "Reshape":
        shape = (x.shape[0], math.prod(x.shape[1:]))
        y = m.op(op, x.name, m.const(shape, np.int64))
    elif op == "Transpose":
        perm = list(range(x.rank))
        r.shuffle(perm)
        shape = tuple(x.shape[p] for p in perm)
        y = m.op(op, x.name, perm=perm)
    elif op == "Pad":
        pads = [0] * (x.rank - 1) + [r.randrange(3)]
        pads += [0] * (x.rank - 1) + [r.randrange(3)]
        shape = (*x.shape[:-1], x.shape[-1] + pads[x.rank - 1] + pads[-1])
        y = m.op(op, x.name, m.const(pads, np.int64))
    elif op == "Slice":
        start, step = r.randrange(x.shape[-1]), r.choice((1, 2))
        shape = (*x.shape[:-1], -(-(x.shape[-1] - start) // step))
        y = m.op(op, x.name, *(m.const([v], np.int64) for v in (start, x.shape[-1], x.rank - 1, step)))
    else:
        if x.rank != 4:
            raise NoOperand
        shape = (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])
        y = m.op(op, x.name, "", m.const([1, 1, 2, 2], np.float32), mode="nearest", nearest_mode="floor",
                 coordinate_transformation_mode="asymmetric")  # fmt: skip
    if math.prod(shape) > MOST_ELEMENTS:
        raise NoOperand
    _moved(b, x, y, shape)


OPS: dict[Callable[[Builder], None], int] = {
    conv: 5, conv_transpose: 1, product: 3, product_of_activations: 1, binary: 8, unary: 4, pool: 3, mean: 2,
    softmax: 1, concat: 2, split: 1, move: 4,
}  # fmt: skip


#: Ops that came later; graphs of seeds that once differed have none of them.
LATER: dict[Callable[[Builder], None], int] = {extremum: 4, reduction: 6, of_places: 3}


def random_quantized_graph(seed: int, nodes: int | None = None, later: bool = True) -> QuantizedGraph:
    """The graph of a seed.

    Args:
        nodes: float ops; by default 2 to 6, which the seed decides.
        later: with the ops of `LATER`.
    """
    ops = OPS | LATER if later else OPS
    r = Random(seed)
    drawn = r.randrange(2, 7)
    m = Model(r.choice((np.int8, np.uint8)), seed)
    b = Builder(r, m, mixed=r.random() < 0.2)
    b.input(r.choice(((1, 8, 6, 6), (2, 4, 5, 7), (1, 3, 9, 9), (1, 16, 8, 8), (6, 32), (2, 5, 16))))
    count = 0
    while count < (drawn if nodes is None else nodes):
        (make,) = r.choices(list(ops), list(ops.values()))
        before = len(m.nodes), len(m.initializers), len(m.inputs), len(b.values), m.dtype
        try:
            make(b)
            count += 1
        except NoOperand:
            del m.nodes[before[0] :], m.initializers[before[1] :], m.inputs[before[2] :], b.values[before[3] :]
            m.dtype = before[4]
    _outputs(b)
    return QuantizedGraph(m.build(), m.feeds())


def _outputs(b: Builder) -> None:
    """Makes outputs of tensors without a reader, and of few others; as floats or as integers."""
    read = {name for node in b.model.nodes for name in node.input}
    fed = {i.name for i in b.model.inputs}
    sources: dict[str, Any] = {n.output[0]: n for n in b.model.nodes}
    for v in b.values:
        from_input = sources[v.integers].input[0] in fed
        if v.name not in read or (not from_input and b.random.random() < 0.05):
            b.model.output(v.integers if b.random.random() < 0.3 and not from_input else v.name)
    if not b.model.outputs:
        b.model.output(b.values[-1].name)
