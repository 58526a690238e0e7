"""Reads at run-time positions: GridSample, DeformConv, Col2Im, MaxUnpool."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tilewright.compiler.cpu.expr import (
    Dynamic,
    Expr,
    Index,
    Var,
    call,
    clamp,
    const,
    guard,
    index_value,
    linear,
    maximum,
    minimum,
    reduce,
    select,
    unravel,
)
from tilewright.compiler.cpu.ir.writer import i64
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.ops.elementwise import HALVES, widen
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value

CUBIC = -0.75


def _reflect(x: Expr, low: float, high: float) -> Expr:
    """Folds x into [low, high] by reflection at both ends."""
    span = high - low
    if span <= 0:
        return const(0.0, x.dtype)
    d = call("fabs", x - low)
    turns = call("floor", d / span)
    rest = d - turns * span
    odd = call("floor", turns * 0.5) * 2.0
    return select(turns.eq(odd), rest + low, high - rest)


def _weights(mode: str, x: Expr) -> list[tuple[Expr, Expr]]:
    """(position, weight) of the taps along one dimension."""
    one = const(1.0, x.dtype)
    if mode == "nearest":
        return [(call("roundeven", x), one)]
    base = call("floor", x)
    t = x - base
    if mode == "linear":
        return [(base, 1.0 - t), (base + 1.0, t)]
    taps = []
    for k in range(-1, 3):
        d = call("fabs", t - float(k))
        if k in (0, 1):
            w = ((CUBIC + 2.0) * d - (CUBIC + 3.0)) * d * d + 1.0
        else:
            w = ((CUBIC * d - 5.0 * CUBIC) * d + 8.0 * CUBIC) * d - 4.0 * CUBIC
        taps.append((base + float(k), w))
    return taps


@op("GridSample")
def grid_sample(ctx: Context) -> None:
    x, grid = ctx.stored(ctx.input(0)), ctx.stored(ctx.input(1))
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(ctx.attr("mode", "linear"), ctx.attr("mode", "linear"))
    padding, aligned = ctx.attr("padding_mode", "zeros"), bool(ctx.attr("align_corners", 0))
    if mode not in ("linear", "nearest", "cubic") or padding not in ("zeros", "border", "reflection"):
        raise ctx.unsupported(
            f"mode={mode!r}, padding_mode={padding!r}", "linear, nearest, cubic; zeros, border, reflection"
        )
    spatial = x.shape[2:]
    rank = len(spatial)

    def fn(idx: list[Index]) -> Expr:
        n, c, *position = idx
        taps: list[list[tuple[Expr, Expr]]] = []
        for d, size in enumerate(spatial):
            g = widen(ctx.read(grid, [n, *position, Index(rank - 1 - d)]))
            at = (g + 1.0) * ((size - 1) / 2) if aligned else ((g + 1.0) * float(size) - 1.0) * 0.5
            low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
            if mode == "nearest":
                at = call("roundeven", at)
            # A border is repeated by clamping each tap below, not the position: onnxruntime's cubic needs that.
            if padding == "reflection":
                at = select((at < low) | (at > high), _reflect(at, low, high), at)
            taps.append(_weights(mode, at))
        total: Expr | None = None
        for choice in itertools.product(*taps):
            inside: Expr = const(1, "b")
            where, weight = [], None
            for (p, w), size in zip(choice, spatial):
                if padding == "reflection":
                    p = _reflect(p, 0.0, size - 1.0) if aligned else _reflect(p, -0.5, size - 0.5)
                    p = call("roundeven", p)
                inside = inside & (p >= 0.0) & (p <= size - 1.0)
                # Clamped again as an integer: a NaN in the grid must not become an address.
                i = maximum(minimum(clamp(p, 0.0, size - 1.0).to("i64"), size - 1), 0)
                where.append(Index.of(Dynamic(i, 0, size - 1)))
                weight = w if weight is None else weight * w
            assert weight is not None
            v = widen(ctx.read(x, [n, c, *where])).to(weight.dtype)
            v = (select(inside, v, 0.0) if padding == "zeros" else v) * weight
            total = v if total is None else total + v
        assert total is not None
        return total.to(x.dtype)

    ctx.define(ctx.out_shape(), x.dtype, fn, 100)


@op("DeformedColumns")
def deformed_columns(ctx: Context) -> None:
    """Writes the columns of a deformable convolution [N, C, taps, positions]: x at positions moved by offsets, bilinear
    with zeros around, times the mask.
    """
    x, offset = ctx.stored(ctx.input(0)), ctx.stored(ctx.input(1))
    mask = ctx.stored(ctx.input(2)) if ctx.has(2) else None
    kernel, strides, pads, dilations = (ctx.ints(k) for k in ("kernel_shape", "strides", "pads", "dilations"))
    groups = int(ctx.attr("offset_group", 1))
    n, channels, height, width = x.shape
    taps, (rows, columns) = math.prod(kernel), offset.shape[2:]
    per_group = channels // groups
    moves = Value((n, groups, taps, 2, rows, columns), offset.dtype, offset.buffer)
    weights = Value((n, groups, taps, rows, columns), mask.dtype, mask.buffer) if mask is not None else None
    shape = (n, channels, taps, rows, columns)
    kind = "f32" if x.dtype in HALVES else x.dtype

    def fn(idx: list[Index]) -> Expr:
        b, c, tap, *place = unravel(linear(idx, ctx.out_shape()), shape)
        group = c // per_group
        ends: list[list[tuple[Index, Expr]]] = []
        for d, size in enumerate((height, width)):
            start = place[d] * strides[d] - pads[d] + (tap // kernel[1] if d == 0 else tap % kernel[1]) * dilations[d]
            move = widen(ctx.read(moves, [b, group, tap, Index(d), *place]))
            at = index_value(start).to(kind) + move.to(kind)
            low = call("floor", at)
            ends.append([])
            for step, weight in ((0.0, low + 1.0 - at), (1.0, at - low)):
                p = low + step
                inside = (p >= 0.0) & (p <= size - 1.0)
                whole = maximum(minimum(clamp(p, 0.0, size - 1.0).to("i64"), size - 1), 0)
                ends[d].append((Index.of(Dynamic(whole, 0, size - 1)), select(inside, weight, 0.0)))
        total: Expr | None = None
        for (i, wi), (j, wj) in itertools.product(*ends):
            v = widen(ctx.read(x, [b, c, i, j])) * (wi * wj)
            total = v if total is None else total + v
        assert total is not None
        if weights is not None:
            total = total * widen(ctx.read(weights, [b, group, tap, *place]))
        return total.to(x.dtype)

    ctx.define(ctx.out_shape(), x.dtype, fn, 60)


@op("Col2Im")
def col2im(ctx: Context) -> None:
    """Sums, for each image element, the columns' elements that came from it."""
    x = ctx.stored(ctx.input(0))
    image, block = ctx.const_input(1), ctx.const_input(2)
    assert image is not None and block is not None
    size, kernel = [int(v) for v in image], [int(v) for v in block]
    rank = len(size)
    strides, dilations = ctx.ints("strides", [1] * rank), ctx.ints("dilations", [1] * rank)
    pads = ctx.ints("pads", [0] * (2 * rank))
    assert strides is not None and dilations is not None and pads is not None
    count = [
        (size[d] + pads[d] + pads[rank + d] - dilations[d] * (kernel[d] - 1) - 1) // strides[d] + 1 for d in range(rank)
    ]
    taps = math.prod(kernel)
    columns = Value((x.shape[0], x.shape[1] // taps, *kernel, *count), x.dtype, x.buffer)

    def fn(idx: list[Index]) -> Expr:
        n, c, *position = idx
        variables = [Var.new(k) for k in kernel]
        inside: Expr = const(1, "b")
        at = []
        for d, p in enumerate(position):
            offset = p + pads[d] - Index.of(variables[d]) * dilations[d]
            block = offset // strides[d]
            inside = inside & index_value(offset % strides[d]).eq(0)
            inside = inside & (index_value(block) >= 0) & (index_value(block) < count[d])
            at.append(block)
        e = widen(ctx.read(columns, [n, c, *(Index.of(v) for v in variables), *at]))
        return reduce("add", variables, guard(inside, e, 0), 0).to(x.dtype)

    ctx.define(ctx.out_shape(), x.dtype, fn, 50)


@op("MaxUnpool")
def max_unpool(ctx: Context) -> None:
    """Writes values to the flat positions that MaxPool gave, which count in the size without `output_shape`."""
    x, places, shape = ctx.stored(ctx.input(0)), ctx.stored(ctx.input(1)), ctx.out_shape()
    kernel = ctx.ints("kernel_shape")
    n = len(kernel)
    strides, pads = ctx.ints("strides", [1] * n), ctx.ints("pads", [0] * (2 * n))
    natural = [(s - 1) * strides[d] + kernel[d] - pads[d] - pads[n + d] for d, s in enumerate(x.shape[2:])]
    inferred = (*x.shape[:2], *natural)
    out = ctx.temp(shape, x.dtype)
    variables = out.vars()
    ctx.assign(out, variables, const(0, x.dtype))
    source, index, target = ctx.buffer(x), ctx.buffer(places), ctx.buffer(out)
    remap = inferred != shape
    pieces = [int(np.prod(inferred[k + 1 :])) for k in range(len(inferred))]
    steps = [int(np.prod(shape[k + 1 :])) for k in range(len(shape))]

    def write(f: Function) -> None:
        with f.loop(0, x.size) as i:
            at = f.read(index, i)
            if remap:
                rest, to = at, i64(0)
                for piece, step in zip(pieces, steps):
                    q = f.binary("sdiv", rest, piece)
                    rest = f.sub(rest, f.mul(q, piece, ""), "")
                    to = f.add(to, f.mul(q, step, ""), "")
                at = to
            low, high = f.icmp("sge", at, 0), f.icmp("slt", at, out.size)
            with f.when(f.and_(low, high)):
                f.write(target, at, f.read(source, i))

    ctx.kernel(write, [out])
    ctx.bind(out)
