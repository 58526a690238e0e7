"""Data movement: reshapes (aliases), transposes, slices, concatenation, padding, replication, space and depth."""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.cpu.expr import Assignment, Expr, Index, Var, const, linear, lookup
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value
from tilewright.compiler.limits import MAX_CONSTANT, check_padded


@op("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
def reshape(ctx: Context) -> None:
    ctx.alias(ctx.input(), ctx.out_shape())


@op("Dropout")
def dropout(ctx: Context) -> None:
    training = ctx.const_input(2)
    if training is not None and bool(training):
        raise ctx.unsupported("training_mode is true", "inference")
    ctx.alias(ctx.input(), ctx.out_shape())
    if len(ctx.node.outputs) > 1 and ctx.node.outputs[1]:
        ctx.define(ctx.out_shape(1), ctx.out_dtype(1), lambda idx: const(1, ctx.out_dtype(1)), 0, out=1)


def permuted(ctx: Context, x: Value, shape: tuple[int, ...], source: list[int]) -> None:
    """Defines the output whose dimension k walks input dimension source[k]."""

    def fn(idx: list[Index]) -> Expr:
        at = [Index(0)] * x.rank
        for k, s in enumerate(source):
            at[s] = idx[k]
        return ctx.read(x, at)

    ctx.define(shape, x.dtype, fn, x.cost)


@op("Transpose")
def transpose(ctx: Context) -> None:
    x = ctx.input()
    perm = ctx.ints("perm") or list(range(x.rank))[::-1]
    moved = [p for p in perm if x.shape[p] != 1]
    if moved == sorted(moved):  # only unit dimensions move: the same bytes
        ctx.alias(x, ctx.out_shape())
        return
    permuted(ctx, ctx.stored(x), ctx.out_shape(), perm)


def slice_value(
    ctx: Context, x: Value, starts: list[int], steps: list[int], shape: tuple[int, ...], out: int = 0
) -> None:
    def fn(idx: list[Index]) -> Expr:
        return ctx.read(x, [i * step + start for i, start, step in zip(idx, starts, steps)])

    if x.acc is not None:
        ctx.buffer(x)
    ctx.define(shape, x.dtype, fn, x.cost, out)


@op("Slice")
def slice_(ctx: Context) -> None:
    x = ctx.input()
    if ctx.opset < 10 or "starts" in ctx.node.attrs:
        starts, ends, axes, steps = ctx.ints("starts"), ctx.ints("ends"), ctx.ints("axes"), None
    else:
        parts = [ctx.const_input(k) for k in (1, 2, 3, 4)]
        starts, ends, axes, steps = (None if p is None else [int(v) for v in p.reshape(-1)] for p in parts)
    assert starts is not None and ends is not None
    axes = [a % x.rank for a in axes] if axes is not None else list(range(len(starts)))
    steps = steps or [1] * len(starts)
    begin, step = [0] * x.rank, [1] * x.rank
    for a, s, e, t in zip(axes, starts, ends, steps):
        begin[a], _, step[a] = slice(s, e, t).indices(x.shape[a])
    slice_value(ctx, x, begin, step, ctx.out_shape())


@op("Split")
def split(ctx: Context) -> None:
    x = ctx.input()
    axis = ctx.axis(0, x.rank)
    start = 0
    for k, name in enumerate(ctx.node.outputs):
        size = ctx.shape(name)[axis] if name else 0
        begin = [0] * x.rank
        begin[axis] = start
        if name:
            slice_value(ctx, x, begin, [1] * x.rank, ctx.shape(name), k)
        start += size


def concatenate(ctx: Context, values: list[Value], axis: int, shape: tuple[int, ...]) -> None:
    """Writes each input straight into its box of the output."""
    out = ctx.temp(shape, ctx.out_dtype())
    assert out.buffer is not None
    start, parts = 0, []
    for v in values:
        variables = v.vars()
        idx = [Index.of(x) for x in variables]
        at = [i + start if k == axis else i for k, i in enumerate(idx)]
        if v.size:
            parts.append(Assignment(variables, ctx.read(v, idx), out.buffer, linear(at, shape)))
        start += v.shape[axis]
    ctx.assign_all(parts)
    ctx.bind(out)


@op("Concat")
def concat(ctx: Context) -> None:
    values = ctx.inputs()
    concatenate(ctx, values, ctx.axis(1 if ctx.opset < 4 else None, values[0].rank), ctx.out_shape())


def pad_constant(
    ctx: Context, x: Value, before: list[int], shape: list[int], fill: Expr, flip: int | None = None
) -> Value:
    """Copies `x` into a larger array of `fill`, in new memory: every element is written once.

    Args:
        flip: XORed onto every byte of `x` (moves int8 to uint8).
    """
    out = ctx.temp(shape, x.dtype if flip is None else "u8")
    assert out.buffer is not None
    parts = []
    for d in range(len(shape)):
        for start, count in ((0, before[d]), (before[d] + x.shape[d], shape[d] - before[d] - x.shape[d])):
            box = [*x.shape[:d], count, *shape[d + 1 :]]
            if count > 0 and int(np.prod(box)):
                variables = [Var.new(n) for n in box]
                at = [Index.of(v) + (before[k] if k < d else start if k == d else 0) for k, v in enumerate(variables)]
                parts.append(Assignment(variables, fill, out.buffer, linear(at, shape)))
    variables = x.vars()
    if x.size:
        idx = [Index.of(v) for v in variables]
        body = ctx.read(x, idx)
        if flip is not None:
            body = body.to("u8") ^ flip if flip else body.to("u8")
        parts.append(Assignment(variables, body, out.buffer, linear([i + b for i, b in zip(idx, before)], shape)))
    ctx.assign_all(parts, f"{ctx.node.op} pad")
    return out


@op("Pad")
def pad(ctx: Context) -> None:
    x, shape = ctx.input(), ctx.out_shape()
    mode = ctx.attr("mode", "constant")
    fill: Expr = const(0, x.dtype)
    axes = list(range(x.rank))
    if ctx.has(1):
        given = ctx.const_input(1)
        assert given is not None
        amounts = [int(v) for v in given.reshape(-1)]
        if ctx.has(2):
            fill = ctx.read_broadcast(ctx.value(ctx.node.inputs[2]), [Index(0)])
        chosen = ctx.const_input(3)
        if chosen is not None:
            axes = [int(a) % x.rank for a in chosen.reshape(-1)]
    else:
        amounts = ctx.ints("pads", ctx.ints("paddings")) or []
        fill = const(float(ctx.attr("value", 0.0)), x.dtype)
    before, after = [0] * x.rank, [0] * x.rank
    for k, a in enumerate(axes):
        before[a], after[a] = amounts[k], amounts[k + len(axes)]
    if mode == "constant":
        # Negative amounts crop.
        crop = [max(-b, 0) for b in before]
        inner = tuple(n - max(-b, 0) - max(-a, 0) for n, b, a in zip(x.shape, before, after))
        if inner != x.shape:
            if any(n < 0 for n in inner):
                raise ctx.unsupported(f"pads {amounts} remove more than there is", "smaller crops")
            source = ctx.stored(x)
            x = ctx.lazy(inner, x.dtype, lambda idx: ctx.read(source, [i + c for i, c in zip(idx, crop)]))
        ctx.bind(pad_constant(ctx, x, [max(b, 0) for b in before], list(shape), fill))
        return
    tables: dict[int, list[int]] = {}  # of axes that are padded
    for axis, (n, b, total) in enumerate(zip(x.shape, before, shape)):
        if b == 0 and total == n:
            continue
        check_padded(f"Pad {ctx.node.name!r}", mode, total)
        at = np.arange(total) - b
        if mode == "edge":
            at = np.clip(at, 0, n - 1)
        elif mode == "reflect":
            period = max(2 * (n - 1), 1)
            at = np.mod(at, period)
            at = np.where(at >= n, period - at, at)
        elif mode == "wrap":
            at = np.mod(at, n)
        else:
            raise ctx.unsupported(f"mode={mode!r}", "'constant', 'edge', 'reflect', 'wrap'")
        tables[axis] = at.tolist()
    source = ctx.stored(x)

    def fn(idx: list[Index]) -> Expr:
        return ctx.read(source, [lookup(tables[k], i) if k in tables else i for k, i in enumerate(idx)])

    ctx.define(shape, x.dtype, fn, 2)


@op("Expand")
def expand(ctx: Context) -> None:
    x = ctx.input()
    if x.cost > 2 or x.acc is not None:
        ctx.buffer(x)
    ctx.define(ctx.out_shape(), x.dtype, lambda idx: ctx.read_broadcast(x, idx), x.cost)


@op("Tile")
def tile(ctx: Context) -> None:
    x, shape = ctx.stored(ctx.input()), ctx.out_shape()
    # A copy of the whole per repetition keeps every loop affine.
    repeats = [o // n if n else 0 for o, n in zip(shape, x.shape)]
    out = ctx.temp(shape, x.dtype)
    assert out.buffer is not None
    outer, inner = [Var.new(r) for r in repeats], x.vars()
    at = [Index.of(o) * n + Index.of(i) for o, i, n in zip(outer, inner, x.shape)]
    order = [v for pair in zip(outer, inner) for v in pair]
    body = ctx.read(x, [Index.of(i) for i in inner])
    ctx.assign_all([Assignment(order, body, out.buffer, linear(at, shape))])
    ctx.bind(out)


@op("DepthToSpace")
def depth_to_space(ctx: Context) -> None:
    x, b = ctx.stored(ctx.input()), int(ctx.attr("blocksize"))
    depth = x.shape[1] // (b * b)
    crd = ctx.attr("mode", "DCR") == "CRD"

    def fn(idx: list[Index]) -> Expr:
        n, c, h, w = idx
        i, j = h % b, w % b
        channel = c * (b * b) + i * b + j if crd else (i * b + j) * depth + c
        return ctx.read(x, [n, channel, h // b, w // b])

    ctx.define(ctx.out_shape(), x.dtype, fn, 3)


@op("SpaceToDepth")
def space_to_depth(ctx: Context) -> None:
    x, b = ctx.stored(ctx.input()), int(ctx.attr("blocksize"))
    depth, crd = x.shape[1], ctx.attr("mode", "DCR") == "CRD"

    def fn(idx: list[Index]) -> Expr:
        n, c, h, w = idx
        rest, channel = (c % (b * b), c // (b * b)) if crd else (c // depth, c % depth)
        return ctx.read(x, [n, channel, h * b + rest // b, w * b + rest % b])

    ctx.define(ctx.out_shape(), x.dtype, fn, 3)


@op("Shape", "Size", "ConstantOfShape", "Range", "Constant", "EyeLike")
def static(ctx: Context) -> None:
    """Defines values known from shapes and constants."""
    name, shape = ctx.node.op, ctx.out_shape()
    dtype = ctx.graph.tensors[ctx.node.outputs[0]].dtype
    if name == "Shape":
        full = ctx.shape(ctx.node.inputs[0])
        data = np.array(full[slice(ctx.attr("start", 0), ctx.attr("end"))], np.int64)
    elif name == "Size":
        data = np.array(int(np.prod(ctx.shape(ctx.node.inputs[0]), dtype=np.int64)), np.int64)
    elif name == "ConstantOfShape":
        given = ctx.attr("value")
        value = const(0 if given is None else np.asarray(given).reshape(-1)[0].item(), ctx.out_dtype())
        ctx.define(shape, ctx.out_dtype(), lambda idx: value, 0)
        return
    elif name != "Constant" and math.prod(shape) > MAX_CONSTANT:
        raise ctx.unsupported(f"{math.prod(shape)} elements", f"constants of up to {MAX_CONSTANT}")
    elif name == "Range":
        start, limit, step = (ctx.const_input(k) for k in range(3))
        assert start is not None and limit is not None and step is not None
        data = np.arange(start.item(), limit.item(), step.item(), dtype=dtype)
    elif name == "EyeLike":
        data = np.eye(shape[0], shape[1], k=int(ctx.attr("k", 0))).astype(dtype)
    else:
        data = np.asarray(ctx.attr("value"))
    data = data.astype(dtype).reshape(shape)
    v = ctx.constant(data)
    ctx.define(shape, v.dtype, lambda idx: ctx.read(v, idx), 0)
