"""Gather and scatter families, OneHot, Trilu, and other indexed reads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.compiler.cpu.expr import (
    Dynamic,
    Expr,
    Index,
    const,
    guard,
    index_value,
    linear,
    lookup,
    maximum,
    minimum,
    select,
)
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value


def position(e: Expr, n: int) -> Index:
    """A run-time index into n elements, clamped to the array; negative ones count from the end."""
    if e.op == "const":
        return Index(int(e.value) % max(n, 1))
    i = e.to("i64")
    i = select(i < 0, i + n, i)
    return Index.of(Dynamic(maximum(minimum(i, max(n - 1, 0)), 0), 0, max(n - 1, 0)))


@op("Gather")
def gather(ctx: Context) -> None:
    x, at = ctx.stored(ctx.input(0)), ctx.input(1)
    axis = ctx.axis(0, x.rank)

    def fn(idx: list[Index]) -> Expr:
        head, mid, tail = idx[:axis], idx[axis : axis + at.rank], idx[axis + at.rank :]
        return ctx.read(x, [*head, position(ctx.read(at, mid), x.shape[axis]), *tail])

    ctx.define(ctx.out_shape(), x.dtype, fn, at.cost + 4)


@op("GatherElements")
def gather_elements(ctx: Context) -> None:
    x, at = ctx.stored(ctx.input(0)), ctx.input(1)
    axis = ctx.axis(0, x.rank)

    def fn(idx: list[Index]) -> Expr:
        i = position(ctx.read(at, idx), x.shape[axis])
        return ctx.read(x, [*idx[:axis], i, *idx[axis + 1 :]])

    ctx.define(ctx.out_shape(), x.dtype, fn, at.cost + 4)


@op("GatherND")
def gather_nd(ctx: Context) -> None:
    x, at = ctx.stored(ctx.input(0)), ctx.stored(ctx.input(1))
    batch = int(ctx.attr("batch_dims", 0))
    depth = at.shape[-1]

    def fn(idx: list[Index]) -> Expr:
        head, tail = idx[: at.rank - 1], idx[at.rank - 1 :]
        where = [position(ctx.read(at, [*head, Index(k)]), x.shape[batch + k]) for k in range(depth)]
        return ctx.read(x, [*head[:batch], *where, *tail])

    ctx.define(ctx.out_shape(), x.dtype, fn, 6)


def _combine(ctx: Context, how: str, dtype: str) -> str | None:
    """The reduction that joins updates with the stored elements; None replaces them."""
    kinds = {"none": None, "add": "add", "mul": "mul", "max": "max", "min": "min"}
    if how not in kinds:
        raise ctx.unsupported(f"reduction={how!r}", ", ".join(kinds))
    if kinds[how] and dtype in ("f16", "bf16", "b"):
        raise ctx.unsupported(f"reduction={how!r} of {dtype}", "float32, float64 and integers")
    return kinds[how]


def _scatter(ctx: Context, x: Value, updates: Value, target_of: Callable[[list[Index]], list[Index]]) -> None:
    """Copies x, unless it is in place already, then writes every update in order, by the node's `reduction`."""
    variables = updates.vars()
    out = ctx.temp(x.shape, x.dtype)
    if ctx.node.outputs[0] not in ctx.in_place:
        variables_x = x.vars()
        ctx.assign(out, variables_x, ctx.read(x, [Index.of(v) for v in variables_x]))
    ctx.buffer(updates)
    combine = _combine(ctx, ctx.attr("reduction", "none"), x.dtype)
    target = ctx.buffer(out)
    value = ctx.read(updates, [Index.of(v) for v in variables])
    offset = linear(target_of([Index.of(v) for v in variables]), x.shape)

    def write(f: Function) -> None:
        with f.loops(variables):
            at, v = f.index(offset), f.value(value)
            if combine:
                v = f.fold(combine, x.dtype, f.read(target, at), v, True)
            f.write(target, at, v)

    ctx.kernel(write, [out])
    ctx.bind(out)


@op("ScatterElements", "Scatter")
def scatter_elements(ctx: Context) -> None:
    x, at, updates = ctx.input(0), ctx.stored(ctx.input(1)), ctx.input(2)
    axis = ctx.axis(0, x.rank)

    def target(idx: list[Index]) -> list[Index]:
        return [*idx[:axis], position(ctx.read(at, idx), x.shape[axis]), *idx[axis + 1 :]]

    _scatter(ctx, x, updates, target)


