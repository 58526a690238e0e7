"""Kernels of the quantised operators (`tilewright.compiler.graph.ops`), by `tilewright.isa.numerics`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.compiler.cpu.expr import Buffer, Dynamic, Expr, Index, call, clamp, const, fma, load, lookup, select
from tilewright.compiler.cpu.ops.convolution import padded, window
from tilewright.compiler.cpu.ops.integer import conv_sums, fixed, matmul_sums, transposed_sums_integer
from tilewright.compiler.cpu.ops.movement import concatenate, take
from tilewright.compiler.cpu.ops.pooling import count_at, counts, inside, window_fold
from tilewright.compiler.cpu.ops.quantization import saturate
from tilewright.compiler.cpu.ops.reduction import lowest, reduced
from tilewright.compiler.cpu.ops.rules import quantized
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import ElementFn, Value
from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.ops.convolution import QConv, QConvTranspose
from tilewright.compiler.graph.ops.elementwise import AddConstants, QAdd, QLut, QMul
from tilewright.compiler.graph.ops.interpolate import Places, QInterpolate
from tilewright.compiler.graph.ops.pooling import QAveragePool, QGlobalAveragePool, QMaxPool
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.quantized_op import Clamped
from tilewright.compiler.graph.ops.take import QTake
from tilewright.isa import numerics


def quant(ctx: Context, name: str) -> Quant:
    q = ctx.graph.tensors[name].quant
    assert q is not None, name
    return q


def scalar(ctx: Context, name: str) -> tuple[np.float32, int]:
    q = quant(ctx, name)
    assert q.scale.size == 1, name
    return np.float32(q.scale.reshape(())), int(q.zero_point.reshape(()))


def requantise(acc: Expr, scale: Expr, zero: int, dtype: str, limits: tuple[int, int]) -> Expr:
    """The requantised value `sat(RNE(f32(f32(acc) * s)) + zy)`."""
    return saturate(acc.to("f32") * scale, zero, dtype, *limits)


def limits_of(ctx: Context, op: Clamped) -> tuple[int, int]:
    """The clamp of the current node's result."""
    return op.limits(ctx.graph.tensor(ctx.node.outputs[0]).dtype)


def _scales(ctx: Context, x: str, w: str) -> Value:
    """The requantisation scales as a value of shape () or [channels]."""
    (sx, _), (sy, _) = scalar(ctx, x), scalar(ctx, ctx.node.outputs[0])
    return ctx.constant(np.asarray(numerics.product_scale(sx, quant(ctx, w).scale, sy), np.float32))


def _finish(ctx: Context, op: Clamped, sums: Value, axis: int) -> None:
    """Defines the output from sums by bias and requantisation; channels along `axis` of the output."""
    x, w = ctx.node.inputs[:2]
    limits = limits_of(ctx, op)
    zy, dtype = scalar(ctx, ctx.node.outputs[0])[1], ctx.out_dtype()
    scales = _scales(ctx, x, w)
    bias = ctx.input(2) if ctx.has(2) else None

    def at(v: Value, idx: list[Index]) -> list[Index]:
        return [Index(0)] * v.rank if v.size == 1 else [idx[axis]]

    def fn(idx: list[Index]) -> Expr:
        acc = ctx.read(sums, idx)
        if bias is not None:
            acc = acc + ctx.read(bias, at(bias, idx))
        return requantise(acc, ctx.read(scales, at(scales, idx)), zy, dtype, limits)

    ctx.define(sums.shape, dtype, fn, sums.cost + 6)


def _weights(ctx: Context) -> np.ndarray:
    data = ctx.const_input(1)
    assert data is not None
    return data


@quantized(QConv)
def q_conv(ctx: Context, op: QConv) -> None:
    x, weights = ctx.input(0), ctx.input(1)
    data, zw = _weights(ctx), quant(ctx, ctx.node.inputs[1]).zero_point
    zx = scalar(ctx, ctx.node.inputs[0])[1]
    w = window(ctx, op.kernel)
    _finish(ctx, op, conv_sums(ctx, x, weights, data, fixed(zx), zw, w, ctx.out_shape(), op.group), 1)


