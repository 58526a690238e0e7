"""Conv, ConvTranspose, ConvInteger, and the integer convolution behind QConv.

The input is copied once into a padded array, so that no kernel tests bounds. Dense convolutions pack blocks of
im2col columns into the cache and run the register tile; depthwise ones are expressions with the taps written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.cpu.expr import Expr, Index, Rewriter, Var, const, fma, guard, index_value, reduce
from tilewright.compiler.cpu.microkernels.gemm import DIRECT_COLUMNS, DirectOperand, Domain, Gemm, RowOperand, pack_rows
from tilewright.compiler.cpu.ops.elementwise import widen
from tilewright.compiler.cpu.ops.movement import pad_constant
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.memory import SLACK
from tilewright.compiler.cpu.stages.value import Value

MAX_TAPS = 128  # depthwise kernels up to this many taps are written out
FEW_OUTPUTS = 4  # up to so many channels one convolution makes the outputs of all phases, to fill its tiles
FEW_TAPS = 16  # with a stride and more of them columns are sorted first, so that outputs' neighbours are neighbours


@dataclass
class Window:
    """Geometry of a sliding window, one entry per spatial dimension."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    begin: list[int]
    end: list[int]

    @property
    def rank(self) -> int:
        return len(self.kernel)


def window(ctx: Context, kernel: Sequence[int]) -> Window:
    """Reads the window attributes of the node."""
    pads, rank = ctx.ints("pads"), len(kernel)
    return Window(list(kernel), ctx.ints("strides"), ctx.ints("dilations"), pads[:rank], pads[rank:])


def padded(ctx: Context, x: Value, w: Window, out_spatial: Sequence[int], fill: Expr, flip: int | None = None) -> Value:
    """`x` [N, C, spatial] surrounded by `fill`, large enough for every window; unchanged without padding."""
    need = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(out_spatial, w.strides, w.kernel, w.dilations)]
    before = [0, 0, *w.begin]
    shape = [*x.shape[:2], *(max(n, b + size) for n, b, size in zip(need, w.begin, x.shape[2:]))]
    if any(b < 0 for b in before):
        raise ctx.unsupported(f"pads {w.begin}", "pads of at least 0")
    if shape == list(x.shape) and not flip:
        return ctx.stored(x)
    return pad_constant(ctx, x, before, shape, fill, flip)


