"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, and the requantiser shared by the quantised operators."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from tilewright.compiler.cpu.expr import (
    FLOATS,
    Expr,
    Index,
    call,
    clamp,
    const,
    fma,
    int_range,
    linear,
    load,
    maximum,
    minimum,
    reduce,
    select,
)
from tilewright.compiler.cpu.expr.small_types import convert, is_small_float, round_through
from tilewright.compiler.cpu.ops.elementwise import widen
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value
from tilewright.compiler.graph.quantization import AS_LITERT


def saturate(
    x: Expr, zero_point: Expr | int, dtype: str, low: int | None = None, high: int | None = None, nan_low: bool = True
) -> Expr:
    """`sat(RNE(x) + zero_point)` for a float `x`: clamps before converting, so that the conversion is exact. NaN
    becomes the lower bound as on x86, or the upper one."""
    lo, hi = int_range(dtype)
    lo, hi = lo if low is None else max(lo, low), hi if high is None else min(hi, high)
    zero = zero_point.to("i32") if isinstance(zero_point, Expr) else const(int(zero_point), "i32")
    r = call("roundeven", x)
    if dtype in ("i32", "u32"):
        return clamp(r.to("f64") + zero.to("f64"), lo, hi).to("i64").to(dtype)
    z = zero.to(x.dtype)
    least, most = const(lo, x.dtype) - z, const(hi, x.dtype) - z
    # The constants are second: the first clamp replaces NaN.
    if nan_low:
        r = select(r > least, r, least)
    r = select(r < most, r, most)
    if not nan_low:
        r = select(r > least, r, least)
    return (r.to("i32") + zero).to(dtype)


#: Added to a float32 below 2^22 it leaves the nearest whole number, the even one of two, in the last bits.
_WHOLE = np.float32(1.5 * 2**23)


def by_reciprocal(x: Expr, scale: np.float32, zero_point: int, dtype: str, has_fma: bool) -> Expr:
    """`saturate(x / scale, zero_point, dtype)` for float32 without a division, the same for every x.

    The quotient is that of the division, correctly rounded. With fused multiply-adds (P. Markstein, Computation of
    elementary functions on the IBM RISC System/6000 processor, 1990): with the rounded reciprocal a first correction
    gives a quotient within a unit in the last place. One fma gives its remainder exactly, and the second correction
    rounds as the division does. Without: a product with the reciprocal in float64 is off by less than 2^-51 of it, and
    no quotient of two numbers of 24 bits is within 2^-49 of a number between two neighbours of 24 bits. x is clamped
    before, so that nothing overflows; where remainders could be subnormal, quotients are far below 1/2.

    A NaN is replaced at the end: LLVM (22, InstCombine) takes the clamp here for one with the same bound that the op
    before made, such as Relu's, though that one keeps a NaN.
    """
    lo, hi = int_range(dtype)
    number = x.eq(x)
    low, high = ((np.float32(bound - zero_point) * scale) for bound in (lo, hi))
    x = select(x > const(float(low), "f32"), x, const(float(low), "f32"))
    x = select(x < const(float(high), "f32"), x, const(float(high), "f32"))
    if has_fma:
        minus, reciprocal = const(-float(scale), "f32"), const(float(_reciprocal(scale)), "f32")
        q = x * reciprocal
        for _ in range(2):
            q = fma(fma(q, minus, x), reciprocal, q)
    else:
        q = (x.to("f64") * const(1 / float(scale), "f64")).to("f32")
    steps = (q + const(float(_WHOLE), "f32")).bits("i32")
    steps = steps - const(int(_WHOLE.view(np.int32)) - zero_point, "i32")
    return select(number, steps, const(lo, "i32")).to(dtype)


def _reciprocal(scale: np.float32) -> np.float32:
    """The reciprocal 1 / scale, rounded once."""
    exact = 1 / Fraction(float(scale))
    near = np.float32(1 / np.float64(scale))
    candidates = (near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf)))
    return min(candidates, key=lambda value: abs(Fraction(float(value)) - exact))


def parameter(ctx: Context, v: Value, idx: list[Index], axis: int, block: int, rank: int) -> Expr:
    """The scale or zero point at an element: per tensor, per axis or blocked."""
    if v.rank == 0 or v.size == 1:
        return ctx.read(v, [Index(0)] * v.rank)
    if v.rank < rank:
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
    reciprocal = bool(ctx.attr(AS_LITERT, 0))
    known = None if reciprocal else _known_scale(ctx)

    def fn(idx: list[Index]) -> Expr:
        if known is not None:
            return by_reciprocal(ctx.read(x, idx), *known, dtype, ctx.target.has_fma)
        s = widen(parameter(ctx, scale, idx, axis, block, x.rank)).to("f32")
        y = widen(ctx.read(x, idx)).to("f32")
        y = y * (1.0 / s) if reciprocal else y / s
        if scale.dtype == x.dtype == "bf16":
            y = round_through(
                y, scale.dtype
            )  # by ONNX's text; onnxruntime divides float16 in float32 and has no bfloat16
        if is_small_float(dtype):
            return convert(y, dtype, bool(ctx.attr("saturate", 1)))
        z = 0 if zero is None else parameter(ctx, zero, idx, axis, block, x.rank)
        return saturate(y, z, dtype, nan_low=not reciprocal)

    ctx.define(shape, dtype, fn, x.cost + 6)


def _known_scale(ctx: Context) -> tuple[np.float32, int] | None:
    """The scale and zero point of a QuantizeLinear of float32 to 8 bits that need not divide, None for others."""
    if ctx.input(0).dtype != "f32" or ctx.out_dtype() not in ("i8", "u8"):
        return None
    if not (ctx.target.has_fma or ctx.target.has_doubles):
        return None
    given = [ctx.graph.const(name) for name in ctx.node.inputs[1:] if name]
    if any(data is None or data.size != 1 for data in given) or given[0] is None or given[0].dtype != np.float32:
        return None
    scale, zero = given[0].reshape(()), (given[1].reshape(()) if len(given) > 1 and given[1] is not None else 0)
    if not 2.0**-60 < float(scale) < 2.0**60:
        return None
    return np.float32(scale), int(zero)


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
