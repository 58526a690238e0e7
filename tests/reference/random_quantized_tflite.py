"""Random small quantised TFLite graphs of several ops, as converters write them.

int8 and int16 have weights of int8 with scales per channel; uint8, the older form, has weights of uint8 with one scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.common.tflite_models import Model, Op, T

#: Elements of the largest tensor.
MOST = 6000
#: Standard deviation, in steps, of what convolutions give.
SPREAD = 45


class NoOperand(Exception):
    """No tensor so far fits the op."""


@dataclass
class TfliteGraph:
    """A file, and inputs for it."""

    data: bytes
    feeds: dict[str, np.ndarray]
    ops: list[str]


@dataclass
class Builder:
    """A graph in the making; ops read one of the last tensors.

    Attributes:
        r: what everything is drawn by.
        dtype: of all tensors but weights and biases.
        made: int8 tensors that an op or the caller writes.
    """

    r: np.random.Generator
    dtype: str = "int8"
    tensors: list[T] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    made: list[T] = field(default_factory=list)

    def chance(self, share: float) -> bool:
        return bool(self.r.random() < share)

    def integer(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return int(self.r.integers(low, high, endpoint=True))

    def zero(self) -> int:
        """A zero point: often an end of the range or the middle."""
        if self.dtype == "int16":
            return 0
        return self.low + (0, 128, 255, self.integer(0, 255))[self.integer(0, 3)]

    @property
    def low(self) -> int:
        """The least value of `dtype`."""
        return int(np.iinfo(self.dtype).min)

    def finer(self) -> int:
        """Steps of `dtype` for one of 8 bits."""
        return 256 if self.dtype == "int16" else 1

    def values(self, shape: Sequence[int]) -> np.ndarray:
        """Values of the whole range of `dtype`."""
        info = np.iinfo(self.dtype)
        return self.r.integers(info.min, info.max, shape, endpoint=True)

    def tensor(self, shape: Sequence[int], scale: Any, zero: Any, **others: Any) -> T:
        if math.prod(shape) > MOST or 0 in shape:
            raise NoOperand
        t = T(f"t{len(self.tensors)}", tuple(shape), others.pop("dtype", self.dtype), scale, zero, **others)
        self.tensors.append(t)
        return t

    def constant(self, data: Any, dtype: str = "int32") -> T:
        array = np.asarray(data)
        return self.tensor(array.shape, None, 0, dtype=dtype, data=array)

    def pick(self, *ranks: int) -> T:
        found = [t for t in self.made if not ranks or len(t.shape) in ranks]
        if not found:
            raise NoOperand
        return found[-1] if self.chance(0.5) else found[self.integer(max(0, len(found) - 5), len(found) - 1)]

    def op(self, name: str, inputs: Sequence[T], outputs: Sequence[T], options: Any = None, version: int = 1) -> None:
        self.ops.append(Op(name, [t.name for t in inputs], [t.name for t in outputs], options, version))
        self.made += outputs

    def like(self, t: T, shape: Sequence[int]) -> T:
        return self.tensor(shape, t.scale, t.zero)

    def activation(self) -> dict[str, int]:
        return {"FusedActivationFunction": int(self.r.choice([0, 0, 1, 3]))}


def random_quantized_tflite(seed: int, ops: int, dtype: str = "int8") -> TfliteGraph:
    """A graph of about `ops` ops on tensors of `dtype` (int8, uint8, int16), and inputs of whole numbers for it."""
    b = Builder(np.random.default_rng([seed, 77]), dtype)
    channels = int(b.r.choice([1, 3, 4, 8, 16, 19, 32]))
    shape = (1, b.integer(1, 14), b.integer(1, 14), channels) if b.chance(0.85) else (b.integer(1, 4), channels * 3)
    inputs = [b.tensor(shape, _scale(b), b.zero()) for _ in range(b.integer(1, 2))]
    b.made += inputs
    names = [name for name in _OPS if name not in _ABSENT[dtype]]
    weights = np.array([_OPS[name][1] for name in names], float)
    for _ in range(8 * ops):
        if len(b.ops) >= ops:
            break
        name = str(b.r.choice(names, p=weights / weights.sum()))
        kept = [(row, len(row)) for row in (b.tensors, b.ops, b.made)]
        try:
            _OPS[name][0](b, name)
        except NoOperand:
            for row, length in kept:
                del row[length:]
    read = {name for o in b.ops for name in o.inputs}
    outputs = [t.name for t in b.made if t.name not in read and t not in inputs] or [b.made[-1].name]
    used = [t for t in inputs if t.name in read]
    data = Model(b.tensors, b.ops, [t.name for t in used], outputs).build()
    feeds = {t.name: _bytes(b, t.shape) for t in used}
    return TfliteGraph(data, feeds, [o.name for o in b.ops])


def _bytes(b: Builder, shape: Sequence[int]) -> np.ndarray:
    kind, high = b.integer(0, 5), np.iinfo(b.dtype).max
    values = b.values(shape) if kind else b.r.choice([b.low, b.low + 1, b.low + high // 2 + 1, high], shape)
    return values.astype(b.dtype)


def _scale(b: Builder) -> float:
    scale = 2.0 ** b.integer(-9, -2) if b.chance(0.3) else b.r.uniform(0.002, 0.2)
    return float(np.float32(scale / b.finer()))


def _extents(t: T, kernel: tuple[int, int], stride: tuple[int, int], same: bool, dilation: int = 1) -> list[int]:
    found = [
        -(-n // s) if same else (n - (k - 1) * dilation - 1) // s + 1 for n, k, s in zip(t.shape[1:3], kernel, stride)
    ]
    if min(found) < 1:
        raise NoOperand
    return found


def _window(b: Builder, t: T, dilates: bool) -> tuple[tuple[int, int], dict[str, Any], list[int]]:
    kernel = int(b.r.choice([1, 1, 2, 3, 3, 5])), int(b.r.choice([1, 1, 2, 3, 3, 5]))
    if b.chance(0.7):
        kernel = kernel[0], kernel[0]
    stride, padding = (b.integer(1, 2), b.integer(1, 2)) if b.chance(0.4) else (1, 1), b.integer(0, 1)
    dilation = 2 if dilates and stride == (1, 1) and b.chance(0.15) else 1
    options: dict[str, Any] = {"Padding": padding, "StrideH": stride[0], "StrideW": stride[1]}
    if dilates:
        options |= {"DilationHFactor": dilation, "DilationWFactor": dilation}
    return kernel, options, _extents(t, kernel, stride, padding == 0, dilation)


def _product(
    b: Builder, name: str, x: T, w: Sequence[int], axis: int, out: Sequence[int], terms: int, options: Any,
    version: int, before: Sequence[T] = (),
) -> None:  # fmt: skip
    """An op with weights: per channel, some channels of nothing, biases that reach far."""
    n = out[-1]
    sw = np.exp(b.r.uniform(-7, -4, n)).astype(np.float32)
    if (name == "FULLY_CONNECTED" and b.chance(0.7)) or b.chance(0.1) or b.dtype == "uint8":
        sw[:] = sw[0]
    values = b.r.integers(-127, 128, w)
    if b.chance(0.2):
        values = values * (b.r.random(w) < 0.3)
    if b.chance(0.15):
        dead = b.r.random(n) < 0.4
        values = np.where(np.reshape(dead, [-1 if i == axis else 1 for i in range(len(w))]), 0, values)
    if len(set(sw.tolist())) == 1:
        sw = sw[:1]
    if b.dtype == "uint8":
        zero = b.integer(90, 165)
        weights = b.tensor(w, sw, zero, data=np.clip(values + zero, 0, 255))
    else:
        weights = b.tensor(w, sw, 0, dtype="int8", axis=axis, data=values)
    reach = int(5400 * b.finer() * math.sqrt(terms) * (10 if b.chance(0.1) else 1))
    wide = "int64" if b.dtype == "int16" else "int32"
    bias = b.tensor((n,), sw * x.scale, 0, dtype=wide, data=b.r.integers(-reach, reach + 1, n))
    scale = float(np.float32(x.scale * float(np.mean(sw)) * 5400 * math.sqrt(terms) / SPREAD))
    y = b.tensor(out, scale, b.zero())
    operands = [*before, weights, x] if before else [x, weights]
    b.op(name, operands if name == "FULLY_CONNECTED" and b.chance(0.1) else [*operands, bias], [y], options, version)


def _conv(b: Builder, name: str) -> None:
    x = b.pick(4)
    kernel, options, extents = _window(b, x, True)
    group = int(b.r.choice([n for n in (1, 1, 1, 2, 4) if x.shape[3] % n == 0]))
    n = group * int(b.r.choice([1, 3, 4, 8, 10, 16]))
    c = x.shape[3] // group
    _product(
        b, name, x, (n, *kernel, c), 0, (x.shape[0], *extents, n), math.prod(kernel) * c,
        ("Conv2DOptions", options | b.activation()), 5 if group > 1 else 3,
    )  # fmt: skip


def _depthwise(b: Builder, name: str) -> None:
    x = b.pick(4)
    kernel, options, extents = _window(b, x, True)
    multiplier = 2 if b.chance(0.2) else 1
    n = x.shape[3] * multiplier
    options |= {"DepthMultiplier": multiplier} | b.activation()
    shape = x.shape[0], *extents, n
    _product(b, name, x, (1, *kernel, n), 3, shape, math.prod(kernel), ("DepthwiseConv2DOptions", options), 3)


def _transposed(b: Builder, name: str) -> None:
    x = b.pick(4)
    k, s, padding, n = b.integer(1, 4), b.integer(1, 2), b.integer(0, 1), b.integer(1, 12)
    extents = [e * s if padding == 0 else (e - 1) * s + max(k, s) for e in x.shape[1:3]]
    shape = x.shape[0], *extents, n
    options = ("TransposeConvOptions", {"Padding": padding, "StrideH": s, "StrideW": s})
    out = b.constant(np.array(shape))
    _product(b, name, x, (n, k, k, x.shape[3]), 0, shape, k * k * x.shape[3], options, 3, [out])


def _connected(b: Builder, name: str) -> None:
    x = b.pick()
    keep, n, k = b.chance(0.5), b.integer(1, 24), x.shape[-1]
    shape = (*x.shape[:-1], n) if keep else (math.prod(x.shape[:-1]), n)
    options = ("FullyConnectedOptions", {"KeepNumDims": keep} | b.activation())
    _product(b, name, x, (n, k), 0, shape, k, options, 5)


def _binary(b: Builder, name: str) -> None:
    x = b.pick()
    same = [t for t in b.made if t.shape == x.shape]
    kind, rank = b.integer(0, 3), len(x.shape)
    if kind < 2 and (len(same) > 1 or b.chance(0.2)):
        y = same[b.integer(0, len(same) - 1)]
    else:
        shape = ((x.shape[-1],), (1,), x.shape, (1,) * (rank - 1) + (x.shape[-1],))[b.integer(0, 3)]
        y = b.tensor(shape, _scale(b), b.zero(), data=b.values(shape))
    sums = float(x.scale + y.scale) * b.r.uniform(0.3, 1.2)
    scale = x.scale * y.scale * b.finer() * b.r.uniform(20, 150) if name == "MUL" else sums
    out = b.tensor(x.shape, float(np.float32(scale)), b.zero())
    operands = [y, x] if b.chance(0.3) else [x, y]
    table = f"{name.capitalize()}Options"
    b.op(name, operands, [out], (table, b.activation()), 2)


def _table(b: Builder, name: str) -> None:
    x = b.pick()
    scale, zero, options, version = x.scale * b.r.uniform(0.4, 1.5), b.zero(), None, 2
    if name in ("LOGISTIC", "TANH"):
        scale, zero = (1 / 256, b.low) if name == "LOGISTIC" else (1 / 128, b.low + 128)
    elif name == "LEAKY_RELU":
        options = ("LeakyReluOptions", {"Alpha": float(b.r.uniform(0.05, 0.9))})
    elif name == "HARD_SWISH" or name == "QUANTIZE":
        version = 1
    elif name == "SOFTMAX":
        scale, zero, options = 1 / 256, b.low, ("SoftmaxOptions", {"Beta": 1.0})
    if b.dtype == "int16" and name in ("LOGISTIC", "TANH", "SOFTMAX"):
        scale, zero = 1 / 32768, 0
    b.op(name, [x], [b.tensor(x.shape, float(np.float32(scale)), zero)], options, version)


def _pool(b: Builder, name: str) -> None:
    x = b.pick(4)
    kernel, options, extents = _window(b, x, False)
    options |= {"FilterHeight": kernel[0], "FilterWidth": kernel[1]} | b.activation()
    b.op(name, [x], [b.like(x, (x.shape[0], *extents, x.shape[3]))], ("Pool2DOptions", options), 2)


def _reduce(b: Builder, name: str) -> None:
    x = b.pick()
    rank, keep = len(x.shape), b.chance(0.5)
    axes = [1, 2] if rank == 4 and b.chance(0.6) else sorted(b.r.choice(rank, b.integer(1, rank), False).tolist())
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
    if not shape:
        raise NoOperand
    y = b.tensor(shape, float(np.float32(x.scale * b.r.uniform(0.3, 1.3))), b.zero()) if name == "MEAN" else None
    options = ("ReducerOptions", {"KeepDims": keep})
    b.op(name, [x, b.constant(axes)], [y or b.like(x, shape)], options, 2)


def _concat(b: Builder, name: str) -> None:
    x = b.pick()
    axis = len(x.shape) - 1 if b.chance(0.6) else b.integer(0, len(x.shape) - 1)
    fits = [
        t for t in b.made
        if len(t.shape) == len(x.shape) and all(a == c or i == axis for i, (a, c) in enumerate(zip(t.shape, x.shape)))
    ]  # fmt: skip
    parts = [fits[b.integer(0, len(fits) - 1)] for _ in range(b.integer(1, 3))]
    parts[0] = x
    ready = []
    for part in parts:  # as converters do it: all have the scale of the result
        if (part.scale, part.zero) != (x.scale, x.zero):
            again = b.tensor(part.shape, x.scale, x.zero)
            b.op("QUANTIZE", [part], [again])
            part = again
        ready.append(part)
    shape = [sum(t.shape[axis] for t in ready) if i == axis else n for i, n in enumerate(x.shape)]
    options = {"Axis": axis if b.chance(0.7) else axis - len(shape)}
    b.op(name, ready, [b.like(x, shape)], ("ConcatenationOptions", options), 2)


def _pad(b: Builder, name: str) -> None:
    x = b.pick()
    around = [[b.integer(0, 2), b.integer(0, 2)] if i > 0 and b.chance(0.5) else [0, 0] for i in range(len(x.shape))]
    shape = [n + sum(p) for n, p in zip(x.shape, around)]
    operands = [x, b.constant(around)]
    if name == "PADV2":
        operands.append(b.tensor((1,), x.scale, x.zero, data=b.values((1,))))
    if name == "MIRROR_PAD" and any(max(p) >= n for n, p in zip(x.shape, around)):
        raise NoOperand
    options = ("MirrorPadOptions", {"Mode": b.integer(0, 1)}) if name == "MIRROR_PAD" else None
    b.op(name, operands, [b.like(x, shape)], options, 2 if name == "PAD" else 1)


def _reshape(b: Builder, name: str) -> None:
    x = b.pick()
    n = math.prod(x.shape)
    first = [d for d in range(1, n + 1) if n % d == 0]
    d = first[b.integer(0, len(first) - 1)]
    last = x.shape[-1]
    choices = [(1, n), (d, n // d), (1, d, n // d), (n // last, last), (1, n // last, 1, last), (1, 1, n // d, d)]
    shape = choices[b.integer(0, len(choices) - 1)]
    b.op(name, [x, b.constant(shape)], [b.like(x, shape)], ("ReshapeOptions", {"NewShape": list(shape)}))


def _transpose(b: Builder, name: str) -> None:
    x = b.pick(2, 3, 4)
    order = b.r.permutation(len(x.shape)).tolist()
    b.op(name, [x, b.constant(order)], [b.like(x, [x.shape[i] for i in order])], None, 2)


def _slice(b: Builder, name: str) -> None:
    x = b.pick()
    begin = [b.integer(0, n - 1) if b.chance(0.4) else 0 for n in x.shape]
    size = [b.integer(1, n - a) if b.chance(0.4) else n - a for n, a in zip(x.shape, begin)]
    if name == "SLICE":
        b.op(name, [x, b.constant(begin), b.constant(size)], [b.like(x, size)], None, 2)
        return
    step = [b.integer(1, 2) for _ in size]
    ends = [a + n for a, n in zip(begin, size)]
    shape = [-(-n // s) for n, s in zip(size, step)]
    operands = [x, b.constant(begin), b.constant(ends), b.constant(step)]
    b.op(name, operands, [b.like(x, shape)], ("StridedSliceOptions", {}), 2)


def _split(b: Builder, name: str) -> None:
    x = b.pick()
    axis = b.integer(0, len(x.shape) - 1)
    parts = next((n for n in (4, 3, 2) if x.shape[axis] % n == 0 and b.chance(0.6)), None)
    if parts is None:
        raise NoOperand
    shape = [n // parts if i == axis else n for i, n in enumerate(x.shape)]
    outputs = [b.like(x, shape) for _ in range(parts)]
    b.op(name, [b.constant(np.array(axis)), x], outputs, ("SplitOptions", {"NumSplits": parts}), 2)


def _resize(b: Builder, name: str) -> None:
    x = b.pick(4)
    h, w = (n * b.integer(1, 3) if b.chance(0.7) else b.integer(1, 12) for n in x.shape[1:3])
    kind = b.integer(0, 2)
    table = "ResizeBilinearOptions" if name == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    options = (table, {"AlignCorners": kind == 1, "HalfPixelCenters": kind == 2})
    b.op(name, [x, b.constant([h, w])], [b.like(x, (x.shape[0], h, w, x.shape[3]))], options, 3)


def _depth(b: Builder, name: str) -> None:
    x = b.pick(4)
    n, h, w, c = x.shape
    if name == "DEPTH_TO_SPACE":
        if c % 4:
            raise NoOperand
        shape = n, 2 * h, 2 * w, c // 4
    else:
        if h % 2 or w % 2:
            raise NoOperand
        shape = n, h // 2, w // 2, 4 * c
    table = "DepthToSpaceOptions" if name == "DEPTH_TO_SPACE" else "SpaceToDepthOptions"
    b.op(name, [x], [b.like(x, shape)], (table, {"BlockSize": 2}), 1)


def _pair(b: Builder, name: str) -> None:
    """MAXIMUM and MINIMUM of tensors with one scale."""
    x = b.pick()
    shape = x.shape if b.chance(0.3) else (x.shape[-1],)
    same = [t for t in b.made if t.shape == x.shape and (t.scale, t.zero) == (x.scale, x.zero)]
    y = same[-1] if same and b.chance(0.5) else b.tensor(shape, x.scale, x.zero, data=b.values(shape))
    b.op(name, [x, y], [b.like(x, x.shape)], ("MaximumMinimumOptions", {}), 2)


def _matmul(b: Builder, name: str) -> None:
    x = b.pick(2, 3, 4)
    found = [t for t in b.made if len(t.shape) == len(x.shape) and t.shape[:-2] == x.shape[:-2]]
    y = found[b.integer(0, len(found) - 1)]
    flips = [
        (a, c) for a in (False, True) for c in (False, True) if x.shape[-2 if a else -1] == y.shape[-1 if c else -2]
    ]
    if not flips:
        raise NoOperand
    a, c = flips[b.integer(0, len(flips) - 1)]
    shape = *x.shape[:-2], x.shape[-1 if a else -2], y.shape[-2 if c else -1]
    k = x.shape[-2 if a else -1]
    out = b.tensor(shape, float(np.float32(x.scale * y.scale * b.finer() * 5400 * math.sqrt(k) / SPREAD)), b.zero())
    b.op(name, [x, y], [out], ("BatchMatMulOptions", {"AdjX": a, "AdjY": c}), 2)


def _pack(b: Builder, name: str) -> None:
    x = b.pick(1, 2, 3)
    same = [t for t in b.made if t.shape == x.shape and (t.scale, t.zero) == (x.scale, x.zero)]
    axis, n = b.integer(0, len(x.shape)), b.integer(1, 3)
    parts = [same[b.integer(0, len(same) - 1)] for _ in range(n)]
    shape = [*x.shape[:axis], n, *x.shape[axis:]]
    b.op(name, parts, [b.like(x, shape)], ("PackOptions", {"ValuesCount": n, "Axis": axis}), 2)


#: By name: what adds the op to a graph, and how often.
_OPS: dict[str, tuple[Callable[[Builder, str], None], float]] = {
    "CONV_2D": (_conv, 8), "DEPTHWISE_CONV_2D": (_depthwise, 5), "TRANSPOSE_CONV": (_transposed, 1.5),
    "FULLY_CONNECTED": (_connected, 3), "ADD": (_binary, 5), "SUB": (_binary, 2), "MUL": (_binary, 3),
    "LOGISTIC": (_table, 1), "TANH": (_table, 1), "LEAKY_RELU": (_table, 1), "HARD_SWISH": (_table, 1),
    "QUANTIZE": (_table, 1), "RELU": (_table, 1), "RELU6": (_table, 1), "SOFTMAX": (_table, 1),
    "MAX_POOL_2D": (_pool, 2), "AVERAGE_POOL_2D": (_pool, 2), "MEAN": (_reduce, 2), "REDUCE_MAX": (_reduce, 0.5),
    "CONCATENATION": (_concat, 3), "PAD": (_pad, 2), "PADV2": (_pad, 0.5), "MIRROR_PAD": (_pad, 0.5),
    "RESHAPE": (_reshape, 1.5), "TRANSPOSE": (_transpose, 1.5), "SLICE": (_slice, 1), "STRIDED_SLICE": (_slice, 1),
    "SPLIT": (_split, 1), "RESIZE_BILINEAR": (_resize, 1), "RESIZE_NEAREST_NEIGHBOR": (_resize, 1),
    "DEPTH_TO_SPACE": (_depth, 0.7), "SPACE_TO_DEPTH": (_depth, 0.7), "MAXIMUM": (_pair, 1), "MINIMUM": (_pair, 1),
    "BATCH_MATMUL": (_matmul, 1.5), "PACK": (_pack, 0.5),
}  # fmt: skip
#: By dtype: ops that LiteRT does not have for it.
_ABSENT: dict[str, set[str]] = {
    "int8": set(), "uint8": {"BATCH_MATMUL"}, "int16": {"HARD_SWISH", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH"},
}  # fmt: skip
