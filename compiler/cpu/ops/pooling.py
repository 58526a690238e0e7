"""Max, average and Lp pooling over windows, and their global forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.compiler.cpu.expr import FLOATS, Expr, Index, Var, call, const, lookup, reduce, select
from tilewright.compiler.cpu.expr import index_value as value_of
from tilewright.compiler.cpu.expr import mathlib as m
from tilewright.compiler.cpu.ops.convolution import Window, padded, window
from tilewright.compiler.cpu.ops.elementwise import widen
from tilewright.compiler.cpu.ops.reduction import lowest, reduced
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value
from tilewright.compiler.graph.windows import reached

MAX_TAPS = 49  # windows up to this many taps are written out


def taps_of(w: Window, position: Sequence[Index], tap: Sequence[Index | int]) -> list[Index]:
    return [p * s + Index.of(t) * d for p, s, t, d in zip(position, w.strides, tap, w.dilations)]


def window_fold(
    ctx: Context,
    source: Value,
    w: Window,
    idx: Sequence[Index],
    fold: str,
    init: Expr,
    element: Callable[[Expr], Expr] | None = None,
    strict: bool = False,
) -> Expr:
    """Folds the window at an output index, taps in row-major order (kept if `strict`)."""
    n, c, *position = idx

    def read(tap: Sequence[Index | int]) -> Expr:
        e = widen(ctx.read(source, [n, c, *taps_of(w, position, tap)]))
        return e if element is None else element(e)

    if int(np.prod(w.kernel)) <= MAX_TAPS:
        total: Expr | None = None
        for tap in np.ndindex(*w.kernel):
            e = read([int(t) for t in tap])
            total = e if total is None else select(e > total, e, total) if fold == "max" else total + e
        assert total is not None
        return total
    variables = [Var.new(k) for k in w.kernel]
    return reduce(fold, variables, read([Index.of(v) for v in variables]), init, strict)


def inside(w: Window, spatial: Sequence[int], out: Sequence[int]) -> Window:
    """The window without the taps that are padding at every position, whose values add nothing."""
    taps = [reached(*axis) for axis in zip(spatial, w.kernel, w.strides, w.dilations, w.begin, out)]
    begin = [b - t.start * d for b, t, d in zip(w.begin, taps, w.dilations)]
    return Window([len(t) for t in taps], w.strides, w.dilations, begin, w.end)


def counts(w: Window, spatial: Sequence[int], out: Sequence[int], include_pad: bool) -> list[list[int]]:
    """The number of taps that count for the average, per dimension and output position."""
    tables = []
    for d, size in enumerate(spatial):
        low, high = (-w.begin[d], size + w.end[d]) if include_pad else (0, size)
        table = []
        for o in range(out[d]):
            start = o * w.strides[d] - w.begin[d]
            first = max(-((start - low) // w.dilations[d]), 0)  # the first tap at `low` or behind
            behind = min(-((start - high) // w.dilations[d]), w.kernel[d])
            table.append(max(behind - first, 0))
        tables.append(table)
    return tables


def count_at(tables: list[list[int]], position: Sequence[Index]) -> Expr:
    total = value_of(lookup(tables[0], position[0]))
    for t, p in zip(tables[1:], position[1:]):
        total = total * value_of(lookup(t, p))
    return total


@op("MaxPool")
def max_pool(ctx: Context) -> None:
    x, shape = ctx.input(), ctx.out_shape()
    w = window(ctx, ctx.ints("kernel_shape"))
    source = padded(ctx, x, w, shape[2:], lowest(x.dtype))
    y = ctx.define(
        shape,
        x.dtype,
        lambda idx: window_fold(ctx, source, w, idx, "max", lowest(x.dtype)).to(x.dtype),
        max(int(np.prod(w.kernel)), 3),
    )
    if len(ctx.node.outputs) > 1 and ctx.node.outputs[1]:
        _max_indices(ctx, ctx.stored(y), source, x, w)


def _max_indices(ctx: Context, y: Value, source: Value, x: Value, w: Window) -> None:
    """Writes the second output: the position of the maximum in the whole unpadded input, flat."""
    spatial = list(x.shape[2:])
    row_major = not ctx.attr("storage_order", 0)
    planes = math.prod(spatial)

    def fn(idx: list[Index]) -> Expr:
        n, c, *position = idx
        best = widen(ctx.read(y, idx))
        found = const(-1, "i64")
        for tap in reversed(list(np.ndindex(*w.kernel))):
            at = taps_of(w, position, [int(t) for t in tap])
            hit = widen(ctx.read(source, [n, c, *at])).eq(best)
            flat = Index(0)
            order = list(range(len(spatial))) if row_major else list(range(len(spatial)))[::-1]
            for d in order:
                flat = flat * spatial[d] + (at[d] - w.begin[d])
                low, high = (at[d] - w.begin[d]).range()
                if low < 0:
                    hit = hit & (value_of(at[d]) >= w.begin[d])
                if high >= spatial[d]:
                    hit = hit & (value_of(at[d]) < w.begin[d] + spatial[d])
            found = select(hit, value_of(flat + (n * x.shape[1] + c) * planes), found)
        return found

    ctx.define(ctx.out_shape(1), "i64", fn, 100, out=1)


@op("AveragePool")
def average_pool(ctx: Context) -> None:
    x, shape = ctx.input(), ctx.out_shape()
    whole = window(ctx, ctx.ints("kernel_shape"))
    tables = counts(whole, x.shape[2:], shape[2:], bool(ctx.attr("count_include_pad", 0)))
    w = inside(whole, x.shape[2:], shape[2:])
    source = padded(ctx, x, w, shape[2:], const(0, x.dtype))
    kind = "f32" if x.dtype in ("f16", "bf16") else x.dtype

    def fn(idx: list[Index]) -> Expr:
        total = window_fold(ctx, source, w, idx, "add", const(0, kind))
        return (total / count_at(tables, idx[2:]).to(kind)).to(x.dtype)

    ctx.define(shape, x.dtype, fn, int(np.prod(w.kernel)) + 6)


@op("LpPool")
def lp_pool(ctx: Context) -> None:
    x, shape, p = ctx.input(), ctx.out_shape(), int(ctx.attr("p", 2))
    w = window(ctx, ctx.ints("kernel_shape"))
    source = padded(ctx, x, w, shape[2:], const(0, x.dtype))

    def element(e: Expr) -> Expr:
        a = call("fabs", e)
        return a if p == 1 else a * a if p == 2 else m.power(a, const(float(p), a.dtype))

    def fn(idx: list[Index]) -> Expr:
        return _root(window_fold(ctx, source, w, idx, "add", const(0, x.dtype), element), p).to(x.dtype)

    ctx.define(shape, x.dtype, fn, 4 * int(np.prod(w.kernel)))


def _root(e: Expr, p: int) -> Expr:
    return e if p == 1 else call("sqrt", e) if p == 2 else m.power(e, const(1.0 / p, e.dtype))


@op("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(ctx: Context) -> None:
    x, name = ctx.input(), ctx.node.op
    axes = list(range(2, x.rank))
    kind = "f32" if x.dtype in ("f16", "bf16") else x.dtype
    if kind not in FLOATS:
        raise ctx.unsupported(f"input type {x.dtype}", "float types")
    if name == "GlobalMaxPool":
        y = reduced(ctx, x, axes, "max", lowest(kind))
    elif name == "GlobalLpPool":
        p = int(ctx.attr("p", 2))
        element = lambda e: e * e if p == 2 else m.power(call("fabs", e), const(float(p), kind))
        y = reduced(ctx, x, axes, "add", const(0, kind), element, lambda e: _root(e, p))
    else:
        n = math.prod(x.shape[2:])
        y = reduced(ctx, x, axes, "add", const(0, kind), finish=lambda e: e / n)
    ctx.bind(ctx.lazy(y.shape, x.dtype, lambda idx: ctx.read(y, idx).to(x.dtype), y.cost))
