"""Quantised operators over rows or planes of values: Softmax, norms, and a row put into a cache."""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.cpu.expr import Dynamic, Expr, Index, Var, call, const, int_range, linear, select
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.ops.indexing import position
from tilewright.compiler.cpu.ops.normalization import normalised, normalised_planes, rms_normalised, scaled_by_channel
from tilewright.compiler.cpu.ops.quantization import saturate
from tilewright.compiler.cpu.ops.quantized import scalar
from tilewright.compiler.cpu.ops.reduction import lowest, reduced
from tilewright.compiler.cpu.ops.rules import quantized
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value
from tilewright.compiler.graph.ops.norm import QNorm, QPlaneNorm
from tilewright.compiler.graph.ops.put import QPut
from tilewright.compiler.graph.ops.row import QRow
from tilewright.compiler.graph.ops.softmax import QSoftmax
from tilewright.isa import numerics


@quantized(QSoftmax)
def q_softmax(ctx: Context, op: QSoftmax) -> None:
    """Computes in float32 as the op says, exponentials by a table of the 256 distances to the maximum."""
    x, y, dtype = ctx.stored(ctx.input()), ctx.graph.tensor(ctx.node.outputs[0]), ctx.out_dtype()
    (sx, _), (sy, _) = scalar(ctx, ctx.node.inputs[0]), scalar(ctx, ctx.node.outputs[0])
    axis, added = op.axis % x.rank, op.added(y)
    if op.levels is None:
        values = numerics.litert_exponentials(op.step(sx))
    else:
        values = numerics.softmax_exponentials(op.step(sx), x.shape[axis])
    table = ctx.constant(values)
    top = ctx.stored(reduced(ctx, x, [axis], "max", lowest(x.dtype)))
    flat = lambda idx: [Index(0) if k == axis else i for k, i in enumerate(idx)]

    def exponential(idx: list[Index]) -> Expr:
        d = ctx.read(top, flat(idx)).to("i64") - ctx.read(x, idx).to("i64")
        return ctx.read(table, [Index.of(Dynamic(d, 0, 255))])

    e = ctx.lazy(x.shape, "f32", exponential, 4)
    total = ctx.stored(reduced(ctx, e, [axis], "add", const(0.0, "f32"), strict=True))

    def litert(idx: list[Index]) -> Expr:
        return _litert_result(exponential(idx) * (1 / (ctx.read(total, flat(idx)) * float(sy))), added, dtype)

    def onnxruntime(idx: list[Index], factor: float) -> Expr:
        return _onnxruntime_result(
            exponential(idx) * factor / ctx.read(total, flat(idx)), added, dtype, float(values[0]) * factor
        )

    levels = op.levels
    ctx.define(x.shape, dtype, litert if levels is None else lambda idx: onnxruntime(idx, levels), 8)


def _litert_result(steps: Expr, added: int, dtype: str) -> Expr:
    """Rounds float32 steps as LiteRT does, ties away from zero; what is not below 2^31 becomes the lowest integer."""
    low, high = int_range(dtype)
    whole = call("trunc", steps)
    # uint8 has 1/2 added in float32, by which the number before 1/2 becomes 1
    rounded = call("trunc", steps + 0.5) if low == 0 else select(steps - whole >= const(0.5, "f32"), whole + 1, whole)
    most = const(float(high - added), "f32")
    made = (select(rounded < most, rounded, most).to("i32") + added).to(dtype)
    return select(steps < const(2.0**31, "f32"), made, const(low, dtype))


def _onnxruntime_result(steps: Expr, added: int, dtype: str, most: float) -> Expr:
    """Rounds float32 steps as onnxruntime does; `most` is the largest dividend, which may exceed float32."""
    low, high = int_range(dtype)
    made = saturate(steps, added, dtype, low, high)
    if most <= float(np.finfo(np.float32).max):
        return made
    return select(steps < const(math.inf, "f32"), made, const(numerics.softmax_overflow(added, low, high), dtype))