def split_conv(groups: int) -> Callable[[list[Var], Expr, Index], Domain]:
    """A splitter of [n, o, spatial...]: batch = n, group and all spatial dimensions but the last two."""

    def split(variables: list[Var], body: Expr, offset: Index) -> Domain:
        n, o, *spatial = variables
        g, m = Var.new(groups), Var.new(o.extent // groups)
        rewrite = Rewriter({o: Index.of(g) * m.extent + Index.of(m)})
        r = spatial[-2] if len(spatial) > 1 else Var.new(1)
        return Domain([n, g, *spatial[:-2]], m, r, spatial[-1], rewrite(body), rewrite.index(offset))

    return split


def positions(w: Window, batch: Sequence[Var], r: Index, c: Index) -> list[Index]:
    """Output positions of a column block: outer spatial dimensions are batch variables."""
    outer = [Index.of(v) for v in batch[2:]]
    return [*outer, c] if w.rank == 1 else [*outer, r, c]


def conv_float(
    ctx: Context, x: Value, weights: Value, data: np.ndarray | None, w: Window, shape: tuple[int, ...], groups: int
) -> Value:
    """The sums of a float32 convolution, without bias, as an accumulator."""
    _n, o, *spatial = shape
    cg = weights.shape[1]
    source = padded(ctx, x, w, spatial, const(0, x.dtype))
    k = cg * int(np.prod(w.kernel))
    mg = o // groups
    schedule = ctx.gemm_schedule("float32 convolution", mg, k, spatial, window_details(w, groups))
    if data is not None:
        packed = pack_rows(data.reshape(groups, mg, k), schedule.rows) if not ctx.dry else data.reshape(-1)[:0]
        a = RowOperand(ctx.buffer(ctx.constant(packed, stem="weights")), lambda b: Index.of(b[1]) * (mg * k))
    else:
        a = RowOperand(ctx.buffer(weights), lambda b: Index.of(b[1]) * (mg * k), k)

    def fill(batch: Sequence[Var], r: Index, c: Index) -> list[tuple[list[Var], Expr, Index]]:
        taps = [Var.new(cg), *(Var.new(t) for t in w.kernel)]
        row = Index(0)
        for v in taps:
            row = row * v.extent + Index.of(v)
        at = window_at(w, positions(w, batch, r, c), taps[1:])
        channel = Index.of(batch[1]) * cg + Index.of(taps[0])
        return [(taps, ctx.read(source, [Index.of(batch[0]), channel, *at]), row)]

    direct = direct_operand(source, w, shape, cg) if schedule.in_place else None
    gemm = Gemm(k, a, direct or fill, split_conv(groups), schedule)
    return Value(shape, "f32", acc=gemm, cost=3, label=ctx.node.op)


def window_details(w: Window, groups: int) -> str:
    """A text that distinguishes convolutions with the same product, for schedules' signatures."""
    text = ["x".join(map(str, v)) for v in (w.kernel, w.strides, w.dilations)]
    return f"kernel {text[0]} stride {text[1]} dilation {text[2]} groups {groups}"


def direct_operand(
    source: Value, w: Window, shape: tuple[int, ...], rows_per_group: int, taps_first: bool = False
) -> DirectOperand | None:
    """Reads the padded input in place, for stride 1 and buffers that may be overread; else None.

    Args:
        source: padded input [N, channels or groups of four channels, spatial].
        rows_per_group: channels of `source` in one convolution group.
        taps_first: True if the taps are outermost in k, the packing of int8 weights.
    """
    buffer, pitch = source.buffer, source.shape[-1]
    reach = (w.kernel[-1] - 1) * w.dilations[-1]
    if buffer is None or buffer.role != "temp" or any(s != 1 for s in w.strides) or pitch > DIRECT_COLUMNS:
        return None
    if 4 * (reach + 64) > SLACK or pitch > 2 * shape[-1]:
        return None
    buffer.pinned = True
    strides = [int(np.prod(source.shape[d + 1 :])) for d in range(source.rank)]
    taps = [sum(t * d * s for t, d, s in zip(tap, w.dilations, strides[2:])) for tap in np.ndindex(*w.kernel)]
    channels = [c * strides[1] for c in range(rows_per_group)]
    table = [t + c for t in taps for c in channels] if taps_first else [t + c for c in channels for t in taps]

    def base(batch: Sequence[Var]) -> Index:
        at = Index.of(batch[0]) * strides[0] + Index.of(batch[1]) * (rows_per_group * strides[1])
        for v, s in zip(batch[2:], strides[2:]):
            at = at + Index.of(v) * s
        return at

    return DirectOperand(buffer, base, table, pitch)


def window_at(w: Window, position: Sequence[Index], taps: Sequence[Var | int]) -> list[Index]:
    return [p * s + Index.of(t) * d for p, s, t, d in zip(position, w.strides, taps, w.dilations)]


def conv_direct(
    ctx: Context, x: Value, weights: Value, w: Window, shape: tuple[int, ...], groups: int, fill: Expr, kind: str
) -> Value:
    """A convolution of any type as an expression: taps written out where there are few, else reduced."""
    o = shape[1]
    cg, mg = weights.shape[1], o // groups
    source = padded(ctx, x, w, shape[2:], fill)
    ctx.buffer(weights)
    taps = int(np.prod(w.kernel))
    strides = w.strides
    if strides[-1] > 1 and taps * cg > FEW_TAPS:
        source, width = _columns_by_phase(ctx, source, strides[-1])
        strides = [*strides[:-1], 1]
    else:
        width = 0

    def fn(idx: list[Index]) -> Expr:
        n, oc, *position = idx
        group = oc // mg

        def product(c: Index, tap: Sequence[Index]) -> Expr:
            at = [p * s + t * d for p, s, t, d in zip(position, strides, tap, w.dilations)]
            if width:  # column p * stride + t lies at p + t // stride among those of the same remainder
                column = tap[-1] * w.dilations[-1]
                at[-1] = position[-1] + column // w.strides[-1] + column % w.strides[-1] * width
            a = widen(ctx.read(source, [n, group * cg + c, *at])).to(kind)
            return a * widen(ctx.read(weights, [oc, c, *tap])).to(kind)

        if taps * cg <= MAX_TAPS:
            total: Expr | None = None
            for t in np.ndindex(cg, *w.kernel):
                p = product(Index(t[0]), [Index(i) for i in t[1:]])
                total = p if total is None else _multiply_add(p, total)
            assert total is not None
            return total
        variables = [Var.new(cg), *(Var.new(t) for t in w.kernel)]
        return reduce("add", variables, product(Index.of(variables[0]), [Index.of(v) for v in variables[1:]]), 0)

    return ctx.lazy(shape, kind, fn, 2 * taps * cg + 3)


def _columns_by_phase(ctx: Context, x: Value, stride: int) -> tuple[Value, int]:
    """Every `stride`-th column of `x`, then those from the second one on, and so on; and the number of each."""
    width = -(-x.shape[-1] // stride)

    def fn(idx: list[Index]) -> Expr:
        *first, phase, at = idx
        column = at * stride + phase
        value = ctx.read(x, [*first, column])
        if x.shape[-1] % stride == 0:
            return value
        return guard(index_value(column) < x.shape[-1], value, const(0, x.dtype))

    made = ctx.stored(ctx.lazy((*x.shape[:-1], stride, width), x.dtype, fn, 2))
    return Value((*x.shape[:-1], stride * width), x.dtype, made.buffer), width


def _multiply_add(p: Expr, total: Expr) -> Expr:
    return fma(p.args[0], p.args[1], total) if p.dtype in ("f32", "f64") else total + p


@op("Conv")
def conv(ctx: Context) -> None:
    x, weights, shape = ctx.input(0), ctx.input(1), ctx.out_shape()
    groups = int(ctx.attr("group", 1))
    w = window(ctx, weights.shape[2:])
    data = ctx.graph.const(ctx.node.inputs[1])
    if x.dtype == "f32" and not (weights.shape[1] * weights.shape[0] // groups <= 4 and groups > 1):
        y = conv_float(ctx, x, weights, data, w, shape, groups)
    else:
        kind = "f32" if x.dtype in ("f16", "bf16") else x.dtype
        y = conv_direct(ctx, x, weights, w, shape, groups, const(0, x.dtype), kind)
    define_with_bias(ctx, y)


def define_with_bias(ctx: Context, sums: Value) -> None:
    """Defines the result of a float convolution: sums and the bias of each channel, if there is one."""
    bias, dtype = ctx.input(2) if ctx.has(2) else None, ctx.out_dtype()

    def fn(idx: list[Index]) -> Expr:
        e = ctx.read(sums, idx)
        return (e if bias is None else e + widen(ctx.read(bias, [idx[1]]))).to(dtype)

    ctx.define(ctx.out_shape(), dtype, fn, sums.cost + 1)
