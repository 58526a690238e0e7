"""Softmax and the normalisations: statistics per row in memory, then one elementwise loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from compiler.cpu import mathlib as m
from compiler.cpu.expr import Expr, Index, Var, call, const, guard, index_value, reduce, select
from compiler.cpu.fuse import Context, Value
from compiler.cpu.ops.elementwise import widen
from compiler.cpu.ops.reduction import lowest, reduced
from compiler.cpu.ops.registry import op


def wide(dtype: str) -> str:
    return "f32" if dtype in ("f16", "bf16") else dtype


def row(idx: Sequence[Index], axes: Sequence[int]) -> list[Index]:
    return [Index(0) if k in axes else i for k, i in enumerate(idx)]


@op("Softmax", "LogSoftmax")
def softmax(ctx: Context) -> None:
    x, shape = ctx.stored(ctx.input()), ctx.out_shape()
    kind, dtype = wide(x.dtype), x.dtype
    if ctx.opset < 13:  # all dimensions from axis on
        axes = list(range(ctx.axis(1, x.rank), x.rank))
    else:
        axes = [ctx.axis(-1, x.rank)]
    top = ctx.stored(reduced(ctx, x, axes, "max", lowest(kind)))

    def moved(idx: Sequence[Index]) -> Expr:
        return widen(ctx.read(x, idx)) - ctx.read(top, row(idx, axes))

    if ctx.node.op == "Softmax":
        e = ctx.stored(ctx.lazy(shape, kind, lambda idx: m.exp(moved(idx)), 12))
        total = ctx.stored(reduced(ctx, e, axes, "add", const(0, kind)))
        fn = lambda idx: (ctx.read(e, idx) / ctx.read(total, row(idx, axes))).to(dtype)
    else:
        e = ctx.lazy(shape, kind, lambda idx: m.exp(moved(idx)), 12)
        total = ctx.stored(reduced(ctx, e, axes, "add", const(0, kind), finish=m.log))
        fn = lambda idx: (moved(idx) - ctx.read(total, row(idx, axes))).to(dtype)
    ctx.define(shape, dtype, fn, 5)


def moments(ctx: Context, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value]:
    """Mean and 1 / sqrt(variance + epsilon) over `axes`, two passes, stored."""
    kind = wide(x.dtype)
    n = math.prod(x.shape[a] for a in axes)
    mean = ctx.stored(reduced(ctx, x, axes, "add", const(0, kind), finish=lambda e: e / n))

    def square(idx: list[Index]) -> Expr:
        d = widen(ctx.read(x, idx)) - ctx.read(mean, row(idx, axes))
        return d * d

    squares = ctx.lazy(x.shape, kind, square, 3)
    scale = lambda e: 1.0 / call("sqrt", e / n + epsilon)
    return mean, ctx.stored(reduced(ctx, squares, axes, "add", const(0, kind), finish=scale))


def normalised(ctx: Context, x: Value, axes: Sequence[int], epsilon: float) -> Callable[[Sequence[Index]], Expr]:
    mean, inverse = moments(ctx, x, axes, epsilon)
    return lambda idx: (widen(ctx.read(x, idx)) - ctx.read(mean, row(idx, axes))) * ctx.read(inverse, row(idx, axes))


@op("LayerNormalization")
def layer_normalization(ctx: Context) -> None:
    x = ctx.stored(ctx.input(0))
    axes = list(range(ctx.axis(-1, x.rank), x.rank))
    mean, inverse = moments(ctx, x, axes, float(ctx.attr("epsilon", 1e-5)))
    scale, bias = ctx.input(1), ctx.input(2) if ctx.has(2) else None

    def fn(idx: list[Index]) -> Expr:
        y = (widen(ctx.read(x, idx)) - ctx.read(mean, row(idx, axes))) * ctx.read(inverse, row(idx, axes))
        y = y * widen(ctx.read_broadcast(scale, idx))
        return (y if bias is None else y + widen(ctx.read_broadcast(bias, idx))).to(x.dtype)

    ctx.define(x.shape, x.dtype, fn, 6)
    for k, v in ((1, mean), (2, inverse)):
        if len(ctx.node.outputs) > k and ctx.node.outputs[k]:
            ctx.bind(v, k)


@op("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(ctx: Context) -> None:
    x, scale = ctx.stored(ctx.input(0)), ctx.input(1)
    axes = list(range(ctx.axis(-1, x.rank), x.rank))
    n, epsilon = math.prod(x.shape[a] for a in axes), float(ctx.attr("epsilon", 1e-5))
    finish = lambda e: 1.0 / call("sqrt", e / n + epsilon)
    inverse = ctx.stored(reduced(ctx, x, axes, "add", const(0, wide(x.dtype)), lambda e: e * e, finish))
    ctx.define(
        x.shape,
        x.dtype,
        lambda idx: (
            widen(ctx.read(x, idx)) * ctx.read(inverse, row(idx, axes)) * widen(ctx.read_broadcast(scale, idx))
        ).to(x.dtype),
        6,
    )


@op("InstanceNormalization")
def instance_normalization(ctx: Context) -> None:
    x, scale, bias = ctx.stored(ctx.input(0)), ctx.input(1), ctx.input(2)
    y = normalised(ctx, x, list(range(2, x.rank)), float(ctx.attr("epsilon", 1e-5)))
    ctx.define(
        x.shape,
        x.dtype,
        lambda idx: (y(idx) * widen(ctx.read(scale, [idx[1]])) + widen(ctx.read(bias, [idx[1]]))).to(x.dtype),
        6,
    )


@op("GroupNormalization")
def group_normalization(ctx: Context) -> None:
    x, scale, bias = ctx.stored(ctx.input(0)), ctx.input(1), ctx.input(2)
    groups = int(ctx.attr("num_groups"))
    per = x.shape[1] // groups
    grouped = Value((x.shape[0], groups, per, *x.shape[2:]), x.dtype, x.buffer)
    y = normalised(ctx, grouped, list(range(2, grouped.rank)), float(ctx.attr("epsilon", 1e-5)))
    by_group = scale.size == groups and ctx.opset < 21

    def fn(idx: list[Index]) -> Expr:
        n, c, *rest = idx
        at = [c // per] if by_group else [c]
        e = y([n, c // per, c % per, *rest])
        return (e * widen(ctx.read(scale, at)) + widen(ctx.read(bias, at))).to(x.dtype)

    # Written with the channel as two loops, so that no index is divided.
    out = ctx.temp(grouped.shape, x.dtype)
    variables = out.vars()
    n, g, p, *rest = [Index.of(v) for v in variables]
    ctx.assign(out, variables, fn([n, g * per + p, *rest]))
    ctx.bind(Value(x.shape, x.dtype, out.buffer))


@op("BatchNormalization")
def batch_normalization(ctx: Context) -> None:
    if ctx.attr("training_mode", 0):
        raise ctx.unsupported("training_mode=1", "inference")
    x, epsilon = ctx.input(0), float(ctx.attr("epsilon", 1e-5))
    parameters = [ctx.input(k) for k in range(1, 5)]

    def fn(idx: list[Index]) -> Expr:
        at = [idx[1] if x.rank > 1 else Index(0)]
        scale, bias, mean, variance = (widen(ctx.read(p, at)).to(wide(x.dtype)) for p in parameters)
        factor = scale / call("sqrt", variance + epsilon)
        return ((widen(ctx.read(x, idx)) - mean) * factor + bias).to(x.dtype)

    ctx.define(x.shape, x.dtype, fn, x.cost + 6)


@op("LpNormalization")
def lp_normalization(ctx: Context) -> None:
    x = ctx.stored(ctx.input())
    axes, p, kind = [ctx.axis(-1, x.rank)], int(ctx.attr("p", 2)), wide(x.dtype)
    element = (lambda e: call("fabs", e)) if p == 1 else (lambda e: e * e)
    finish = (lambda e: e) if p == 1 else (lambda e: call("sqrt", e))
    norm = ctx.stored(reduced(ctx, x, axes, "add", const(0, kind), element, finish))

    def fn(idx: list[Index]) -> Expr:
        d = ctx.read(norm, row(idx, axes))
        return select(d.eq(0.0), const(0, kind), widen(ctx.read(x, idx)) / d).to(x.dtype)

    ctx.define(x.shape, x.dtype, fn, 5)


@op("MeanVarianceNormalization")
def mean_variance_normalization(ctx: Context) -> None:
    x = ctx.stored(ctx.input())
    axes = [a % x.rank for a in ctx.ints("axes", [0, 2, 3]) or []]
    kind, n = wide(x.dtype), math.prod(x.shape[a] for a in axes)
    mean = ctx.stored(reduced(ctx, x, axes, "add", const(0, kind), finish=lambda e: e / n))
    centred = ctx.lazy(x.shape, kind, lambda idx: widen(ctx.read(x, idx)) - ctx.read(mean, row(idx, axes)), 2)
    finish = lambda e: call("sqrt", e / n) + 1e-9
    deviation = ctx.stored(reduced(ctx, centred, axes, "add", const(0, kind), lambda e: e * e, finish))
    ctx.define(
        x.shape, x.dtype, lambda idx: (ctx.read(centred, idx) / ctx.read(deviation, row(idx, axes))).to(x.dtype), 6
    )


@op("LRN")
def local_response_normalization(ctx: Context) -> None:
    x = ctx.stored(ctx.input())
    size, channels, kind = int(ctx.attr("size")), x.shape[1], wide(x.dtype)
    alpha, beta, bias = (float(ctx.attr(k, v)) for k, v in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    before = (size - 1) // 2

    def fn(idx: list[Index]) -> Expr:
        t = Var.new(size)
        c = idx[1] + Index.of(t) - before
        e = widen(ctx.read(x, [idx[0], c, *idx[2:]]))
        inside = (index_value(c) >= 0) & (index_value(c) < channels)
        total = reduce("add", [t], guard(inside, e * e, const(0, kind)), 0)
        base = total * (alpha / size) + bias
        scale = m.exp(m.log(base) * -beta)
        return (widen(ctx.read(x, idx)) * scale).to(x.dtype)

    ctx.define(x.shape, x.dtype, fn, 40 + size)