@quantized(QNorm)
def q_norm(ctx: Context, op: QNorm) -> None:
    """Computes the norm in floats, like the ops it was fused from."""
    x, dtype = ctx.input(0), ctx.out_dtype()
    (sx, zx), (sy, zy) = scalar(ctx, ctx.node.inputs[0]), scalar(ctx, ctx.node.outputs[0])
    axes = [x.rank - 1]
    real = ctx.lazy(x.shape, "f32", lambda i: (ctx.read(x, i).to("i32") - zx).to("f32") * float(sx), x.cost + 2)
    if op.centred:
        y = normalised(ctx, real, axes, op.epsilon, scaled_by_channel(ctx))
    else:
        y = rms_normalised(ctx, real, axes, op.epsilon)
    ctx.define(x.shape, dtype, lambda i: saturate(ctx.read(y, i) / float(sy), zy, dtype), y.cost + 6)


@quantized(QPlaneNorm)
def q_plane_norm(ctx: Context, op: QPlaneNorm) -> None:
    """Computes the norm in floats, like the ops it was fused from."""
    x, dtype = ctx.input(0), ctx.out_dtype()
    (sx, zx), (sy, zy) = scalar(ctx, ctx.node.inputs[0]), scalar(ctx, ctx.node.outputs[0])
    real = ctx.lazy(x.shape, "f32", lambda i: (ctx.read(x, i).to("i32") - zx).to("f32") * float(sx), x.cost + 2)
    y = normalised_planes(ctx, real, op.groups, op.epsilon)
    ctx.define(x.shape, dtype, lambda i: saturate(ctx.read(y, i) / float(sy), zy, dtype), y.cost + 6)


@quantized(QPut)
def q_put(ctx: Context, op: QPut) -> None:
    """Writes the rows where they belong, after a copy of the cache unless the result is in its place already."""
    cache, new, row = ctx.input(0), ctx.input(1), ctx.stored(ctx.input(2))
    blocks, length, lanes = cache.shape
    _, heads, count, _ = new.shape
    parts = blocks // heads
    out = ctx.temp(cache.shape, cache.dtype)
    if ctx.node.outputs[0] not in ctx.in_place:
        whole = cache.vars()
        ctx.assign(out, whole, ctx.read(cache, [Index.of(v) for v in whole]))
    ctx.buffer(new)
    target, variables = ctx.buffer(out), [Var.new(n) for n in (heads, parts, count, lanes)]
    head, part, which, lane = map(Index.of, variables)
    value = ctx.read(new, [Index(0), head, which, part * lanes + lane])
    number = Expr("rem", (_each(ctx, row, which).to("i64"), const(length, "i64")), "i64")
    at = position(select(number < 0, number + length, number), length)
    offset = linear([head * parts + part, at, lane], cache.shape)

    def write(f: Function) -> None:
        with f.loops(variables):
            place, v = f.index(offset), f.value(value)
            f.write(target, place, v)

    ctx.kernel(write, [out])
    ctx.bind(out)


@quantized(QRow)
def q_row(ctx: Context, op: QRow) -> None:
    """Reads the rows that the input names, the last one for what lies behind it."""
    table, value = ctx.stored(ctx.input(0)), ctx.stored(ctx.input(1))

    def element(idx: list[Index]) -> Expr:
        one = idx if ctx.graph.tensor(ctx.node.inputs[1]).size == 1 else [*idx[:-2], Index(0), idx[-1]]
        return ctx.read(table, [position(_each(ctx, value, idx[-2]), table.shape[0]), *one])

    ctx.define(ctx.out_shape(), table.dtype, element, 4)


def _each(ctx: Context, values: Value, which: Index) -> Expr:
    """One of the values of an input, the only one if it has no more."""
    last = max((axis for axis, size in enumerate(values.shape) if size > 1), default=None)
    return ctx.read(values, [which if axis == last else Index(0) for axis in range(values.rank)])
