"""Random quantised layers as graphs: every op, attribute and type the NPU claims, small enough for milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.graph import QUANTIZED_OPS, Graph, Node, Quant, Tensor
from compiler.ops.interpolate import Places


class Case:
    """A graph under construction from a seeded generator."""

    def __init__(self, seed: int) -> None:
        self.few_outside = False
        self.rng = np.random.default_rng(seed)
        self.graph = Graph(f"case{seed}")

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def quant(self, dtype: Any) -> Quant:
        info = np.iinfo(dtype)
        zero = self.integer(int(info.min), int(info.max))
        if self.chance(0.3):
            zero = 0 if dtype == np.int8 else 128
        return Quant.of(np.float32(np.exp(self.rng.uniform(-5, -2))), zero)

    def tensor(self, name: str, shape: tuple[int, ...], dtype: Any, quant: Quant | None = None) -> str:
        self.graph.add(Tensor(name, shape, np.dtype(dtype), None, quant or self.quant(dtype)))
        return name

    def dtype(self) -> Any:
        return np.uint8 if self.chance(0.4) else np.int8

    def input(self, shape: tuple[int, ...], dtype: Any) -> str:
        name = self.tensor(f"x{len(self.graph.inputs)}", shape, dtype)
        self.graph.inputs.append(name)
        return name

    def weights(self, shape: tuple[int, ...], channels: int, axis: int) -> str:
        if self.few_outside:
            return self._few_outside(shape)
        data = self.rng.integers(-128, 128, shape).astype(np.int8)
        if self.chance(0.3):
            data = np.clip(self.rng.normal(0, 20, shape), -127, 127).astype(np.int8)
        per_channel = channels > 1 and self.chance(0.6)
        n = channels if per_channel else 1
        # Scales that keep most results inside the output range.
        scale = np.exp(self.rng.uniform(-8, -5, n)).astype(np.float32)
        zero = self.rng.integers(-128, 128, n) if self.chance(0.15) else np.zeros(n, np.int64)
        quant = Quant.of(scale, zero, axis) if per_channel else Quant.of(scale[0], zero[0])
        return self.graph.constant("w", data, quant)

    def _few_outside(self, shape: tuple[int, ...]) -> str:
        """Weights as uint8 ones often are: without their zero point, few of them leave int8."""
        data = np.clip(self.rng.normal(0, 30, shape), -110, 110).astype(np.int8)
        flat = data.reshape(-1)
        flat[self.rng.integers(0, flat.size, self.integer(1, 6))] = -128 if self.chance(0.5) else 127
        zero = self.integer(1, 17) * (1 if self.chance(0.5) else -1)
        return self.graph.constant("w", data, Quant.of(np.float32(np.exp(self.rng.uniform(-8, -5))), zero))

    def bias(self, channels: int) -> list[str]:
        if self.chance(0.3):
            return []
        size = 1 << self.integer(4, 20)
        return [self.graph.constant("b", self.rng.integers(-size, size, channels).astype(np.int32))]

    def limits(self, dtype: Any) -> dict[str, int]:
        info = np.iinfo(dtype)
        if self.chance(0.6):
            return {"out_min": int(info.min), "out_max": int(info.max)}
        low = self.integer(int(info.min), int(info.max) - 1)
        return {"out_min": low, "out_max": self.integer(low + 1, int(info.max))}

    def finish(self, op: str, inputs: list[str], shape: tuple[int, ...], dtype: Any, **attrs: Any) -> str:
        name = self.tensor(f"{op}.{len(self.graph.nodes)}", shape, dtype, attrs.pop("quant", None))
        self.graph.nodes.append(Node.of(QUANTIZED_OPS[op](**attrs), inputs, [name], name))
        return name


def _spatial(case: Case, size: tuple[int, ...], kernel_most: int) -> dict[str, Any]:
    rank = len(size)
    while True:
        kernel = [case.integer(1, kernel_most) for _ in size]
        strides = [case.integer(1, 3) for _ in size]
        dilations = [case.integer(1, 3) if case.chance(0.3) else 1 for _ in size]
        pads = [case.integer(0, k) for k in kernel] + [case.integer(0, k) for k in kernel]
        out = tuple(
            (size[i] + pads[i] + pads[rank + i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1
            for i in range(rank)
        )
        if min(out) > 0:
            return {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads, "out": out}


def conv(case: Case) -> None:
    rank = 1 if case.chance(0.2) else 2
    size = tuple(case.integer(1, 14) for _ in range(rank))
    group = case.integer(2, 4) if case.chance(0.25) else 1
    c, o = case.integer(1, 40) * group, case.integer(1, 40) * group
    if case.chance(0.3):
        group = c = o = case.integer(2, 70)
    n = case.integer(1, 2)
    attrs = _spatial(case, size, 5)
    out = attrs.pop("out")
    x = case.input((n, c, *size), case.dtype())
    w = case.weights((o, c // group, *attrs["kernel"]), o, 0)
    dtype = case.dtype()
    y = case.finish("QConv", [x, w, *case.bias(o)], (n, o, *out), dtype, group=group, **attrs, **case.limits(dtype))
    _tail(case, y)


def _tail(case: Case, y: str) -> None:
    shape = case.graph.tensor(y).shape
    if case.chance(0.3):
        other = case.input(shape, case.dtype())
        dtype = case.dtype()
        operands = [y, other] if case.chance(0.5) else [other, y]
        y = case.finish("QAdd", operands, shape, dtype, **case.limits(dtype))
    if case.chance(0.3):
        y = _lut(case, y)
    case.graph.outputs.append(y)


def _lut(case: Case, x: str) -> str:
    table = case.rng.integers(0, 256, 256).astype(np.uint8).tobytes()
    return case.finish("QLut", [x], case.graph.tensor(x).shape, case.dtype(), table=table)


def conv_transpose(case: Case) -> None:
    rank = 1 if case.chance(0.2) else 2
    size = tuple(case.integer(1, 8) for _ in range(rank))
    group = case.integer(2, 3) if case.chance(0.2) else 1
    c, o = case.integer(1, 20) * group, case.integer(1, 20) * group
    while True:
        kernel = [case.integer(1, 4) for _ in size]
        strides = [case.integer(1, 3) for _ in size]
        dilations = [case.integer(1, 2) if max(strides) == 1 else 1 for _ in size]
        pads = [case.integer(0, k - 1) for k in kernel] + [case.integer(0, k - 1) for k in kernel]
        extra = [case.integer(0, s - 1) for s in strides]
        out = tuple(
            (size[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + extra[i] - pads[i] - pads[rank + i]
            for i in range(rank)
        )
        if min(out) > 0:
            break
    n = case.integer(1, 2)
    x = case.input((n, c, *size), case.dtype())
    w = case.weights((c, o // group, *kernel), o if group == 1 else 1, 1)
    dtype = case.dtype()
    y = case.finish(
        "QConvTranspose", [x, w, *case.bias(o)], (n, o, *out), dtype, kernel=kernel, strides=strides,
        dilations=dilations, pads=pads, output_padding=extra, group=group, **case.limits(dtype),
    )  # fmt: skip
    _tail(case, y)


def matmul(case: Case) -> None:
    batch = tuple(case.integer(1, 3) for _ in range(case.integer(0, 2)))
    m, k, n = case.integer(1, 40), case.integer(1, 70), case.integer(1, 70)
    x = case.input((*batch, m, k), case.dtype())
    dtype = case.dtype()
    if case.chance(0.5):
        inputs = [x, case.weights((k, n), n, 1), *case.bias(n)]
    else:
        inputs = [x, case.input((*batch, k, n), case.dtype())]
        case.graph.tensor(inputs[1]).quant = Quant.of(np.float32(0.004), case.graph.tensor(inputs[1]).quant.zero_point)  # type: ignore[union-attr]
    y = case.finish("QMatMul", inputs, (*batch, m, n), dtype, **case.limits(dtype))
    _tail(case, y)


def _product(case: Case, x: str, second: int | str) -> str:
    """By constant weights with so many columns, or by another tensor."""
    shape, dtype = case.graph.tensor(x).shape, case.dtype()
    if isinstance(second, int):
        inputs, columns = [x, case.weights((shape[-1], second), second, 1), *case.bias(second)], second
    else:
        inputs, columns = [x, second], case.graph.tensor(second).shape[-1]
    return case.finish("QMatMul", inputs, (*shape[:-1], columns), dtype, **case.limits(dtype))


def heads(case: Case) -> None:
    """Attention without its Softmax: rows divided into heads, products among them, heads joined to rows again."""
    batch, rows, count, depth = case.integer(1, 2), case.integer(1, 30), case.integer(1, 4), 4 * case.integer(1, 10)
    depth = 16 * -(-depth // 16) if case.chance(0.5) else depth  # heads of whole blocks are read where they lie
    x = case.input((batch, rows, case.integer(1, 40)), case.dtype())
    parts = []
    for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        made = _product(case, x, count * depth)
        if case.chance(0.3):
            made = _lut(case, made)
        divided = _move(case, "Reshape", made, [[batch, rows, count, depth]], [[batch, rows, count, depth]])[0]
        shape = [(batch, rows, count, depth)[p] for p in perm]
        parts.append(_move(case, "Transpose", divided, [], [shape], perm=perm)[0])
    scores = _product(case, parts[0], parts[1])
    together = _product(case, _lut(case, scores) if case.chance(0.5) else scores, parts[2])
    back = _move(case, "Transpose", together, [], [[batch, rows, count, depth]], perm=[0, 2, 1, 3])[0]
    flat = [batch * rows, count * depth] if case.chance(0.3) else [batch, rows, count * depth]
    joined = _move(case, "Reshape", back, [flat], [flat])[0]
    case.graph.outputs += [_product(case, joined, case.integer(1, 40))]
    if case.chance(0.3):
        case.graph.outputs.append(joined)


def pool(case: Case) -> None:
    rank = 1 if case.chance(0.2) else 2
    size = tuple(case.integer(1, 14) for _ in range(rank))
    n, c = case.integer(1, 2), case.integer(1, 50)
    dtype = case.dtype()
    x = case.input((n, c, *size), dtype)
    kind = case.integer(0, 2)
    if kind == 0:
        while True:
            attrs = _spatial(case, size, 4)
            if all(p < k for p, k in zip(attrs["pads"], attrs["kernel"] * 2, strict=True)):
                break
        out = attrs.pop("out")
        y = case.finish("QMaxPool", [x], (n, c, *out), dtype, quant=case.graph.tensor(x).quant, **attrs)
    elif kind == 1:
        attrs = _spatial(case, size, 3)
        attrs["kernel"] = [k if k % 2 else 1 for k in attrs["kernel"]]
        include = case.chance(0.4)
        pads = [case.integer(0, k - 1) if include else 0 for k in attrs["kernel"] * 2]
        attrs["pads"], attrs["dilations"] = pads, [1] * rank
        reach = [size[i] + pads[i] + pads[rank + i] - attrs["kernel"][i] for i in range(rank)]
        out = tuple(r // stride + 1 for r, stride in zip(reach, attrs["strides"], strict=True))
        if min(reach) < 0:
            attrs["kernel"], attrs["pads"] = [1] * rank, [0] * 2 * rank
            out = tuple((s - 1) // t + 1 for s, t in zip(size, attrs["strides"], strict=True))
        attrs.pop("out")
        y = case.finish(
            "QAveragePool", [x], (n, c, *out), dtype, count_include_pad=include, **attrs, **case.limits(dtype)
        )
    else:
        dtype = case.dtype()
        y = case.finish("QGlobalAveragePool", [x], (n, c, *([1] * rank)), dtype, keepdims=1, **case.limits(dtype))
    if case.chance(0.3):
        y = _lut(case, y)
    case.graph.outputs.append(y)


def elementwise(case: Case) -> None:
    rank = case.integer(1, 4)
    shape = tuple(case.integer(1, 20 if rank < 4 else 9) for _ in range(rank))
    a = case.input(shape, case.dtype())
    op = ("QAdd", "QMul", "QLut")[case.integer(0, 2)]
    if op == "QLut":
        y = _lut(case, a)
    else:
        other = list(shape)
        for i in range(rank):
            if case.chance(0.25):
                other[i] = 1
        if case.chance(0.25):
            dtype = case.dtype()
            data = case.rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, other).astype(dtype)
            b = case.graph.constant("k", data, case.quant(dtype))
        else:
            b = case.input(tuple(other), case.dtype())
        dtype = case.dtype()
        y = case.finish(op, [a, b] if case.chance(0.5) else [b, a], shape, dtype, **case.limits(dtype))
    if case.chance(0.3):
        y = _lut(case, y)
    case.graph.outputs.append(y)


def concat(case: Case) -> None:
    axis = case.integer(0, 3)
    shape = [case.integer(1, 3), case.integer(1, 40), case.integer(1, 7), case.integer(1, 7)]
    inputs, tables, total = [], [], 0
    dtype = case.dtype()
    for _ in range(case.integer(2, 3)):
        part = list(shape)
        part[axis] = case.integer(1, 3) * (16 if axis == 1 and case.chance(0.7) else 1)
        total += part[axis]
        inputs.append(case.input(tuple(part), dtype))
        tables.append(case.rng.integers(0, 256, 256).astype(np.uint8).tobytes() if case.chance(0.5) else None)
    shape[axis] = total
    case.graph.outputs.append(case.finish("QConcat", inputs, tuple(shape), dtype, axis=axis, tables=tuple(tables)))


def rows_concat(case: Case) -> None:
    """Concatenations of tensors that are no planes, behind layers of either layout."""
    rank = case.integer(2, 5)
    shape = [case.integer(1, 3) for _ in range(rank - 2)] + [case.integer(1, 20), case.integer(1, 40)]
    axis = case.integer(0, rank - 1)
    dtype, inputs, tables = case.dtype(), [], []
    if rank == 5:
        shape[:axis] = [1] * axis if axis < 3 else shape[:axis]
    common = case.quant(dtype)
    for _ in range(case.integer(2, 3)):
        part = list(shape)
        part[axis] = case.integer(1, 24)
        x = case.input(tuple(part), dtype)
        if rank == 3 and case.chance(0.4):
            x = _conv(case, x, part[1], 1, dtype)
        elif case.chance(0.4):
            x = _lut(case, x)
        table = case.rng.integers(0, 256, 256).astype(np.uint8).tobytes() if case.chance(0.4) else None
        inputs.append(x)
        tables.append(table if case.graph.tensor(x).dtype == dtype else table or bytes(range(256)))
    shape[axis] = sum(case.graph.tensor(x).shape[axis] for x in inputs)
    y = case.finish("QConcat", inputs, tuple(shape), dtype, quant=common, axis=axis, tables=tuple(tables))
    case.graph.outputs += [y, _lut(case, y)]


def chain(case: Case) -> None:
    """A few layers after one another, with residual connections: fusion, residency, aliases."""
    n, c = case.integer(1, 2), case.integer(1, 30)
    size = (case.integer(3, 12), case.integer(3, 12))
    value = case.input((n, c, *size), case.dtype())
    history = [value]
    for _ in range(case.integer(2, 6)):
        shape = case.graph.tensor(value).shape
        kind = case.integer(0, 4)
        same = [h for h in history if h != value and case.graph.tensor(h).shape == shape]
        if kind == 0 and same:
            dtype = case.dtype()
            value = case.finish("QAdd", [value, same[-1]], shape, dtype, **case.limits(dtype))
        elif kind == 1:
            value = _lut(case, value)
        else:
            depthwise = kind == 2 and shape[1] > 1
            o = shape[1] if depthwise or case.chance(0.5) else case.integer(1, 40)
            k = (1, 3)[case.integer(0, 1)]
            group = shape[1] if depthwise else 1
            stride = 2 if case.chance(0.2) else 1
            out = tuple((s + 2 * (k // 2) - k) // stride + 1 for s in shape[2:])
            dtype = case.dtype()
            w = case.weights((o, shape[1] // group, k, k), o, 0)
            value = case.finish(
                "QConv", [value, w, *case.bias(o)], (n, o, *out), dtype, kernel=[k, k], strides=[stride, stride],
                dilations=[1, 1], pads=[k // 2] * 4, group=group, **case.limits(dtype),
            )  # fmt: skip
        history.append(value)
    case.graph.outputs.append(value)


def _conv(case: Case, x: str, o: int, k: int, dtype: Any = None) -> str:
    """A convolution of group 1 with padding that keeps the size."""
    n, c, *size = case.graph.tensor(x).shape
    axes = len(size)
    dtype, w = dtype or case.dtype(), case.weights((o, c, *[k] * axes), o, 0)
    return case.finish(
        "QConv", [x, w, *case.bias(o)], (n, o, *size), dtype, kernel=[k] * axes, strides=[1] * axes,
        dilations=[1] * axes, pads=[k // 2] * 2 * axes, group=1, **case.limits(dtype),
    )  # fmt: skip


def _move(case: Case, op: str, x: str, constants: list[list[int]], shapes: list[list[int]], **attrs: Any) -> list[str]:
    """Results of a data movement, of the operand's type and quantisation."""
    t = case.graph.tensor(x)
    names = [
        case.tensor(f"{op}.{len(case.graph.nodes)}.{i}", tuple(shape), t.dtype, t.quant)
        for i, shape in enumerate(shapes)
    ]
    inputs = [x, *(case.graph.constant("part", np.array(values, np.int64)) for values in constants)]
    case.graph.nodes.append(Node(op, inputs, names, attrs, names[0]))
    return names