@quantized(QConvTranspose)
def q_conv_transpose(ctx: Context, op: QConvTranspose) -> None:
    x, data = ctx.input(0), _weights(ctx)
    zx, zw = scalar(ctx, ctx.node.inputs[0])[1], quant(ctx, ctx.node.inputs[1]).zero_point
    _finish(ctx, op, transposed_sums_integer(ctx, x, data, zx, zw, ctx.out_shape(), op.group), 1)


@quantized(QMatMul)
def q_matmul(ctx: Context, op: QMatMul) -> None:
    a, b = ctx.input(0), ctx.input(1)
    data, qb = ctx.graph.const(ctx.node.inputs[1]), quant(ctx, ctx.node.inputs[1])
    za = scalar(ctx, ctx.node.inputs[0])[1]
    if np.all(qb.zero_point == qb.zero_point.reshape(-1)[0]):
        zb = fixed(int(qb.zero_point.reshape(-1)[0]))
    else:
        zeros = ctx.constant(qb.zero_point)
        zb = lambda idx: ctx.read(zeros, [idx[-1]])
    if a.rank < 2 or b.rank < 2:
        raise ctx.unsupported(f"operands of rank {a.rank} and {b.rank}", "rank 2 and above")
    _finish(ctx, op, matmul_sums(ctx, a, b, data, fixed(za), zb, ctx.out_shape()), -1)


def _types(ctx: Context) -> list[tuple[np.float32, int]]:
    """The scale and zero point of both operands and the result."""
    return [scalar(ctx, name) for name in (*ctx.node.inputs, ctx.node.outputs[0])]


def _define_pair(ctx: Context, fn: Callable[[Expr, Expr], Expr], cost: int = 5) -> None:
    """Defines the result as a function of the bytes of two operands, with broadcasting."""
    a, b = ctx.input(0), ctx.input(1)
    of = lambda idx: fn(ctx.read_broadcast(a, idx), ctx.read_broadcast(b, idx))
    ctx.define(ctx.out_shape(), ctx.out_dtype(), of, a.cost + b.cost + cost)


@quantized(QAdd)
def q_add(ctx: Context, op: QAdd) -> None:
    """Defines `sat(RNE(fma(a, ra, fma(b, rb, fx))))`, the zero point in fx; integers where the node has constants."""
    limits, dtype = limits_of(ctx, op), ctx.out_dtype()
    if op.constants is not None:
        _add_integers(ctx, op.constants, limits)
        return
    if op.floats:
        _in_floats(ctx, op, lambda a, b: a + b)
        return
    (sa, za), (sb, zb), (sy, zy) = _types(ctx)
    ra, rb = np.float32(sa / sy), np.float32(sb / sy)
    fx = np.float32(np.float32(zy) - numerics.fma32(ra, np.float32(za), np.float32(rb * np.float32(zb))))

    def fn(a: Expr, b: Expr) -> Expr:
        return saturate(fma(a.to("f32"), float(ra), fma(b.to("f32"), float(rb), float(fx))), 0, dtype, *limits)

    _define_pair(ctx, fn)


def _add_integers(ctx: Context, k: AddConstants, limits: tuple[int, int]) -> None:
    """Defines `clamp((a*ma + b*mb + c) >> shift)`."""
    wide = "i32" if 255 * (abs(k.ma) + abs(k.mb)) + abs(k.c) < 1 << 31 else "i64"
    dtype = ctx.out_dtype()

    def fn(a: Expr, b: Expr) -> Expr:
        total = a.to(wide) * const(k.ma, wide) + b.to(wide) * const(k.mb, wide) + const(k.c, wide)
        return clamp(total.shr(k.shift), *limits).to(dtype)

    _define_pair(ctx, fn)


def _in_floats(ctx: Context, op: Clamped, combine: Callable[[Expr, Expr], Expr]) -> None:
    """Defines `sat(RNE(f32(combine(f32((a-za) * sa), f32((b-zb) * sb)) / sy)) + zy)`."""
    (sa, za), (sb, zb), (sy, zy) = _types(ctx)
    limits, dtype = limits_of(ctx, op), ctx.out_dtype()

    def fn(a: Expr, b: Expr) -> Expr:
        left, right = ((x.to("i32") - z).to("f32") * float(s) for x, s, z in ((a, sa, za), (b, sb, zb)))
        return saturate(combine(left, right) / float(sy), zy, dtype, *limits)

    _define_pair(ctx, fn, 8)


