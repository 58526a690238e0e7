"""Data movement: reshapes (aliases), transposes, slices, concatenation, padding, replication, space and depth."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.compiler.cpu.expr import Assignment, Expr, Index, Var, const, linear, lookup
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value
from tilewright.compiler.graph.moves import permutation, places_of
from tilewright.compiler.limits import MAX_CONSTANT, check_padded


@op("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
def reshape(ctx: Context) -> None:
    ctx.alias(ctx.input(), ctx.out_shape())


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
    perm = permutation(ctx.node)
    moved = [p for p in perm if x.shape[p] != 1]
    if moved == sorted(moved):  # only unit dimensions move: the same bytes
        ctx.alias(x, ctx.out_shape())
        return
    permuted(ctx, ctx.stored(x), ctx.out_shape(), perm)


@op("Slice", "Split")
def parts(ctx: Context) -> None:
    x = ctx.input()
    if x.acc is not None:
        ctx.buffer(x)
    for number, name in enumerate(ctx.node.outputs):
        if name:
            take(ctx, x, x.cost, number)


def take(ctx: Context, x: Value, cost: int, number: int = 0) -> None:
    """Defines a result of a node as the places of `x` along each axis that `places_of` says."""
    places = places_of(ctx.graph, ctx.node, number)
    if places is None:
        raise ctx.unsupported("parameters are not constant, or unknown", "constants")

    def at(run: Sequence[int], i: Index) -> Index:
        return i * run.step + run.start if isinstance(run, range) else lookup(list(run), i)

    def fn(idx: list[Index]) -> Expr:
        return ctx.read(x, [at(run, i) for run, i in zip(places, idx, strict=True)])

    ctx.define(ctx.out_shape(number), x.dtype, fn, cost, number)


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
    concatenate(ctx, values, ctx.axis(None, values[0].rank), ctx.out_shape())


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
    x, shape, mode = ctx.input(), ctx.out_shape(), ctx.attr("mode")
    if mode != "constant":
        check_padded(f"Pad {ctx.node.name!r}", mode, max((n for n, m in zip(shape, x.shape) if n != m), default=0))
        take(ctx, ctx.stored(x), 2)
        return
    pads = ctx.const_input(1)
    assert pads is not None
    before, after = pads.reshape(2, -1).tolist()
    # Negative amounts crop.
    inner = tuple(n - max(-b, 0) - max(-a, 0) for n, b, a in zip(x.shape, before, after, strict=True))
    if inner != x.shape:
        if any(n < 0 for n in inner):
            raise ctx.unsupported(f"pads {pads.tolist()} remove more than there is", "smaller crops")
        source = ctx.stored(x)
        x = ctx.lazy(inner, x.dtype, lambda idx: ctx.read(source, [i + max(-b, 0) for i, b in zip(idx, before)]))
    fill = ctx.read_broadcast(ctx.input(2), [Index(0)])
    ctx.bind(pad_constant(ctx, x, [max(b, 0) for b in before], list(shape), fill))


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