def parts(case: Case) -> None:
    """Slices and parts of what a convolution makes, each read by layers of its own, and by sums of them."""
    c, k = 8 * case.integer(1, 8), case.integer(0, 1) * 2 + 1
    size = [case.integer(2, 9), case.integer(2, 9)]
    x = _conv(case, case.input((case.integer(1, 2), case.integer(1, 8), *size), case.dtype()), c, k)
    shape = list(case.graph.tensor(x).shape)
    if case.chance(0.5):
        axis = case.integer(1, 3)
        first = 8 * case.integer(0, c // 8) if axis == 1 else case.integer(0, shape[axis])
        sizes = [v for v in (first, shape[axis] - first) if v]
        found = _move(case, "Split", x, [sizes], [[*shape[:axis], v, *shape[axis + 1 :]] for v in sizes], axis=axis)
    else:
        found = []
        for _ in range(2):
            begins = [case.integer(0, d - 1) for d in shape]
            begins[1] -= begins[1] % 8
            ends = [case.integer(b + 1, d) for b, d in zip(begins, shape, strict=True)]
            sliced = [e - b for b, e in zip(begins, ends, strict=True)]
            found += _move(case, "Slice", x, [begins, ends, [0, 1, 2, 3], [1] * 4], [sliced])
    made = [_conv(case, part, case.integer(1, 40), 3) if case.chance(0.7) else _lut(case, part) for part in found]
    if len(found) == 2 and case.graph.tensor(found[0]).shape == case.graph.tensor(found[1]).shape:
        dtype = case.dtype()
        made.append(case.finish("QAdd", found, case.graph.tensor(found[0]).shape, dtype, **case.limits(dtype)))
    case.graph.outputs += made
    if case.chance(0.5):
        case.graph.outputs.append(_conv(case, x, 8, 3))


def _between(case: Case, n: int) -> Places:
    """Places a whole number of times as many, as RESIZE_BILINEAR has them, or any."""
    out = n * (1, 2, 3, 4, 8)[case.integer(0, 4)] if case.chance(0.8) else case.integer(1, 20)
    at = np.arange(out) * (n / out)
    if case.chance(0.6):
        at = at + 0.5 * n / out - 0.5
    at = np.clip(at, 0, n - 1)
    first = np.floor(at).astype(np.int64)
    shares = np.rint((at - first) * 2048).astype(np.int64)
    return Places.of(first, np.minimum(first + 1, n - 1), shares, 2048)


def interpolate(case: Case) -> None:
    """Rows and columns between others, between convolutions and alone."""
    x = case.input((case.integer(1, 2), case.integer(1, 40), case.integer(1, 9), case.integer(1, 9)), case.dtype())
    if case.chance(0.6):
        x = _conv(case, x, case.integer(1, 40), 1)
    t = case.graph.tensor(x)
    rows, columns = (_between(case, n) for n in t.shape[2:])
    shape = (*t.shape[:2], len(rows.first), len(columns.first))
    y = case.finish(
        "QInterpolate", [x], shape, t.dtype, quant=t.quant, rows=rows, columns=columns, to_even=case.chance(0.5)
    )
    if case.chance(0.3):
        y = _lut(case, y)
    if case.chance(0.6):
        y = _conv(case, y, case.integer(1, 40), 1)
    case.graph.outputs.append(y)


def take(case: Case) -> None:
    """Rows and columns repeated, left out, reversed, between convolutions and alone."""
    c, rank = case.integer(1, 40), 1 if case.chance(0.2) else 2
    size = [case.integer(1, 9) for _ in range(rank)]
    x = case.input((case.integer(1, 2), c, *size), case.dtype())
    if rank == 2 and case.chance(0.7):
        x = _conv(case, x, case.integer(1, 40), 1)
    shape, indices = list(case.graph.tensor(x).shape), []
    for n in size:
        kind, out = case.integer(0, 3), case.integer(1, 20)
        places: list[tuple[int, ...] | None] = [
            None, tuple(i // 2 for i in range(2 * n)), tuple(i * n // out for i in range(out)), tuple(range(n))[::-2],
        ]  # fmt: skip
        indices.append(places[kind])
    out_shape = [*shape[:2], *(n if i is None else len(i) for n, i in zip(size, indices, strict=True))]
    t = case.graph.tensor(x)
    y = case.finish("QTake", [x], tuple(out_shape), t.dtype, quant=t.quant, indices=(None, None, *indices))
    if case.chance(0.3):
        y = _lut(case, y)
    if rank == 2 and case.chance(0.7):
        case.graph.outputs.append(y)
        y = _conv(case, y, case.integer(1, 30), 3)
    case.graph.outputs.append(y)


def large_mean(case: Case) -> None:
    """Averages over planes that fill ACT many times over, of what a layer makes and of an input."""
    size = (case.integer(40, 130), case.integer(40, 130))
    x = case.input((case.integer(1, 2), case.integer(1, 20), *size), case.dtype())
    if case.chance(0.5):
        x = _lut(case, x)
        case.graph.outputs.append(x)
    shape, dtype = case.graph.tensor(x).shape, case.dtype()
    y = case.finish("QGlobalAveragePool", [x], (*shape[:2], 1, 1), dtype, keepdims=1, **case.limits(dtype))
    case.graph.outputs.append(_lut(case, y) if case.chance(0.3) else y)


def mixed_concat(case: Case) -> None:
    """Concatenations of channels that are no multiples of a block, between layers."""
    n, size = case.integer(1, 2), (case.integer(1, 9), case.integer(1, 9))
    dtype, inputs, tables = case.dtype(), [], []
    common = case.quant(dtype)
    for _ in range(case.integer(2, 4)):
        table = case.rng.integers(0, 256, 256).astype(np.uint8).tobytes() if case.chance(0.4) else None
        own = dtype if table is None else case.dtype()  # bytes that pass unchanged have the type of the result
        x = case.input((n, case.integer(1, 50), *size), own)
        inputs.append(_conv(case, x, case.integer(1, 50), 1, own) if case.chance(0.5) else x)
        tables.append(table)
    if case.chance(0.2):
        inputs.append(inputs[0])
        tables.append(tables[0])
    channels = sum(case.graph.tensor(x).shape[1] for x in inputs)
    y = case.finish("QConcat", inputs, (n, channels, *size), dtype, quant=common, axis=1, tables=tuple(tables))
    case.graph.outputs += [y, _conv(case, y, case.integer(1, 20), 3)]


def softmax(case: Case) -> None:
    """A Softmax over the last axis between products, as attention has it."""
    shape = (*(case.integer(1, 3) for _ in range(case.integer(0, 2))), case.integer(1, 40), case.integer(2, 90))
    dtype = case.dtype()
    x = case.input(shape, dtype)
    info = np.iinfo(dtype)
    limits = {"out_min": int(info.min), "out_max": int(info.max)}
    w = case.weights((shape[-1], n := case.integer(2, 90)), n, 1)
    scores = case.finish("QMatMul", [x, w], (*shape[:-1], n), dtype, **limits)
    levels = case.integer(100, 300)
    quant = Quant.of(np.float32(1 / levels), int(info.min))
    exact = case.chance(0.3)
    factor = None if exact else float(np.floor(np.float32(1) / np.float32(1 / levels)))
    if exact:
        quant = Quant.of(np.float32(1 / 256), int(info.min))
    y = case.finish("QSoftmax", [scores], (*shape[:-1], n), dtype, quant=quant, axis=-1, levels=factor)
    if case.chance(0.3):
        y = _lut(case, y)
    v = case.weights((n, m := case.integer(1, 40)), m, 1)
    case.graph.outputs += [y, case.finish("QMatMul", [y, v], (*shape[:-1], m), case.graph.tensor(y).dtype, **limits)]


def norm(case: Case) -> None:
    """A norm over the last axis between products."""
    shape = (*(case.integer(1, 3) for _ in range(case.integer(0, 2))), case.integer(1, 40), case.integer(2, 90))
    dtype = case.dtype()
    x = case.input(shape, dtype)
    info = np.iinfo(dtype)
    limits = {"out_min": int(info.min), "out_max": int(info.max)}
    rng = np.random.default_rng(case.integer(0, 1 << 30))
    inputs = [case.graph.constant("scale", rng.normal(1, 0.5, shape[-1]).astype(np.float32))]
    centred = case.chance(0.6)
    if centred:
        inputs.append(case.graph.constant("bias", rng.normal(0, 0.3, shape[-1]).astype(np.float32)))
    quant = Quant.of(np.float32(rng.uniform(3, 5) / 127), int(info.min) + 128 + case.integer(0, 10))
    y = case.finish(
        "QNorm", [x, *inputs], shape, dtype, quant=quant, centred=centred, epsilon=float(10.0 ** -rng.integers(4, 9))
    )
    v = case.weights((shape[-1], m := case.integer(1, 40)), m, 1)
    case.graph.outputs += [y, case.finish("QMatMul", [y, v], (*shape[:-1], m), dtype, **limits)]


def wide_conv(case: Case) -> None:
    """Convolutions of 16-bit activations behind each other, with groups, strides and padding of any kind."""
    rank = 1 if case.chance(0.2) else 2
    c, size = case.integer(1, 40), tuple(case.integer(1, 14) for _ in range(rank))
    x = case.tensor("x0", (case.integer(1, 2), c, *size), np.int16, Quant.of(np.float32(0.001)))
    case.graph.inputs.append(x)
    for _ in range(case.integer(1, 3)):
        n, c, *size = case.graph.tensor(x).shape
        attrs = _spatial(case, tuple(size), 4)
        out = attrs.pop("out")
        o, group = case.integer(1, 40), 1
        if case.chance(0.3):
            o = group = c
        elif c % 2 == 0 and case.chance(0.3):
            o, group = 2 * o, 2
        shape = (o, c // group, *attrs["kernel"])
        w = case.graph.constant("w", case.rng.integers(-127, 128, shape).astype(np.int8), Quant.of(np.float32(0.01)))
        inputs = [x, w]
        if case.chance(0.7):
            most = 1 << case.integer(10, 38)
            inputs.append(case.graph.constant("b", case.rng.integers(-most, most, o)))
        # Most sums come to an int16 or a few.
        bits = int(np.log2(32768 * 64 * np.prod(shape[1:]) ** 0.5)) - 15
        shifts = [bits + 15 + case.integer(-2, 2) for _ in range(o)]
        low = case.integer(-32768, 0) if case.chance(0.4) else -32768
        high = case.integer(low, 32767) if case.chance(0.4) else 32767
        x = case.finish(
            "QConv16", inputs, (n, o, *out), np.int16, quant=Quant.of(np.float32(0.001)), group=group, low=low,
            high=high, multipliers=tuple(case.integer(0, 0x7FFF) for _ in range(o)), shifts=tuple(shifts), **attrs,
        )  # fmt: skip
    case.graph.outputs.append(x)


def plane_norm(case: Case) -> None:
    """A norm over planes, of channels or of groups of them, before a convolution."""
    groups, together = case.integer(1, 6), case.integer(1, 4)
    size = (case.integer(2, 9), case.integer(2, 9)) if together == 1 else (4, 4 * case.integer(1, 3))
    shape = (case.integer(1, 2), groups * together, *size)
    dtype = case.dtype()
    x = case.input(shape, dtype)
    info = np.iinfo(dtype)
    rng = np.random.default_rng(case.integer(0, 1 << 30))
    pairs = ((1, 0.5), (0, 0.3))
    inputs = [case.graph.constant("channels", rng.normal(*p, shape[1]).astype(np.float32)) for p in pairs]
    quant = Quant.of(np.float32(rng.uniform(3, 5) / 127), int(info.min) + 128 + case.integer(0, 10))
    epsilon = float(10.0 ** -rng.integers(4, 9))
    y = case.finish("QPlaneNorm", [x, *inputs], shape, dtype, quant=quant, groups=groups, epsilon=epsilon)
    v = case.weights((m := case.integer(1, 20), shape[1], 1, 1), m, 0)
    limits = {"out_min": int(info.min), "out_max": int(info.max)}
    out = case.finish("QConv", [y, v], (shape[0], m, *size), dtype, kernel=(1, 1), **limits)
    case.graph.outputs += [y, out]


def few_outside(case: Case) -> None:
    """Layers with weights of which few do not fit in int8."""
    case.few_outside = True
    (conv, conv, conv_transpose, matmul, chain)[case.integer(0, 4)](case)


_KINDS = (
    conv,
    conv_transpose,
    matmul,
    heads,
    pool,
    elementwise,
    concat,
    rows_concat,
    chain,
    parts,
    take,
    interpolate,
    large_mean,
    mixed_concat,
    softmax,
    norm,
    wide_conv,
    plane_norm,
    few_outside,
)
KINDS = {f.__name__: f for f in _KINDS}


def make(kind: str, seed: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """A graph of one kind and inputs for it, the same for the same seed."""
    case = Case(seed)
    KINDS[kind](case)
    inputs = {}
    for name in case.graph.inputs:
        t = case.graph.tensor(name)
        info = np.iinfo(t.dtype)
        inputs[name] = case.rng.integers(info.min, info.max + 1, t.shape).astype(t.dtype)
    case.graph.verify("generation")
    return case.graph, inputs