@op("TensorScatter")
def tensor_scatter(ctx: Context) -> None:
    """Replaces rows of `axis` in a cache, from a start per batch on; with mode "circular" they wrap around its end."""
    past, update = ctx.input(0), ctx.stored(ctx.input(1))
    starts = ctx.stored(ctx.input(2)) if ctx.has(2) else None
    mode = ctx.attr("mode", "linear")
    if mode not in ("linear", "circular"):
        raise ctx.unsupported(f"mode={mode!r}", "'linear', 'circular'")
    axis = ctx.axis(-2, past.rank)
    size, count = past.shape[axis], update.shape[axis]
    if ctx.node.outputs[0] in ctx.in_place:

        def target(idx: list[Index]) -> list[Index]:
            row = index_value(idx[axis])
            if starts is not None:
                row = row + ctx.read(starts, [idx[0]]).to("i64")
            if mode == "circular":
                row = Expr("rem", (row, const(size, "i64")), "i64")
            return [*idx[:axis], position(row, size), *idx[axis + 1 :]]

        _scatter(ctx, past, update, target)
        return
    past = ctx.stored(past)

    def fn(idx: list[Index]) -> Expr:
        row = index_value(idx[axis])
        if starts is not None:
            row = row - ctx.read(starts, [idx[0]]).to("i64")
        if mode == "circular":
            row = Expr("rem", (row, const(size, "i64")), "i64")
            row = select(row < 0, row + size, row)
        at = Index.of(Dynamic(maximum(minimum(row, count - 1), 0), 0, max(count - 1, 0)))
        new = ctx.read(update, [*idx[:axis], at, *idx[axis + 1 :]])
        return guard((row >= 0) & (row < count), new, ctx.read(past, idx))

    ctx.define(ctx.out_shape(), past.dtype, fn, 6)


@op("ScatterND")
def scatter_nd(ctx: Context) -> None:
    x, at, updates = ctx.input(0), ctx.stored(ctx.input(1)), ctx.input(2)
    depth = at.shape[-1]

    def target(idx: list[Index]) -> list[Index]:
        head, tail = idx[: at.rank - 1], idx[at.rank - 1 :]
        return [*(position(ctx.read(at, [*head, Index(k)]), x.shape[k]) for k in range(depth)), *tail]

    _scatter(ctx, x, updates, target)


@op("OneHot")
def one_hot(ctx: Context) -> None:
    at, values, shape = ctx.input(0), ctx.stored(ctx.input(2)), ctx.out_shape()
    axis = ctx.axis(-1, len(shape))
    depth = shape[axis]

    def fn(idx: list[Index]) -> Expr:
        i = ctx.read(at, [*idx[:axis], *idx[axis + 1 :]]).to("i64")
        i = select(i < 0, i + depth, i)
        hit = i.eq(index_value(idx[axis]))
        return select(hit, ctx.read(values, [Index(1)]), ctx.read(values, [Index(0)]))

    ctx.define(shape, values.dtype, fn, at.cost + 3)


@op("Trilu")
def trilu(ctx: Context) -> None:
    x, upper = ctx.input(0), bool(ctx.attr("upper", 1))
    given = ctx.const_input(1)
    k = 0 if given is None else int(given.reshape(-1)[0])

    def fn(idx: list[Index]) -> Expr:
        distance = index_value(idx[-1] - idx[-2])
        keep = distance >= k if upper else distance <= k
        return select(keep, ctx.read(x, idx), 0)

    ctx.define(x.shape, x.dtype, fn, x.cost + 2)


@op("ReverseSequence")
def reverse_sequence(ctx: Context) -> None:
    x, lengths = ctx.stored(ctx.input(0)), ctx.stored(ctx.input(1))
    batch, time = int(ctx.attr("batch_axis", 1)), int(ctx.attr("time_axis", 0))

    def fn(idx: list[Index]) -> Expr:
        n, t = ctx.read(lengths, [idx[batch]]).to("i64"), index_value(idx[time])
        i = position(select(t < n, n - 1 - t, t), x.shape[time])
        return ctx.read(x, [i if k == time else v for k, v in enumerate(idx)])

    ctx.define(x.shape, x.dtype, fn, 6)


@op("Compress")
def compress(ctx: Context) -> None:
    """Selects slices by a constant condition, as a gather."""
    x, condition = ctx.input(0), ctx.const_input(1)
    assert condition is not None
    keep = np.flatnonzero(condition.reshape(-1)).tolist()
    if ctx.attr("axis") is None:
        source = Value((x.size,), x.dtype, ctx.buffer(x))
        axis = 0
    else:
        source, axis = ctx.stored(x), ctx.axis(None, x.rank)
    at = lambda idx: [lookup(keep, i) if k == axis else i for k, i in enumerate(idx)]
    ctx.define(ctx.out_shape(), x.dtype, lambda idx: ctx.read(source, at(idx)), 2)
