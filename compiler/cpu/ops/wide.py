"""Products of 16-bit activations with 8-bit weights, by the arithmetic of `tilewright.isa.wide_numerics`; and
conversions of such activations to the byte planes of the NPU.

The int8 kernels run once for each byte of the activations, a = 256 * high + low with high of int8 and low of uint8. The
sum is 256 times that of the high bytes plus that of the low ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.compiler.cpu.expr import Expr, Index, Var, call, clamp, const, select
from tilewright.compiler.cpu.ops.convolution import window
from tilewright.compiler.cpu.ops.integer import conv_sums, fixed, matmul_sums, multiplied_directly
from tilewright.compiler.cpu.ops.rules import op, quantized
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value
from tilewright.compiler.graph.ops.wide import QConv16, QMatMul16, Wide

#: Products of 16 with 8 bits that a sum of 32 bits holds.
_DIRECT = (1 << 31) // (1 << 15) // (1 << 7) - 1


def _planes(ctx: Context) -> tuple[Value, Value]:
    """The high bytes (int8) and low bytes (uint8) of the operand."""
    x = ctx.stored(ctx.input(0))
    high = ctx.lazy(x.shape, "i8", lambda idx: ctx.read(x, idx).shr(8).to("i8"), 2)
    low = ctx.lazy(x.shape, "u8", lambda idx: ctx.read(x, idx).to("u8"), 1)
    return high, low


def _by_planes(ctx: Context, sums: Callable[[Value], Value]) -> Value:
    """The int64 sums, from the int32 sums of either byte."""
    high, low = (sums(plane) for plane in _planes(ctx))

    def fn(idx: list[Index]) -> Expr:
        return ctx.read(high, idx).to("i64") * 256 + ctx.read(low, idx).to("i64")

    return ctx.lazy(high.shape, "i64", fn, high.cost + low.cost + 2)


def _finish(ctx: Context, op: Wide, sums: Value, axis: int, requantised: Callable[[Expr, Index], Expr]) -> None:
    """Defines the output from sums by the bias, `requantised` of a sum and its channel, and the limits."""
    bias = ctx.input(2) if ctx.has(2) else None

    def fn(idx: list[Index]) -> Expr:
        acc = ctx.read(sums, idx).to("i64")
        if bias is not None:
            acc = acc + ctx.read(bias, [idx[axis]])
        return clamp(requantised(acc, idx[axis]), op.low, op.high).to("i16")

    ctx.define(sums.shape, "i16", fn, sums.cost + 8)


@quantized(QConv16)
def q_conv_16(ctx: Context, op: QConv16) -> None:
    weights, data = ctx.input(1), ctx.const_input(1)
    assert data is not None
    shape = ctx.out_shape()
    w = window(ctx, op.kernel)
    convolve = lambda x: conv_sums(ctx, x, weights, data, fixed(0), 0, w, shape, op.group)
    one_pass = multiplied_directly(data, op.group) and data[0].size <= _DIRECT
    sums = convolve(ctx.input(0)) if one_pass else _by_planes(ctx, convolve)
    multipliers = ctx.constant(np.asarray(op.multipliers, np.int64))
    shifts = ctx.constant(np.asarray(op.shifts, np.int64))
    halves = ctx.constant(np.int64(1) << (np.asarray(op.shifts, np.int64) - 1))

    def requantised(acc: Expr, channel: Index) -> Expr:
        m, t, half = (ctx.read(v, [channel]) for v in (multipliers, shifts, halves))
        return (acc * m + half).shr(t)

    _finish(ctx, op, sums, 1, requantised)


@quantized(QMatMul16)
def q_matmul_16(ctx: Context, op: QMatMul16) -> None:
    b, data = ctx.input(1), ctx.const_input(1)
    sums = _by_planes(ctx, lambda a: matmul_sums(ctx, a, b, data, fixed(0), fixed(0), ctx.out_shape()))
    factors = ctx.constant(np.asarray(op.factors, np.float64))

    def requantised(acc: Expr, channel: Index) -> Expr:
        return half_away(acc.to("f64") * ctx.read(factors, [channel])).to("i64")

    _finish(ctx, op, sums, 1, requantised)


def half_away(v: Expr) -> Expr:
    """Rounds to nearest, ties away from zero, in float64 without a sum that could round by itself."""
    whole = call("trunc", v)
    away = call("fabs", v - whole) >= const(0.5, v.dtype)
    return select(away, whole + call("copysign", const(1.0, v.dtype), v), whole)


@op("SplitBytes")
def split_bytes(ctx: Context) -> None:
    """Splits int16 into int8 [2, axes]: high bytes, and low bytes less 128. Padding around the tensor is 0."""
    x = ctx.stored(ctx.input())
    out, begin = ctx.temp(ctx.out_shape(), "i8"), ctx.ints("begin")
    for byte, shift, flip in ((0, 8, 0), (1, 0, -128)):
        if out.shape[1:] != x.shape:
            around = [Var.new(n) for n in out.shape[1:]]
            ctx.assign(out, around, const(flip, "i8"), [Index(byte), *(Index.of(v) for v in around)])
        inside = x.vars()
        value = ctx.read(x, [Index.of(v) for v in inside]).shr(shift).to("i8")
        at = [Index(byte), *(Index.of(v) + b for v, b in zip(inside, begin))]
        ctx.assign(out, inside, value ^ flip if flip else value, at)
    ctx.bind(out)


@op("JoinBytes")
def join_bytes(ctx: Context) -> None:
    """Joins int8 [2, axes] of `SplitBytes` to int16."""
    both = ctx.stored(ctx.input())

    def fn(idx: list[Index]) -> Expr:
        high, low = (ctx.read(both, [Index(byte), *idx]).to("i16") for byte in (0, 1))
        return high * 256 + low + 128

    ctx.define(both.shape[1:], "i16", fn, 3)
