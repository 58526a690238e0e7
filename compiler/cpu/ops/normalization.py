"""Softmax and the normalisations: statistics per row in memory, then one elementwise loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.compiler.cpu.expr import (
    Expr,
    Index,
    Var,
    call,
    const,
    fma,
    guard,
    index_value,
    linear,
    load,
    reduce,
    select,
)
from tilewright.compiler.cpu.expr import mathlib as m
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.ops.elementwise import widen
from tilewright.compiler.cpu.ops.reduction import lowest, reduced
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.rows import Statistics, Stored, by_rows
from tilewright.compiler.cpu.stages.value import ElementFn, Value


def wide(dtype: str) -> str:
    return "f32" if dtype in ("f16", "bf16") else dtype


def row(idx: Sequence[Index], axes: Sequence[int]) -> list[Index]:
    return [Index(0) if k in axes else i for k, i in enumerate(idx)]


@op("Softmax", "LogSoftmax")
def softmax(ctx: Context) -> None:
    x = ctx.input()
    kind, dtype, log = wide(x.dtype), x.dtype, ctx.node.op == "LogSoftmax"

    def recipe(read: ElementFn, rows: Statistics) -> ElementFn:
        # A NaN makes the sum NaN, and with it the row, so the maximum may pass over it.
        top = rows.fold("top", lambda i: widen(read(i)), lowest(kind))
        moved = lambda i: widen(read(i)) - top(i)
        if log:
            total = rows.fold("add", lambda i: m.exp(moved(i), negative=True), const(0, kind), m.log)
            return lambda i: (moved(i) - total(i)).to(dtype)
        e = rows.keep(lambda i: m.exp(moved(i), negative=True), kind, 12)
        scale = rows.fold("add", e, const(0, kind), lambda total: 1.0 / total)
        return lambda i: (e(i) * scale(i)).to(dtype)

    ctx.bind(by_rows(ctx, x, [ctx.axis(-1, x.rank)], dtype, recipe))


def moments(read: ElementFn, rows: Statistics, count: int, epsilon: float, kind: str) -> tuple[ElementFn, ElementFn]:
    """The mean and 1 / sqrt(variance + epsilon) of rows of `count` elements, in two passes."""
    mean = rows.fold("add", lambda i: widen(read(i)), const(0, kind), lambda e: e / count)

    def square(i: list[Index]) -> Expr:
        d = widen(read(i)) - mean(i)
        return d * d

    inverse = rows.fold("add", square, const(0, kind), lambda e: 1.0 / call("sqrt", e / count + epsilon))
    return mean, inverse


def normalised(
    ctx: Context, x: Value, axes: Sequence[int], epsilon: float, finish: Callable[[Expr, list[Index]], Expr]
) -> Value:
    """The value of `finish` of (x - mean) / sqrt(variance + epsilon) over `axes`, at an index."""
    kind, dtype = wide(x.dtype), x.dtype
    count = math.prod(x.shape[a] for a in axes)

    def recipe(read: ElementFn, rows: Statistics) -> ElementFn:
        mean, inverse = moments(read, rows, count, epsilon, kind)
        return lambda i: finish((widen(read(i)) - mean(i)) * inverse(i), i).to(dtype)

    return by_rows(ctx, x, axes, dtype, recipe)


def scaled_by_channel(ctx: Context) -> Callable[[Expr, list[Index]], Expr]:
    """The affine step of LayerNormalization at an index: times scale, plus bias."""
    scale, bias = ctx.input(1), ctx.input(2) if ctx.has(2) else None

    def finish(y: Expr, idx: list[Index]) -> Expr:
        y = y * widen(ctx.read_broadcast(scale, idx))
        return y if bias is None else y + widen(ctx.read_broadcast(bias, idx))

    return finish


@op("LayerNormalization")
def layer_normalization(ctx: Context) -> None:
    x, epsilon = ctx.input(0), float(ctx.attr("epsilon", 1e-5))
    axes = list(range(ctx.axis(-1, x.rank), x.rank))
    finish = scaled_by_channel(ctx)
    wanted = [k for k in (1, 2) if len(ctx.node.outputs) > k and ctx.node.outputs[k]]
    if not wanted:
        ctx.bind(normalised(ctx, x, axes, epsilon, finish))
        return
    ctx.buffer(x)
    kind, dtype = wide(x.dtype), x.dtype
    read = lambda idx: ctx.read(x, idx)
    count = math.prod(x.shape[a] for a in axes)
    statistics = moments(read, Stored(ctx, x.shape, axes), count, epsilon, kind)
    mean, inverse = statistics
    ctx.define(x.shape, dtype, lambda idx: finish((widen(read(idx)) - mean(idx)) * inverse(idx), idx).to(dtype), 6)
    for k in wanted:
        ctx.define(ctx.out_shape(k), kind, statistics[k - 1], 1, k)


_LANES = 8
"""Number of partial sums that onnxruntime keeps for a root mean square."""


def _inverse_root(ctx: Context, x: Value, count: int, epsilon: float) -> Value:
    """The float32 [..., 1] of 1 / sqrt(mean of squares + epsilon) of rows in memory, rounded like onnxruntime's: eight
    sums by fused multiply-adds, then halves added to halves.
    """
    lead = [Var.new(n) for n in x.shape[:-1]]
    part, lane = Var.new(count // _LANES), Var.new(_LANES)
    sums = ctx.temp((*x.shape[:-1], _LANES), "f32")
    target = ctx.buffer(sums)
    outer = [Index.of(v) for v in lead]
    element = ctx.read(x, [*outer, Index.of(part) * _LANES + Index.of(lane)])
    place = linear([*outer, Index.of(lane)], sums.shape)
    added = fma(element, element, load(target, place))

    def write(f: Function) -> None:
        with f.loops([*lead, lane]):
            f.write(target, f.index(place), f.value(const(0, "f32")))
        with f.loops([*lead, part, lane]):
            f.write(target, f.index(place), f.value(added))

    ctx.kernel(write, [sums], "RMSNormalization")

    def inverse(i: list[Index]) -> Expr:
        values = [ctx.read(sums, [*i[:-1], Index(n)]) for n in range(_LANES)]
        while len(values) > 1:
            half = len(values) // 2
            values = [a + b for a, b in zip(values[:half], values[half:], strict=True)]
        return 1.0 / call("sqrt", values[0] / count + epsilon)

    return ctx.lazy((*x.shape[:-1], 1), "f32", inverse, 20)


@op("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(ctx: Context) -> None:
    x = ctx.input(0)
    axes = list(range(ctx.axis(-1, x.rank), x.rank))
    ctx.bind(rms_normalised(ctx, x, axes, float(ctx.attr("epsilon", 1e-5))))


def rms_normalised(ctx: Context, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """x / sqrt(mean of squares + epsilon) over `axes`, times the node's scale."""
    scale, count = ctx.input(1), math.prod(x.shape[a] for a in axes)
    if len(axes) == 1 and count and count % _LANES == 0 and x.dtype == "f32":
        x = ctx.stored(x)
        inverse = ctx.stored(_inverse_root(ctx, x, count, epsilon))

        def scaled(i: list[Index]) -> Expr:
            return ctx.read(x, i) * ctx.read(inverse, [*i[:-1], Index(0)]) * ctx.read_broadcast(scale, i)

        return ctx.lazy(x.shape, x.dtype, scaled, 4)

    def recipe(read: ElementFn, rows: Statistics) -> ElementFn:
        square = lambda i: widen(read(i)) * widen(read(i))
        finish = lambda e: 1.0 / call("sqrt", e / count + epsilon)
        inverse = rows.fold("add", square, const(0, wide(x.dtype)), finish)
        return lambda i: (widen(read(i)) * inverse(i) * widen(ctx.read_broadcast(scale, i))).to(x.dtype)

    return by_rows(ctx, x, axes, x.dtype, recipe)


