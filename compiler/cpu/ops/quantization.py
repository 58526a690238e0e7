"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, and the requantiser shared by the quantised operators."""

from __future__ import annotations

from compiler.cpu.expr import (
    FLOATS,
    Expr,
    Index,
    call,
    clamp,
    const,
    int_range,
    linear,
    load,
    maximum,
    minimum,
    reduce,
    select,
)
from compiler.cpu.expr.small_types import convert, is_small_float, round_through
from compiler.cpu.ops.elementwise import widen
from compiler.cpu.ops.rules import op
from compiler.cpu.stages.context import Context
from compiler.cpu.stages.value import Value


def saturate(x: Expr, zero_point: Expr | int, dtype: str, low: int | None = None, high: int | None = None) -> Expr:
    """`sat(RNE(x) + zero_point)` for a float `x`: clamps before converting, so that the conversion is exact."""
    lo, hi = int_range(dtype)
    lo, hi = lo if low is None else max(lo, low), hi if high is None else min(hi, high)
    zero = zero_point.to("i32") if isinstance(zero_point, Expr) else const(int(zero_point), "i32")
    r = call("roundeven", x)
    if dtype in ("i32", "u32"):
        return clamp(r.to("f64") + zero.to("f64"), lo, hi).to("i64").to(dtype)
    z = zero.to(x.dtype)
    # maximum first with the constant second: NaN becomes the lower bound as on x86.
    r = select(r > const(lo, x.dtype) - z, r, const(lo, x.dtype) - z)
    r = select(r < const(hi, x.dtype) - z, r, const(hi, x.dtype) - z)
    return (r.to("i32") + zero).to(dtype)


def parameter(ctx: Context, v: Value, idx: list[Index], axis: int, block: int, rank: int) -> Expr:
    """Scale or zero point at an element: per tensor, per axis or blocked."""
    if v.rank == 0 or v.size == 1:
        return ctx.read(v, [Index(0)] * v.rank)
    if v.rank == 1:
        return ctx.read(v, [idx[axis]])
    return ctx.read(v, [i // block if k == axis else i for k, i in enumerate(idx)])


def _axis_block(ctx: Context, shape: tuple[int, ...]) -> tuple[int, int]:
    axis = ctx.axis(1, len(shape)) if len(shape) else 0
    return axis, int(ctx.attr("block_size", 0)) or 1


@op("QuantizeLinear")
def quantize_linear(ctx: Context) -> None:
    x, scale, dtype, shape = ctx.input(0), ctx.input(1), ctx.out_dtype(), ctx.out_shape()
    if dtype in FLOATS:
        raise ctx.unsupported(f"output type {dtype}", "integers, float8, float4")
    zero = ctx.input(2) if ctx.has(2) else None
    axis, block = _axis_block(ctx, shape)

    def fn(idx: list[Index]) -> Expr:
        s = widen(parameter(ctx, scale, idx, axis, block, x.rank)).to("f32")
        y = widen(ctx.read(x, idx)).to("f32") / s
        if scale.dtype == x.dtype:
            y = round_through(y, scale.dtype)  # halves are divided as halves
        if is_small_float(dtype):
            return convert(y, dtype, bool(ctx.attr("saturate", 1)))
        z = 0 if zero is None else parameter(ctx, zero, idx, axis, block, x.rank)
        return saturate(y, z, dtype)

    ctx.define(shape, dtype, fn, x.cost + 6)


@op("DequantizeLinear")
def dequantize_linear(ctx: Context) -> None:
    x, scale, dtype, shape = ctx.input(0), ctx.input(1), ctx.out_dtype(), ctx.out_shape()
    zero = ctx.input(2) if ctx.has(2) else None
    if x.dtype in FLOATS:
        raise ctx.unsupported(f"input type {x.dtype}", "integers, float8, float4")
    axis, block = _axis_block(ctx, shape)

    def fn(idx: list[Index]) -> Expr:
        q = ctx.read(x, idx)
        if is_small_float(x.dtype):  # their zero point is 0
            q = convert(q, "f32")
        else:
            q = q.to("i32")
            if zero is not None:
                q = q - parameter(ctx, zero, idx, axis, block, x.rank).to("i32")
        return (q.to("f32") * widen(parameter(ctx, scale, idx, axis, block, x.rank)).to("f32")).to(dtype)

    ctx.define(shape, dtype, fn, x.cost + 2)


@op("DynamicQuantizeLinear")
def dynamic_quantize_linear(ctx: Context) -> None:
    x = ctx.stored(ctx.input(0))
    assert x.buffer is not None
    buffer = x.buffer
    low, high = ctx.temp((), "f32"), ctx.temp((), "f32")
    zero32 = const(0.0, "f32")
    for out, kind in ((low, "min"), (high, "max")):
        variables = x.vars()
        flat = ctx.read(x, [Index.of(v) for v in variables])
        ctx.assign(out, [], reduce(kind, variables, flat, zero32) if variables else flat)
    lo = lambda: minimum(ctx.read(low, []), 0.0)
    hi = lambda: maximum(ctx.read(high, []), 0.0)

    def scale_of(idx: list[Index]) -> Expr:
        s = (hi() - lo()) / 255.0
        return select(s.eq(0.0), const(1.0, "f32"), s)

    scale = ctx.stored(ctx.lazy((), "f32", scale_of))

    def zero_of(idx: list[Index]) -> Expr:
        return call("roundeven", clamp(0.0 - lo() / ctx.read(scale, []), 0.0, 255.0)).to("i32").to("u8")

    zero = ctx.stored(ctx.lazy((), "u8", zero_of))
    ctx.define(
        ctx.out_shape(),
        "u8",
        lambda idx: saturate(load(buffer, _at(idx, x)) / ctx.read(scale, []), ctx.read(zero, []), "u8"),
        6,
    )
    ctx.bind(Value(ctx.out_shape(1), "f32", scale.buffer), 1)
    ctx.bind(Value(ctx.out_shape(2), "u8", zero.buffer), 2)


def _at(idx: list[Index], x: Value) -> Index:
    return linear(idx, x.shape)
