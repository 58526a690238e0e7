"""Pooling over regions given at run time: RoiAlign, MaxRoiPool."""

from __future__ import annotations

from msgspec import Struct

from tilewright.compiler.cpu.expr import (
    Dynamic,
    Expr,
    Index,
    Var,
    call,
    clamp,
    const,
    index_value,
    linear,
    maximum,
    minimum,
    select,
)
from tilewright.compiler.cpu.ir.types import llvm_type
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.ops.elementwise import widen
from tilewright.compiler.cpu.ops.indexing import position
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value


def _bounded(e: Expr, n: int) -> Index:
    """An integral float as an index into n elements, clamped; NaN is the first."""
    i = maximum(minimum(clamp(e, 0.0, n - 1.0).to("i64"), n - 1), 0)
    return Index.of(Dynamic(i, 0, n - 1))


def _count(e: Expr) -> Expr:
    """A number of samples or pixels; one that is not between 0 and 1e6 becomes 0."""
    return select((e > 0.0) & (e < 1e6), e, 0.0).to("i64")


class Pooling(Struct, frozen=True):
    """Regions folded to one element each.

    Attributes:
        out: the result, `out[variables] = finish`.
        variables: loop variables over its elements.
        inner: variables over a region.
        counts: their extents, known when the kernel runs.
        kind: kind of the fold.
        start: initial value of the fold.
        value: the folded expression.
        slot: one element, which holds the fold for `finish`.
        finish: computed from the slot.
    """

    out: Value
    variables: list[Var]
    inner: list[Var]
    counts: list[Expr]
    kind: str
    start: Expr
    value: Expr
    slot: Value
    finish: Expr


def pool(ctx: Context, p: Pooling) -> None:
    """Stages the kernel of a pooling, whose result is the node's."""
    offset = linear([Index.of(v) for v in p.variables], p.out.shape)
    target, total = ctx.buffer(p.out), ctx.buffer(p.slot)

    def write(f: Function) -> None:
        type_ = llvm_type(p.start.dtype)
        with f.loops(p.variables):
            with f.scope():
                sum_ = f.alloca(type_, 1, 8)
                f.store(f.value(p.start), sum_)
                bounds = {v: f.value(c) for v, c in zip(p.inner, p.counts)}
                with f.loops(p.inner, bounds):
                    v = f.value(p.value)
                    f.store(f.fold(p.kind, p.start.dtype, f.load(type_, sum_), v, True), sum_)
                f.write(total, 0, f.load(type_, sum_))
            f.write(target, f.index(offset), f.value(p.finish))

    ctx.kernel(write, [p.out, p.slot])
    ctx.bind(p.out)