def normalised_planes(ctx: Context, x: Value, groups: int, epsilon: float) -> Value:
    """The norm over the planes of each group of neighbouring channels, with scale and bias of each channel."""
    scale, bias = ctx.input(1), ctx.input(2)
    if groups == x.shape[1]:
        finish = lambda y, i: y * widen(ctx.read(scale, [i[1]])) + widen(ctx.read(bias, [i[1]]))
        return normalised(ctx, x, list(range(2, x.rank)), epsilon, finish)
    per = x.shape[1] // groups
    grouped = Value((x.shape[0], groups, per, *x.shape[2:]), x.dtype, ctx.buffer(x))

    def finish_grouped(y: Expr, idx: list[Index]) -> Expr:
        _, g, p, *_ = idx
        at = [g * per + p]
        return y * widen(ctx.read(scale, at)) + widen(ctx.read(bias, at))

    y = normalised(ctx, grouped, list(range(2, grouped.rank)), epsilon, finish_grouped)
    return Value(x.shape, x.dtype, ctx.buffer(y))


@op("InstanceNormalization")
def instance_normalization(ctx: Context) -> None:
    x = ctx.input(0)
    ctx.bind(normalised_planes(ctx, x, x.shape[1], float(ctx.attr("epsilon", 1e-5))))


@op("GroupNormalization")
def group_normalization(ctx: Context) -> None:
    ctx.bind(normalised_planes(ctx, ctx.input(0), int(ctx.attr("num_groups")), float(ctx.attr("epsilon", 1e-5))))


@op("BatchNormalization")
def batch_normalization(ctx: Context) -> None:
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
    axes = [a % x.rank for a in ctx.ints("axes", [0, 2, 3])]
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
