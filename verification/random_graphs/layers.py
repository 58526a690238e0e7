"""Sums, products, convolutions, poolings, quantisation."""

from __future__ import annotations

import math

from verification.random_graphs.builder import Builder, NoOperand, is_number


def reduction(b: Builder) -> None:
    x = b.small(b.pick(lambda t: t.rank > 0 and is_number(t)))
    op = b.random.choice(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceSum"))
    axes = sorted(b.random.sample(range(x.rank), b.random.randrange(1, x.rank + 1)))
    keep = b.random.randrange(2)
    shape = [1 if k in axes else n for k, n in enumerate(x.shape) if keep or k not in axes]
    bound = x.bound * (math.prod(x.shape[a] for a in axes) if op == "ReduceSum" else 1)
    b.add(op, [x.name, b.constant(axes)], shape, x.dtype, bound, x.exact, keepdims=keep)


def matmul(b: Builder) -> None:
    x = b.small(b.pick(lambda t: t.rank > 1 and t.dtype == "float32"))
    k, n = x.shape[-1], b.random.choice((1, 3, 8, 17, 40))
    weights = b.constant(b.numbers((k, n), "float32"), "float32")
    b.add("MatMul", [x.name, weights], [*x.shape[:-1], n], "float32", x.bound * 10 * k, x.exact)


def convolution(b: Builder) -> None:
    x = b.small(b.pick(lambda t: t.rank == 4 and t.dtype == "float32" and min(t.shape[2:]) >= 2))
    n, c, h, w = x.shape
    depthwise = b.random.random() < 0.3
    size, stride = b.random.choice((1, 2, 3)), b.random.choice((1, 1, 2))
    border = size // 2
    if min(h, w) + 2 * border < size:
        raise NoOperand
    o = c if depthwise else b.random.choice((1, 4, 9))
    weights = b.constant(b.numbers((o, 1 if depthwise else c, size, size), "float32"), "float32")
    shape = [n, o, *((m + 2 * border - size) // stride + 1 for m in (h, w))]
    bound = x.bound * 10 * size * size * (1 if depthwise else c)
    attrs = {"pads": [border] * 4, "strides": [stride] * 2, "group": c if depthwise else 1}
    b.add("Conv", [x.name, weights], shape, "float32", bound, x.exact, **attrs)


def pool(b: Builder) -> None:
    x = b.pick(lambda t: t.rank == 4 and t.dtype == "float32" and min(t.shape[2:]) >= 2)
    stride = b.random.choice((1, 2))
    shape = [*x.shape[:2], *((m - 2) // stride + 1 for m in x.shape[2:])]
    b.add("MaxPool", [x.name], shape, x.dtype, x.bound, x.exact, kernel_shape=[2, 2], strides=[stride] * 2)


def resize(b: Builder) -> None:
    x = b.pick(lambda t: t.rank == 4 and t.dtype == "float32")
    mode = b.random.choice(("nearest", "linear"))
    shape = [*x.shape[:2], *(n * b.random.choice((1, 2, 3)) for n in x.shape[2:])]
    exact = x.exact and mode == "nearest"
    how = {"mode": mode, "coordinate_transformation_mode": b.random.choice(("asymmetric", "half_pixel"))}
    if mode == "nearest":
        how |= {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    b.add("Resize", [x.name, "", "", b.constant(shape)], shape, x.dtype, x.bound, exact, **how)


def normalise(b: Builder) -> None:
    fits = lambda t: (
        t.rank > 1 and t.shape[-1] > 1 and t.exact
    )  # else a row of equal numbers is divided by its rounding
    x = b.pick(lambda t: fits(t) and t.dtype == "float32" and t.bound <= 1000)
    scale = b.constant(b.numbers(x.shape[-1:], "float32"), "float32")
    b.add("LayerNormalization", [x.name, scale], x.shape, x.dtype, 100, False, axis=-1)


def transposed_convolution(b: Builder) -> None:
    x = b.small(b.pick(lambda t: t.rank == 4 and t.dtype == "float32"))
    n, c, h, w = x.shape
    size, stride, o = b.random.choice((2, 3)), b.random.choice((1, 2)), b.random.choice((1, 4))
    weights = b.constant(b.numbers((c, o, size, size), "float32"), "float32")
    shape = [n, o, *((m - 1) * stride + size for m in (h, w))]
    bound = x.bound * 10 * size * size * c
    b.add("ConvTranspose", [x.name, weights], shape, "float32", bound, x.exact, strides=[stride] * 2)


def mean_pool(b: Builder) -> None:
    x = b.pick(lambda t: t.rank == 4 and t.dtype == "float32")
    b.add("GlobalAveragePool", [x.name], [*x.shape[:2], 1, 1], x.dtype, x.bound, False)


def quantised_convolution(b: Builder) -> None:
    """uint8 in, int8 weights, uint8 out, as quantisers write it; off by a step at most where sums are scaled."""
    x = b.pick(lambda t: t.rank == 4 and t.dtype == "float32" and t.exact)
    n, c, h, w = x.shape
    size, o = b.random.choice((1, 3)), b.random.choice((3, 8))
    one, zero = b.constant(1, "float32"), b.constant(128, "uint8")
    q = b.add("QuantizeLinear", [x.name, one, zero], x.shape, "uint8", 255)
    d = b.add("DequantizeLinear", [q.name, one, zero], x.shape, "float32", 128)
    weights = b.constant(b.numbers((o, c, size, size), "int8"), "int8")
    signed = b.constant(0, "int8")
    shape = [o, c, size, size]
    wd = b.add("DequantizeLinear", [weights, one, signed], shape, "float32", 10)
    bound = 128 * 10 * c * size * size
    shape = [n, o, h, w]
    y = b.add("Conv", [d.name, wd.name], shape, "float32", bound, pads=[size // 2] * 4)
    scale = b.constant(64, "float32")
    q = b.add("QuantizeLinear", [y.name, scale, zero], shape, "uint8", 255)
    b.add("DequantizeLinear", [q.name, scale, zero], shape, "float32", 64 * 128)


def quantise(b: Builder) -> None:
    x = b.pick(lambda t: t.dtype == "float32" and t.exact)
    scale, zero = b.constant(2, "float32"), b.constant(3, "uint8")
    q = b.add("QuantizeLinear", [x.name, scale, zero], x.shape, "uint8", 255)
    b.add("DequantizeLinear", [q.name, scale, zero], x.shape, "float32", 510)