@quantized(QMul)
def q_mul(ctx: Context, op: QMul) -> None:
    if op.floats:
        _in_floats(ctx, op, lambda a, b: a * b)
        return
    (sa, za), (sb, zb), (sy, zy) = _types(ctx)
    s, limits, dtype = float(numerics.product_scale(sa, sb, sy)), limits_of(ctx, op), ctx.out_dtype()

    def fn(a: Expr, b: Expr) -> Expr:
        p = (a.to("i32") - za) * (b.to("i32") - zb)
        if op.zero_point_after:
            return requantise(p, const(s, "f32"), zy, dtype, limits)
        return saturate(p.to("f32") * s + float(zy), 0, dtype, *limits)

    _define_pair(ctx, fn)


@quantized(QMaxPool)
def q_max_pool(ctx: Context, op: QMaxPool) -> None:
    x, shape = ctx.input(), ctx.out_shape()
    w = window(ctx, op.kernel)
    source = padded(ctx, x, w, shape[2:], lowest(x.dtype))
    cost = max(int(np.prod(w.kernel)), 3)
    ctx.define(shape, x.dtype, lambda idx: window_fold(ctx, source, w, idx, "max", lowest(x.dtype)), cost)


def _half_away(total: Expr, count: Expr, dtype: str, limits: tuple[int, int]) -> Expr:
    """The quotient total / count, ties away from zero; float64 separates such small quotients from ties."""
    mean = total.to("f64") / count
    rounded = select(mean < const(0.0, "f64"), call("ceil", mean - 0.5), call("floor", mean + 0.5))
    return clamp(rounded.to("i32"), *limits).to(dtype)


@quantized(QAveragePool)
def q_average_pool(ctx: Context, op: QAveragePool) -> None:
    """Averages in the float order of onnxruntime: dequantised taps are summed one after the other."""
    x, shape, dtype = ctx.input(), ctx.out_shape(), ctx.out_dtype()
    (sx, zx), (sy, zy) = scalar(ctx, ctx.node.inputs[0]), scalar(ctx, ctx.node.outputs[0])
    limits = limits_of(ctx, op)
    tables = counts(window(ctx, op.kernel), x.shape[2:], shape[2:], op.count_include_pad)
    w = inside(window(ctx, op.kernel), x.shape[2:], shape[2:])
    source = padded(ctx, x, w, shape[2:], const(0 if op.half_away else zx, x.dtype))
    if op.half_away:

        def whole(idx: list[Index]) -> Expr:
            total = window_fold(ctx, source, w, idx, "add", const(0, "i32"), lambda q: q.to("i32"))
            return _half_away(total, count_at(tables, idx[2:]).to("f64"), dtype, limits)

        ctx.define(shape, dtype, whole, 2 * int(np.prod(w.kernel)) + 10)
        return

    def fn(idx: list[Index]) -> Expr:
        element = lambda q: (q.to("i32") - zx).to("f32") * float(sx)
        total = window_fold(ctx, source, w, idx, "add", const(0.0, "f32"), element, strict=True)
        mean = total / count_at(tables, idx[2:]).to("f32")
        return saturate(mean / float(sy) + float(zy), 0, dtype, *limits)

    ctx.define(shape, dtype, fn, 2 * int(np.prod(w.kernel)) + 10)


@quantized(QGlobalAveragePool)
def q_global_average_pool(ctx: Context, op: QGlobalAveragePool) -> None:
    x, dtype = ctx.input(), ctx.out_dtype()
    (sx, zx), (sy, zy) = scalar(ctx, ctx.node.inputs[0]), scalar(ctx, ctx.node.outputs[0])
    n, limits = math.prod(x.shape[2:]), limits_of(ctx, op)
    if op.half_away:
        whole = reduced(ctx, x, list(range(2, x.rank)), "add", const(0, "i32"), lambda e: e.to("i32"))
        rounded = lambda idx: _half_away(ctx.read(whole, idx), const(float(n), "f64"), dtype, limits)
        ctx.alias(ctx.lazy(whole.shape, dtype, rounded, whole.cost + 5), ctx.out_shape())
        return
    given, offset = op.factor, op.offset
    if given is not None and offset is not None:
        whole = reduced(ctx, x, list(range(2, x.rank)), "add", const(0, "i32"), lambda e: e.to("i32"))

        def mean(idx: list[Index]) -> Expr:
            return saturate(ctx.read(whole, idx).to("f32") * given + offset, 0, dtype, *limits)

        ctx.alias(ctx.lazy(whole.shape, dtype, mean, whole.cost + 5), ctx.out_shape())
        return
    s = const(float(numerics.mean_scale(sx, sy, n) if given is None else given), "f32")
    sums = reduced(ctx, x, list(range(2, x.rank)), "add", const(0, "i32"), lambda e: e.to("i32"), lambda e: e - n * zx)
    y = ctx.lazy(sums.shape, dtype, lambda idx: requantise(ctx.read(sums, idx), s, zy, dtype, limits), sums.cost + 5)
    ctx.alias(y, ctx.out_shape())


