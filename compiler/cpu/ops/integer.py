"""Integer matrix products and convolutions: exact int32 sums of (x - zx) * (w - zw), for every sign and zero point.

The tile multiplies unsigned by signed bytes. Operands are moved by 128 where needed, and the zero points are removed
afterwards from the sums of weights (known at compile time) and, only for asymmetric weights, of activations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.compiler.cpu.expr import Expr, Index, Var, const, linear, reduce
from tilewright.compiler.cpu.microkernels.gemm import Gemm, PanelOperand, RowOperand, pack_panels, pack_rows
from tilewright.compiler.cpu.ops.convolution import (
    Window,
    conv_direct,
    direct_operand,
    padded,
    positions,
    split_conv,
    window,
    window_at,
    window_details,
)
from tilewright.compiler.cpu.ops.matmul import batch_index, split_matmul
from tilewright.compiler.cpu.ops.movement import pad_constant
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.ops.transposed import by_phases, dilated_input, flipped_weights, transpose_window
from tilewright.compiler.cpu.stages.context import CHEAP, Context
from tilewright.compiler.cpu.stages.value import Value

ZeroPoint = Callable[[Sequence[Index]], Expr]  # of an output index; int32


def fixed(value: int) -> ZeroPoint:
    return lambda idx: const(int(value), "i32")


def is_zero(e: Expr) -> bool:
    return e.op == "const" and int(e.value) == 0


def minus(a: Expr, b: Expr, c: Expr) -> Expr:
    """The value of a - b * c, without the product where b or c is 0."""
    return a if is_zero(b) or is_zero(c) else a - b * c


def signed_weights(data: np.ndarray) -> tuple[np.ndarray, int]:
    """Weights as int8, with the offset they were moved by."""
    return (data, 0) if data.dtype == np.int8 else ((data.astype(np.int16) - 128).astype(np.int8), 128)


def multiplied_directly(weights: np.ndarray, groups: int) -> bool:
    """True if a convolution with weights [O, C/group, kernel] multiplies element by element, in any type of x: a
    depthwise one, whose groups are too small for the tile.
    """
    return groups > 1 and weights.shape[1] * (weights.shape[0] // groups) <= 4


def four(parts: Sequence[Expr | None]) -> Expr:
    """Packs up to four bytes along k into one int32, lowest first."""
    total: Expr | None = None
    for j, p in enumerate(parts):
        if p is not None:
            e = p.to("u8").to("i32")
            e = e.shl(8 * j) if j else e
            total = e if total is None else total | e
    assert total is not None
    return total


def conv_sums(
    ctx: Context,
    x: Value,
    weights: Value,
    data: np.ndarray | None,
    zx: ZeroPoint,
    zw: np.ndarray | int,
    w: Window,
    shape: tuple[int, ...],
    groups: int,
) -> Value:
    """The sums (x - zx) * (w - zw) of a convolution, int32, lazy.

    Args:
        data: constant weights [O, C/group, kernel], or None.
        zx: zero point of x.
        zw: weights' zero points, one or [O].
    """
    o, cg = shape[1], weights.shape[1]
    mg = o // groups
    origin = [Index(0)] * len(shape)
    zeros = np.broadcast_to(np.asarray(zw, np.int64).reshape(-1), (o,))
    if data is None or multiplied_directly(data, groups):
        return _conv_direct(ctx, x, weights, data, zx, zeros, w, shape, groups)
    flip = 0x80 if x.dtype == "i8" else 0
    zero = zx(origin) + 128 if flip else zx(origin)
    zero = const(int(zx(origin).value) + (128 if flip else 0), "i32") if zx(origin).op == "const" else zero
    packed_data, moved = signed_weights(data)
    zeros = zeros - moved
    c4 = -(-cg // 4)
    k4 = c4 * int(np.prod(w.kernel))
    schedule = ctx.gemm_schedule("int8 convolution", mg, k4 * 4, shape[2:], window_details(w, groups))
    if not ctx.dry:
        order = np.zeros((groups, mg, *w.kernel, c4 * 4), np.int8)
        order[..., :cg] = np.moveaxis(packed_data.reshape(groups, mg, cg, *w.kernel), 2, -1)
        packed = pack_rows(order.reshape(groups, mg, k4 * 4), schedule.rows)
    else:
        packed = packed_data.reshape(-1)[:0]
    a = RowOperand(ctx.buffer(ctx.constant(packed, stem="weights")), lambda b: Index.of(b[1]) * (mg * k4 * 4))

    source: Value | None = None
    gemm: Gemm | None = None
    if schedule.in_place and cg % 4 == 0 and all(v == 1 for v in w.strides):
        blocks = _interleaved(ctx, x, w, shape, zero, flip)
        direct = direct_operand(blocks, w, shape, c4, taps_first=True)
        if direct is not None:
            gemm = Gemm(k4, a, direct, split_conv(groups), schedule, integer=True)
    if gemm is None or np.any(zeros):
        source = padded(ctx, x, w, shape[2:], zero.to("u8"), flip)

    def fill(batch: Sequence[Var], r: Index, c: Index) -> list[tuple[list[Var], Expr, Index]]:
        out = []
        for first, count, width in ((0, cg // 4, 4), (cg // 4, 1, cg % 4)):
            if not count or not width:
                continue
            taps, block = [Var.new(t) for t in w.kernel], Var.new(count)
            row = Index(0)
            for v in taps:
                row = row * v.extent + Index.of(v)
            at = window_at(w, positions(w, batch, r, c), taps)
            channel = Index.of(batch[1]) * cg + (Index.of(block) + first) * 4
            assert source is not None
            reads = [ctx.read(source, [Index.of(batch[0]), channel + j, *at]) for j in range(width)]
            out.append(([*taps, block], four(reads), row * c4 + Index.of(block) + first))
        return out

    gemm = gemm or Gemm(k4, a, fill, split_conv(groups), schedule, integer=True)
    acc = Value(shape, "i32", acc=gemm, cost=3, label=ctx.node.op)
    centred = packed_data.astype(np.int64).reshape(o, -1) - zeros[:, None]
    correction = ctx.constant(centred.sum(1).astype(np.int32))
    sums = None
    if np.any(zeros):
        assert source is not None
        zeros_value = ctx.constant(zeros.astype(np.int32))
        sums = _window_sums(ctx, source, w, shape, groups)

    def fn(idx: list[Index]) -> Expr:
        e = minus(ctx.read(acc, idx), zero, ctx.read(correction, [idx[1]]))
        if sums is not None:
            # sum x * (w - zw) = sum x * w - zw * sum x
            e = e - ctx.read(zeros_value, [idx[1]]) * ctx.read(sums, [idx[0], idx[1] // mg, *idx[2:]])
        return e

    return ctx.lazy(shape, "i32", fn, 5)


def _interleaved(ctx: Context, x: Value, w: Window, shape: tuple[int, ...], zero: Expr, flip: int) -> Value:
    """The padded input as int32 of four channels' bytes, [N, C/4, spatial]: rows of the tile's B in place."""
    if x.acc is not None or x.cost > CHEAP:
        ctx.buffer(x)

    def fn(idx: list[Index]) -> Expr:
        e = four([ctx.read(x, [idx[0], idx[1] * 4 + j, *idx[2:]]) for j in range(4)])
        return e ^ 0x80808080 if flip else e

    blocks = ctx.lazy((x.shape[0], x.shape[1] // 4, *x.shape[2:]), "i32", fn, 8)
    return padded(ctx, blocks, w, shape[2:], zero * 0x01010101)


def _window_sums(ctx: Context, source: Value, w: Window, shape: tuple[int, ...], groups: int) -> Value:
    """The sums of the input under every window, [N, groups, spatial]."""
    cg = source.shape[1] // groups

    def fn(idx: list[Index]) -> Expr:
        n, g, *position = idx
        variables = [Var.new(cg), *(Var.new(t) for t in w.kernel)]
        at = window_at(w, position, variables[1:])
        e = ctx.read(source, [n, g * cg + Index.of(variables[0]), *at])
        return reduce("add", variables, e.to("i32"), 0)

    return ctx.stored(ctx.lazy((shape[0], groups, *shape[2:]), "i32", fn, 100))


def _conv_direct(
    ctx: Context,
    x: Value,
    weights: Value,
    data: np.ndarray | None,
    zx: ZeroPoint,
    zeros: np.ndarray,
    w: Window,
    shape: tuple[int, ...],
    groups: int,
) -> Value:
    """The sums of a depthwise convolution, or of weights made at run time: weights are centred first."""
    o = shape[1]
    tail = (1,) * (len(shape) - 1)
    zero = zx([Index(0)] * len(shape))
    if data is not None:
        d = data.astype(np.int32) - zeros.reshape(o, *tail).astype(np.int32)
        centred = ctx.constant(d.astype(np.int16), stem="weights")
        total = ctx.constant(d.reshape(o, -1).sum(1, dtype=np.int32))
    else:
        raw = ctx.stored(weights)
        z = ctx.constant(zeros.astype(np.int32))
        at_o = lambda i: [i if z.size > 1 else Index(0)]
        centred = ctx.stored(
            ctx.lazy(raw.shape, "i32", lambda i: ctx.read(raw, i).to("i32") - ctx.read(z, at_o(i[0])), 3)
        )
        axes = [Var.new(n) for n in raw.shape[1:]]
        total = ctx.stored(
            ctx.lazy(
                (o,),
                "i32",
                lambda i: reduce("add", axes, ctx.read(centred, [i[0], *(Index.of(v) for v in axes)]), 0),
                9,
            )
        )
    y = conv_direct(ctx, x, centred, w, shape, groups, zero.to(x.dtype), "i32")
    return ctx.lazy(shape, "i32", lambda idx: minus(ctx.read(y, idx), zero, ctx.read(total, [idx[1]])), y.cost + 2)


def matmul_sums(
    ctx: Context, a: Value, b: Value, b_const: np.ndarray | None, za: ZeroPoint, zb: ZeroPoint, shape: tuple[int, ...]
) -> Value:
    """Sums (a - za) * (b - zb) over k: a [..., M, K], b [..., K, N]; zero points per tensor, row or column."""
    k = b.shape[-2]
    k4 = -(-k // 4)
    batch_shape = shape[:-2]
    shared = all(n == 1 for n in b.shape[:-2])
    whole = shared and int(np.prod(a.shape[:-1])) == int(np.prod(shape[:-1]))
    # Constant B is signed and A unsigned; a B made at run time is packed as unsigned and A is signed.
    fixed_b = b_const is not None and b_const.ndim == 2
    flip_a = 0x80 if (a.dtype == "i8") == fixed_b else 0
    rows = _byte_rows(ctx, a, k4 * 4, flip_a)
    move_a = 0 if not flip_a else (128 if fixed_b else -128)

    def a_offset(batch: Sequence[Var]) -> Index:
        lead = [Index.of(v) for v in batch] + [Index(0)] * (len(batch_shape) - len(batch))
        return linear(batch_index(rows, lead, [Index(0), Index(0)]), rows.shape) if batch else Index(0)

    operand = RowOperand(ctx.buffer(rows), a_offset, k4 * 4)
    m = int(np.prod(shape[:-1])) if whole else shape[-2]
    what = "int8 product with a constant" if fixed_b else "int8 product"
    schedule = ctx.gemm_schedule(what, m, k4 * 4, shape[-1:])
    if fixed_b:
        assert b_const is not None
        data, moved = signed_weights(b_const)
        panels = data.reshape(-1)[:0] if ctx.dry else pack_panels(data, schedule.vectors * ctx.target.lanes)
        weights = ctx.buffer(ctx.constant(panels, stem="panels"))
        gemm = Gemm(k4, operand, PanelOperand(weights), split_matmul(whole), schedule, integer=True, a_signed=False)
        move_b = -moved
        column = ctx.constant(data.astype(np.int64).sum(0).astype(np.int32))
        column_at = lambda idx: ctx.read(column, [idx[-1] if column.size > 1 else Index(0)])
    else:
        source = ctx.stored(b)
        flip_b = 0x80 if b.dtype == "i8" else 0
        move_b = 128 if flip_b else 0

        def byte(batch: Sequence[Index], row: Index, c: Index) -> Expr:
            e = ctx.read(source, batch_index(b, batch, [row, c])).to("u8")
            return e ^ flip_b if flip_b else e

        def fill(batch: Sequence[Var], r: Index, c: Index) -> list[tuple[list[Var], Expr, Index]]:
            lead = [Index.of(v) for v in batch] + [Index(0)] * (len(batch_shape) - len(batch))
            out = []
            for first, count, width in ((0, k // 4, 4), (k // 4, 1, k % 4)):
                if count and width:
                    v = Var.new(count)
                    row = Index.of(v) + first
                    parts = [byte(lead, row * 4 + j, c) for j in range(width)]
                    out.append(([v], four(parts), row))
            return out

        gemm = Gemm(k4, operand, fill, split_matmul(whole), schedule, integer=True)
        columns = _sums(ctx, source, -2, flip_b, "u8")
        column_at = lambda idx: ctx.read(columns, batch_index(b, idx[:-2], [Index(0), idx[-1]]))
    acc = Value(shape, "i32", acc=gemm, cost=3, label=ctx.node.op)
    zero_b = lambda idx: _moved(zb(idx), move_b)
    zero_a = lambda idx: _moved(za(idx), move_a)
    probe = [Index(0)] * len(shape)
    row_sums = None if is_zero(zero_b(probe)) else _sums(ctx, rows, -1, 0, "u8" if fixed_b else "i8", k)

    def fn(idx: list[Index]) -> Expr:
        e = minus(ctx.read(acc, idx), zero_a(idx), column_at(idx))
        if row_sums is not None:
            total = ctx.read(row_sums, batch_index(a, idx[:-2], [idx[-2], Index(0)]))
            e = e - zero_b(idx) * (total - zero_a(idx) * k)
        return e

    return ctx.lazy(shape, "i32", fn, 6)


def _moved(e: Expr, by: int) -> Expr:
    return const(int(e.value) + by, "i32") if e.op == "const" else e + by if by else e


def _byte_rows(ctx: Context, a: Value, width: int, flip: int) -> Value:
    """Moves `a` by `flip` and pads its rows to a multiple of four bytes (the padding is multiplied by 0)."""
    if not flip and a.shape[-1] == width:
        return ctx.stored(a)
    shape = [*a.shape[:-1], width]
    out = pad_constant(ctx, a, [0] * a.rank, shape, const(0, "u8"), flip)
    assert out.buffer is not None
    return Value(out.shape, out.dtype, out.buffer)


def _sums(ctx: Context, v: Value, axis: int, flip: int, dtype: str, length: int | None = None) -> Value:
    """The sums of bytes along an axis, kept as a dimension of 1."""
    axis %= v.rank
    shape = tuple(1 if k == axis else n for k, n in enumerate(v.shape))

    def fn(idx: list[Index]) -> Expr:
        k = Var.new(length or v.shape[axis])
        e = ctx.read(v, [Index.of(k) if d == axis else i for d, i in enumerate(idx)]).to(dtype)
        return reduce("add", [k], (e ^ flip if flip else e).to("i32"), 0)

    return ctx.stored(ctx.lazy(shape, "i32", fn, 100))


def zero_point_input(ctx: Context, i: int, axis: int | None = None) -> ZeroPoint:
    """The zero point from input i: missing, one element, or one per position along `axis` of the output."""
    if not ctx.has(i):
        return fixed(0)
    v = ctx.input(i)
    if v.size == 1:
        return lambda idx: _int(ctx.read(v, [Index(0)] * v.rank))
    if axis is None or v.rank != 1:
        raise ctx.unsupported(f"zero point of shape {v.shape}", "per tensor, per row of A or per column of B")
    return lambda idx: ctx.read(v, [idx[axis]]).to("i32")


def _int(e: Expr) -> Expr:
    return const(int(e.value), "i32") if e.op == "const" else e.to("i32")


@op("MatMulInteger")
def matmul_integer(ctx: Context) -> None:
    a, b, shape = ctx.input(0), ctx.input(1), ctx.out_shape()
    if a.rank < 2 or b.rank < 2:
        raise ctx.unsupported(f"operands of rank {a.rank} and {b.rank}", "rank 2 and above")
    data = ctx.graph.const(ctx.node.inputs[1])
    y = matmul_sums(ctx, a, b, data, zero_point_input(ctx, 2, -2), zero_point_input(ctx, 3, -1), shape)
    ctx.bind(y)


@op("ConvInteger")
def conv_integer(ctx: Context) -> None:
    x, weights, shape = ctx.input(0), ctx.input(1), ctx.out_shape()
    w = window(ctx, weights.shape[2:])
    zw = ctx.const_input(3) if ctx.has(3) else None
    data = ctx.graph.const(ctx.node.inputs[1])
    ctx.bind(
        conv_sums(
            ctx,
            x,
            weights,
            data,
            zero_point_input(ctx, 2),
            0 if zw is None else zw,
            w,
            shape,
            int(ctx.attr("group", 1)),
        )
    )


def transposed_sums_integer(
    ctx: Context, x: Value, data: np.ndarray, zx: int, zw: np.ndarray, shape: tuple[int, ...], groups: int
) -> Value:
    """The sums (x - zx) * (w - zw) of a transposed convolution; data [C, O/group, kernel], zw one or [O]."""
    n = len(shape) - 2
    kernel = data.shape[2:]
    w, strides = transpose_window(ctx, kernel), ctx.ints("strides")
    d = flipped_weights(data, groups)
    convolve = lambda part, window, sub: conv_sums(
        ctx, x, Value(part.shape, "i8"), part, fixed(zx), zw, window, sub, groups
    )
    y = by_phases(ctx, x, d, shape, "i32", convolve)
    if y is not None:
        return y
    spread = dilated_input(ctx, x, w, strides, shape, const(zx, x.dtype))
    flat = Window(w.kernel, w.strides, w.dilations, [0] * n, [0] * n)
    return conv_sums(ctx, spread, Value(d.shape, "i8"), d, fixed(zx), zw, flat, shape, groups)
