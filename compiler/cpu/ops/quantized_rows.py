"""Quantised operators over rows or planes of values: Softmax and norms."""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.cpu.expr import Dynamic, Expr, Index, const, int_range, select
from tilewright.compiler.cpu.ops.normalization import normalised, normalised_planes, rms_normalised, scaled_by_channel
from tilewright.compiler.cpu.ops.quantization import saturate
from tilewright.compiler.cpu.ops.quantized import scalar
from tilewright.compiler.cpu.ops.reduction import lowest, reduced
from tilewright.compiler.cpu.ops.rules import quantized
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.graph.ops.norm import QNorm, QPlaneNorm
from tilewright.compiler.graph.ops.softmax import QSoftmax
from tilewright.isa import numerics


@quantized(QSoftmax)
def q_softmax(ctx: Context, op: QSoftmax) -> None:
    """Computes exponentials by a table of the 256 distances to the maximum: float32 equal to onnxruntime's where the op
    has `levels`, else float64, so that the result is correctly rounded.
    """
    x, dtype = ctx.stored(ctx.input()), ctx.out_dtype()
    (given, _), (sy, zy) = scalar(ctx, ctx.node.inputs[0]), scalar(ctx, ctx.node.outputs[0])
    sx = op.step(given)
    axis, levels = op.axis % x.rank, op.levels
    low, high = int_range(dtype)
    exact = levels is None
    kind = "f64" if exact else "f32"
    values = np.exp(-np.arange(256) * np.float64(sx)) if exact else numerics.softmax_exponentials(sx, x.shape[axis])
    table = ctx.constant(values)
    top = ctx.stored(reduced(ctx, x, [axis], "max", lowest(x.dtype)))
    flat = lambda idx: [Index(0) if k == axis else i for k, i in enumerate(idx)]

    def exponential(idx: list[Index]) -> Expr:
        d = ctx.read(top, flat(idx)).to("i64") - ctx.read(x, idx).to("i64")
        return ctx.read(table, [Index.of(Dynamic(d, 0, 255))])

    e = ctx.lazy(x.shape, kind, exponential, 4)
    total = ctx.stored(reduced(ctx, e, [axis], "add", const(0.0, kind), strict=not exact))

    def rounded(idx: list[Index]) -> Expr:
        return saturate(exponential(idx) / ctx.read(total, flat(idx)) / float(sy), zy, dtype, low, high)

    def scaled(idx: list[Index], factor: float, overflows: bool) -> Expr:
        y = exponential(idx) * factor / ctx.read(total, flat(idx))
        made = saturate(y, zy, dtype, low, high)
        if not overflows:
            return made
        return select(y < const(math.inf, kind), made, const(numerics.softmax_overflow(zy, low, high), dtype))

    if levels is None:
        ctx.define(x.shape, dtype, rounded, 8)
        return
    factor, overflows = levels, float(values[0]) * levels > float(np.finfo(np.float32).max)
    ctx.define(x.shape, dtype, lambda idx: scaled(idx, factor, overflows), 8)


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