@op("RoiAlign")
def roi_align(ctx: Context) -> None:
    """Pools regions: x [N, C, H, W], rois [R, 4] as x1 y1 x2 y2, batch indices [R] -> [R, C, height, width]."""
    x, rois, batches = (ctx.stored(ctx.input(k)) for k in range(3))
    mode, transformation = ctx.attr("mode", "avg"), ctx.attr("coordinate_transformation_mode", "half_pixel")
    if mode not in ("avg", "max") or transformation not in ("half_pixel", "output_half_pixel"):
        raise ctx.unsupported(
            f"mode={mode!r}, coordinate_transformation_mode={transformation!r}",
            "'avg', 'max'; 'half_pixel', 'output_half_pixel'",
        )
    aligned, ratio, scale = (
        transformation == "half_pixel",
        int(ctx.attr("sampling_ratio", 0)),
        float(ctx.attr("spatial_scale", 1.0)),
    )
    out = ctx.temp(ctx.out_shape(), x.dtype)
    kind = "f32" if x.dtype in ("f16", "bf16") else x.dtype
    variables = out.vars()
    r, c, *bins = (Index.of(v) for v in variables)
    taps: list[list[tuple[Index, Expr]]] = []
    counts: list[Expr] = []
    inner = [Var.new(1 << 20) for _ in range(2)]
    inside: Expr = const(1, "b")
    for d in range(2):
        size, pooled = x.shape[2 + d], out.shape[2 + d]
        first, last = (widen(ctx.read(rois, [r, Index(1 - d + k)])) * scale - (0.5 if aligned else 0.0) for k in (0, 2))
        extent = last - first
        if not aligned:
            extent = select(extent > 1.0, extent, 1.0)
        step = extent / float(pooled)
        samples = const(float(ratio), kind) if ratio > 0 else call("ceil", step)
        counts.append(_count(samples))
        sample = index_value(Index.of(inner[d])).to(kind) + 0.5
        at = first + index_value(bins[d]).to(kind) * step + sample * step / samples
        inside = inside & (at >= -1.0) & (at <= float(size))
        at = clamp(at, 0.0, size - 1.0)
        low = call("floor", at)
        part = at - low
        taps.append([(_bounded(low, size), 1.0 - part), (_bounded(low + 1.0, size), part)])
    n = position(ctx.read(batches, [r]), x.shape[0])
    corners = [widen(ctx.read(x, [n, c, i, j])) * (a * b) for i, a in taps[0] for j, b in taps[1]]
    value = corners[0]
    for corner in corners[1:]:
        value = maximum(value, corner) if mode == "max" else value + corner
    value = select(inside, value, 0.0)
    slot = ctx.temp((), kind)
    found = ctx.read(slot, [])
    number = counts[0] * counts[1]
    if mode == "avg":
        finish = found / maximum(number, 1).to(kind)
    else:
        finish = select(number > 0, found, 0.0)
    start = const(0.0 if mode == "avg" else float("-inf"), kind)
    fold = "add" if mode == "avg" else "max"
    pool(ctx, Pooling(out, variables, inner, counts, fold, start, value, slot, finish.to(x.dtype)))


@op("MaxRoiPool")
def max_roi_pool(ctx: Context) -> None:
    """Pools regions: x [N, C, H, W], rois [R, 5] as batch x1 y1 x2 y2, both ends included -> [R, C, height, width]."""
    x, rois = (ctx.stored(ctx.input(k)) for k in range(2))
    scale = float(ctx.attr("spatial_scale", 1.0))
    out = ctx.temp(ctx.out_shape(), x.dtype)
    kind = "f32" if x.dtype in ("f16", "bf16") else x.dtype
    variables = out.vars()
    r, c, *bins = (Index.of(v) for v in variables)
    inner = [Var.new(1 << 20) for _ in range(2)]
    counts, where = [], []
    for d in range(2):
        size, pooled = x.shape[2 + d], out.shape[2 + d]
        first, last = (_round(widen(ctx.read(rois, [r, Index(2 - d + k)])) * scale) for k in (0, 2))
        extent = last - first + 1.0
        step = select(extent > 1.0, extent, 1.0) / float(pooled)
        place = index_value(bins[d]).to(kind)
        low = clamp(call("floor", place * step) + first, 0.0, float(size))
        high = clamp(call("ceil", (place + 1.0) * step) + first, 0.0, float(size))
        counts.append(_count(high - low))
        where.append(_bounded(low + index_value(Index.of(inner[d])).to(kind), size))
    n = position(widen(ctx.read(rois, [r, Index(0)])), x.shape[0])
    value = widen(ctx.read(x, [n, c, *where]))
    slot = ctx.temp((), kind)
    finish = select((counts[0] * counts[1]) > 0, ctx.read(slot, []), 0.0).to(x.dtype)
    start = const(float("-inf"), kind)
    pool(ctx, Pooling(out, variables, inner, counts, "max", start, value, slot, finish))


def _round(e: Expr) -> Expr:
    """Rounds to nearest, ties away from zero."""
    return call("copysign", call("floor", call("fabs", e) + 0.5), e)
