"""Layers with several tensors, and layers behind each other."""

from __future__ import annotations

import numpy as np

from tests.network.layer_cases.case import Case, lut, move, small_conv


def elementwise(case: Case) -> None:
    rank = case.integer(1, 4)
    shape = tuple(case.integer(1, 20 if rank < 4 else 9) for _ in range(rank))
    a = case.input(shape, case.dtype())
    op = ("QAdd", "QMul", "QLut")[case.integer(0, 2)]
    if op == "QLut":
        y = lut(case, a)
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
        y = lut(case, y)
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
            x = small_conv(case, x, part[1], 1, dtype)
        elif case.chance(0.4):
            x = lut(case, x)
        table = case.rng.integers(0, 256, 256).astype(np.uint8).tobytes() if case.chance(0.4) else None
        inputs.append(x)
        tables.append(table if case.graph.tensor(x).dtype == dtype else table or bytes(range(256)))
    shape[axis] = sum(case.graph.tensor(x).shape[axis] for x in inputs)
    y = case.finish("QConcat", inputs, tuple(shape), dtype, quant=common, axis=axis, tables=tuple(tables))
    case.graph.outputs += [y, lut(case, y)]


def mixed_concat(case: Case) -> None:
    """Concatenations of channels that are no multiples of a block, between layers."""
    n, size = case.integer(1, 2), (case.integer(1, 9), case.integer(1, 9))
    dtype, inputs, tables = case.dtype(), [], []
    common = case.quant(dtype)
    for _ in range(case.integer(2, 4)):
        table = case.rng.integers(0, 256, 256).astype(np.uint8).tobytes() if case.chance(0.4) else None
        own = dtype if table is None else case.dtype()  # bytes that pass unchanged have the type of the result
        x = case.input((n, case.integer(1, 50), *size), own)
        inputs.append(small_conv(case, x, case.integer(1, 50), 1, own) if case.chance(0.5) else x)
        tables.append(table)
    if case.chance(0.2):
        inputs.append(inputs[0])
        tables.append(tables[0])
    channels = sum(case.graph.tensor(x).shape[1] for x in inputs)
    y = case.finish("QConcat", inputs, (n, channels, *size), dtype, quant=common, axis=1, tables=tuple(tables))
    case.graph.outputs += [y, small_conv(case, y, case.integer(1, 20), 3)]


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
            value = lut(case, value)
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


def parts(case: Case) -> None:
    """Slices and parts of what a convolution makes, each read by layers of its own, and by sums of them."""
    c, k = 8 * case.integer(1, 8), case.integer(0, 1) * 2 + 1
    size = [case.integer(2, 9), case.integer(2, 9)]
    x = small_conv(case, case.input((case.integer(1, 2), case.integer(1, 8), *size), case.dtype()), c, k)
    shape = list(case.graph.tensor(x).shape)
    if case.chance(0.5):
        axis = case.integer(1, 3)
        first = 8 * case.integer(0, c // 8) if axis == 1 else case.integer(0, shape[axis])
        sizes = [v for v in (first, shape[axis] - first) if v]
        found = move(case, "Split", x, [sizes], [[*shape[:axis], v, *shape[axis + 1 :]] for v in sizes], axis=axis)
    else:
        found = []
        for _ in range(2):
            begins = [case.integer(0, d - 1) for d in shape]
            begins[1] -= begins[1] % 8
            ends = [case.integer(b + 1, d) for b, d in zip(begins, shape, strict=True)]
            sliced = [e - b for b, e in zip(begins, ends, strict=True)]
            found += move(case, "Slice", x, [begins, ends, [0, 1, 2, 3], [1] * 4], [sliced])
    made = [small_conv(case, part, case.integer(1, 40), 3) if case.chance(0.7) else lut(case, part) for part in found]
    if len(found) == 2 and case.graph.tensor(found[0]).shape == case.graph.tensor(found[1]).shape:
        dtype = case.dtype()
        made.append(case.finish("QAdd", found, case.graph.tensor(found[0]).shape, dtype, **case.limits(dtype)))
    case.graph.outputs += made
    if case.chance(0.5):
        case.graph.outputs.append(small_conv(case, x, 8, 3))
