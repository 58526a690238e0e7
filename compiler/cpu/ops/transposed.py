"""Transposed convolutions: by the phases of their outputs, or as convolutions of a spread input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.compiler.cpu.expr import Expr, Index, Var, const
from tilewright.compiler.cpu.ops.convolution import FEW_OUTPUTS, Window, conv_direct, conv_float, define_with_bias
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value


@op("ConvTranspose")
def conv_transpose(ctx: Context) -> None:
    """Computes a plain convolution of the input, spread out by the strides, with the flipped, transposed kernel."""
    x, weights, data = ctx.input(0), ctx.input(1), ctx.graph.const(ctx.node.inputs[1])
    groups = int(ctx.attr("group", 1))
    define_with_bias(ctx, transposed_sums(ctx, x, weights, data, ctx.out_shape(), groups, const(0, x.dtype)))


def transpose_window(ctx: Context, kernel: Sequence[int]) -> Window:
    """The stride-1 window over the spread-out input that gives the result's shape."""
    rank, dilations = len(kernel), ctx.ints("dilations")
    first = [(k - 1) * d - b for k, d, b in zip(kernel, dilations, ctx.ints("pads"))]
    return Window(list(kernel), [1] * rank, dilations, first, [0] * rank)


def flipped_weights(data: np.ndarray, groups: int) -> np.ndarray:
    """Converts weights [C, O/group, kernel] of a transposed convolution to [O, C/group, flipped kernel]."""
    inputs, outputs, *kernel = data.shape
    grouped = data.reshape(groups, inputs // groups, outputs, *kernel).swapaxes(1, 2)
    flipped = np.ascontiguousarray(np.flip(grouped, tuple(range(3, 3 + len(kernel)))))
    return flipped.reshape(groups * outputs, inputs // groups, *kernel)


def transposed_sums(
    ctx: Context, x: Value, weights: Value, data: np.ndarray | None, shape: tuple[int, ...], groups: int, fill: Expr
) -> Value:
    n = len(shape) - 2
    kernel = weights.shape[2:]
    w, strides = transpose_window(ctx, kernel), ctx.ints("strides")
    cg, mg = x.shape[1] // groups, weights.shape[1]
    dense = x.dtype == "f32" and not (cg * mg <= 4 and groups > 1)
    d = None if data is None else flipped_weights(data, groups)
    if d is not None and dense:
        y = by_phases(
            ctx,
            x,
            d,
            shape,
            "f32",
            lambda part, window, sub: conv_float(ctx, x, Value(part.shape, "f32"), part, window, sub, groups),
        )
        if y is not None:
            return y
    spread = dilated_input(ctx, x, w, strides, shape, fill)
    flat = Window(w.kernel, w.strides, w.dilations, [0] * n, [0] * n)
    if d is not None:
        flipped = ctx.constant(d, stem="weights")
    else:
        source = ctx.stored(weights)

        def turn(idx: list[Index]) -> Expr:
            o, c, *taps = idx
            channel = (o // mg) * cg + c
            return ctx.read(source, [channel, o % mg, *(k - 1 - t for k, t in zip(kernel, taps))])

        flipped = ctx.lazy((groups * mg, cg, *kernel), weights.dtype, turn, 1)
    if dense:
        return conv_float(ctx, spread, flipped, d, flat, shape, groups)
    kind = {"f16": "f32", "bf16": "f32"}.get(x.dtype, x.dtype)
    return conv_direct(ctx, spread, flipped, flat, shape, groups, fill, kind)


def by_phases(
    ctx: Context,
    x: Value,
    data: np.ndarray,
    shape: tuple[int, ...],
    kind: str,
    convolve: Callable[[np.ndarray, Window, tuple[int, ...]], Value],
) -> Value | None:
    """Computes a strided transposed convolution as one plain convolution per output phase, none multiplying zeros.

    Args:
        data: flipped weights [O, C/group, kernel].
        convolve: makes the sums of (weights, window, output shape).

    Returns:
        The sums in memory, None where the geometry needs the general way.
    """
    kernel = data.shape[2:]
    n = len(kernel)
    w, strides = transpose_window(ctx, kernel), ctx.ints("strides")
    if all(s == 1 for s in strides) or any(d != 1 for d in w.dilations) or any(s > k for s, k in zip(strides, kernel)):
        return None
    pads = [k - 1 - b for k, b in zip(kernel, w.begin)]
    phases = []
    for phase in np.ndindex(*strides):
        first = [(r - p) % s for r, p, s in zip(phase, pads, strides)]
        count = [max(-(-(o - f) // s), 0) for o, f, s in zip(shape[2:], first, strides)]
        taps = [-(-(k - r) // s) for k, r, s in zip(kernel, phase, strides)]
        begin = [t - 1 - (f + p - r) // s for t, f, p, r, s in zip(taps, first, pads, phase, strides)]
        if any(b < 0 for b in begin):
            return None
        # Tap t of the unflipped kernel is k - 1 - t of the flipped one; a phase has every stride-th, from the last.
        pick = tuple(slice((k - 1 - r) % s, k - r, s) for k, r, s in zip(kernel, phase, strides))
        phases.append((first, count, begin, np.ascontiguousarray(data[(slice(None), slice(None), *pick)])))
    ctx.buffer(x)
    out = ctx.temp(shape, kind)
    _, count, begin, part = phases[0]
    few = kind == "f32" and data.shape[0] <= FEW_OUTPUTS and data.shape[1] == x.shape[1]
    if few and all((p[1], p[2], p[3].shape) == (count, begin, part.shape) for p in phases):
        joined = np.concatenate([p[3] for p in phases])
        flat = Window(list(part.shape[2:]), [1] * n, [1] * n, begin, [0] * n)
        every = ctx.stored(convolve(joined, flat, (shape[0], len(joined), *count)))
        for number, (first, *_) in enumerate(phases):
            variables = [Var.new(m) for m in (*shape[:2], *count)]
            idx = [Index.of(v) for v in variables]
            at = [*idx[:2], *(i * s + f for i, s, f in zip(idx[2:], strides, first))]
            ctx.assign(out, variables, ctx.read(every, [idx[0], idx[1] + number * shape[1], *idx[2:]]), at)
        return out
    for first, count, begin, part in phases:
        if min(count) == 0:
            continue
        window = Window(list(part.shape[2:]), [1] * n, [1] * n, begin, [0] * n)
        sums = convolve(part, window, (*shape[:2], *count))
        variables = sums.vars()
        idx = [Index.of(v) for v in variables]
        at = [*idx[:2], *(i * s + f for i, s, f in zip(idx[2:], strides, first))]
        ctx.assign(out, variables, ctx.read(sums, idx), at)
    return out


def dilated_input(ctx: Context, x: Value, w: Window, strides: Sequence[int], shape: Sequence[int], fill: Expr) -> Value:
    """`x` with strides - 1 fill elements between its elements and the window's border around it."""
    first = [max(b, 0) for b in w.begin]
    skip = [max(-b, 0) for b in w.begin]  # pads beyond the kernel's reach crop the input
    need = [o + (k - 1) * d for o, k, d in zip(shape[2:], w.kernel, w.dilations)]
    size = [max(n, f + (i - 1) * s + 1 + k) for n, f, i, s, k in zip(need, first, x.shape[2:], strides, skip)]
    big = ctx.temp((*x.shape[:2], *size), x.dtype)
    everything = big.vars()
    ctx.assign(big, everything, fill)
    variables = x.vars()
    idx = [Index.of(v) for v in variables]
    at = [*idx[:2], *(i * s + f for i, s, f in zip(idx[2:], strides, first))]
    ctx.assign(big, variables, ctx.read(x, idx), at)
    if not any(skip):
        return big
    cropped = (*x.shape[:2], *(n - k for n, k in zip(size, skip)))
    return ctx.stored(
        ctx.lazy(cropped, x.dtype, lambda i: ctx.read(big, [*i[:2], *(a + k for a, k in zip(i[2:], skip))]))
    )