def look_up(table: bytes, q: Expr, dtype: str) -> Expr:
    """The table entry table[raw byte] as `dtype`."""
    view = np.frombuffer(table, {"i8": np.int8, "u8": np.uint8}[dtype])
    i = Dynamic(q.to("u8").to("i64"), 0, 255)
    return load(Buffer("", dtype, 256, "baked", view), Index.of(i))


@quantized(QLut)
def q_lut(ctx: Context, op: QLut) -> None:
    x, dtype = ctx.input(), ctx.out_dtype()
    ctx.define(ctx.out_shape(), dtype, lambda idx: look_up(op.table, ctx.read(x, idx), dtype), x.cost + 3)


@quantized(QConcat)
def q_concat(ctx: Context, op: QConcat) -> None:
    values, dtype = [], ctx.out_dtype()
    for v, table in zip(ctx.inputs(), op.tables, strict=True):
        if table is None:
            values.append(v)
            continue

        def fn(idx: list[Index], v: Value = v, table: bytes = table) -> Expr:
            return look_up(table, ctx.read(v, idx), dtype)

        values.append(ctx.lazy(v.shape, dtype, fn, v.cost + 3))
    concatenate(ctx, values, op.axis % values[0].rank, ctx.out_shape())


@quantized(QTake)
def q_take(ctx: Context, op: QTake) -> None:
    x = ctx.input()
    take(ctx, x, x.cost + 1)


@quantized(QInterpolate)
def q_interpolate(ctx: Context, op: QInterpolate) -> None:
    """Interpolates rows first, whose sums are stored, then columns, with one rounding; channels are last, so that
    neighbours of every element lie side by side.
    """
    x, (n, c, h, w) = ctx.input(), ctx.out_shape()
    kind = "i16" if 256 * op.rows.one < 1 << 16 else "i32"  # that the sums of rows fit

    def between(places: Places, axis: int, source: Value, kind: str) -> ElementFn:
        shares = ctx.constant(np.array(places.shares, np.int16))

        def fn(idx: list[Index]) -> Expr:
            sides = [[*idx[:axis], lookup(list(t), idx[axis]), *idx[axis + 1 :]] for t in (places.first, places.second)]
            a, b = (ctx.read(source, at).to(kind) for at in sides)
            share = ctx.read(shares, [idx[axis] if shares.size > 1 else Index(0)]).to(kind)
            return a * places.one + (b - a) * share

        return fn

    source = ctx.stored(
        ctx.lazy((n, *x.shape[2:], c), x.dtype, lambda idx: ctx.read(x, [idx[0], idx[3], idx[1], idx[2]]))
    )
    down = ctx.stored(ctx.lazy((n, h, x.shape[3], c), kind, between(op.rows, 1, source, kind), 4))
    whole = op.rows.one * op.columns.one
    wide = "i16" if 256 * whole < 1 << 16 else "i32"
    across, shift, half = between(op.columns, 2, down, wide), whole.bit_length() - 1, whole // 2
    zero = scalar(ctx, ctx.node.inputs[0])[1]

    def rounded_sum(idx: list[Index]) -> Expr:
        total = across(idx)
        if whole == 1:
            return total
        odd = ((total.shr(shift) - zero) & 1) - 1 if op.to_even else const(0, wide)  # -1: what rounds a tie down
        return (total + half + odd).shr(shift)

    rounded = ctx.stored(ctx.lazy((n, h, w, c), x.dtype, lambda idx: rounded_sum(idx).to(x.dtype), 6))
    ctx.define(ctx.out_shape(), x.dtype, lambda idx: ctx.read(rounded, [idx[0], idx[2], idx[3], idx[1]]), 1)
