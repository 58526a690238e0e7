"""The operators at the border of the NPU: Relayout and PackMatMulParams.

`Relayout` is given by tables: `tilewright.compiler.cpu.loops.boxes` makes loops of them, `microkernels.box_copies`
code. Channel blocking, its inverse and the gather of a few-channel image all end there. A `Relayout` that only copies a
stretch of bytes is computed inside its reader.

With the attribute `block` the tables describe channels on the last axis, [N, H, W, C], and the result has them in
blocks, [N, C / block, H, W, block].
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.cpu.expr import (
    Expr,
    Index,
    Var,
    const,
    guard,
    index_value,
    linear,
    load,
    lookup,
    reduce,
    unravel,
)
from tilewright.compiler.cpu.loops.boxes import Analysis, Loop, joined
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.microkernels.box_copies import Move, emit_box
from tilewright.compiler.cpu.microkernels.transpose import Bytes
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value

MIN_PADDED = 4  # boxes from which on a border around the input is tried, which leaves fewer


@op("Relayout")
def relayout(ctx: Context) -> None:
    x = ctx.input()
    shape, tables, block = ctx.out_shape(), ctx.attr("tables"), int(ctx.attr("block", 0))
    flip, fill = int(ctx.attr("xor", 0)) & 0xFF, int(ctx.attr("fill", 0))
    flip, fill = (flip ^ 0x80) - 0x80, ((fill & 0xFF) ^ 0x80) - 0x80
    usable = bool(x.size and math.prod(shape) and shape)
    plain = shape if not block else (shape[0], *shape[2:-1], shape[1] * block)
    analysis = Analysis(x.shape, plain, tables, block) if usable else None
    if analysis is not None and not analysis.run():
        analysis = None
    start = None if analysis is None else _contiguous_offset(analysis)
    if start is not None:
        moved = lambda i: ctx.read(x, unravel(linear(i, shape) + start, x.shape)).to("i8")
        ctx.define(
            shape, ctx.out_dtype(), lambda i: (moved(i) ^ flip if flip else moved(i)).to(ctx.out_dtype()), x.cost
        )
        return
    out = ctx.temp(shape, ctx.out_dtype())
    assert out.buffer is not None
    target = out.buffer
    if usable and (analysis is None or len(analysis.boxes) >= MIN_PADDED):
        found = _padding(x.shape, plain, tables)
        if found is not None:
            border, padded, moved_tables = found
            other = Analysis(padded, plain, moved_tables, block)
            if other.run() and (analysis is None or len(other.boxes) < len(analysis.boxes)):
                x, flip, analysis = _padded(ctx, x, border, padded, flip, fill), 0, other
    buffer = ctx.buffer(x)
    if analysis is not None:
        boxes = analysis.boxes

        def write(f: Function) -> None:
            for box in boxes:
                emit_box(f, box, Move(buffer, target, Bytes(flip, fill)))

        ctx.kernel(write, [out], label="Relayout")
    else:
        _by_lookup(ctx, x, out, plain, tables, block, flip, fill)
    ctx.bind(out)


def _contiguous_offset(analysis: Analysis) -> int | None:
    """The offset of the input bytes that the output copies contiguously; None if it is no such copy."""
    if len(analysis.boxes) != 1:
        return None
    box = analysis.boxes[0]
    count = len(box.lanes)
    if not box.valid.all() or not np.array_equal(box.lanes, np.arange(count)):
        return None
    inner = [Loop(count, 1, 1)] if count > 1 else []
    loops = joined([*box.loops, *inner])
    return box.read if all((l.read, l.write) == (1, 1) for l in loops) and len(loops) <= 1 else None


Tables = list[dict[int, np.ndarray]]


def _padding(
    in_shape: tuple[int, ...], shape: tuple[int, ...], tables: Tables
) -> tuple[list[int], tuple[int, ...], Tables] | None:
    """Sizes of a border around the input, with which every read would be inside: the border before each dimension, the
    padded shape and the tables for it. Entries that are outside whatever the others are stay outside.

    None where the padded input would be much larger.
    """
    border, padded, moved = [], [], []
    for k, n in enumerate(in_shape):
        entry = {int(d): np.asarray(t, np.int64) for d, t in tables[k].items()}
        keep = {d: np.ones(len(t), bool) for d, t in entry.items()}
        for d, t in entry.items():
            others = [entry[e] for e in entry if e != d]
            lo, hi = sum(int(t.min()) for t in others), sum(int(t.max()) for t in others)
            keep[d] = (t + hi >= 0) & (t + lo < n)
            if not keep[d].any():
                return None
        lo = min(0, sum(int(t[keep[d]].min()) for d, t in entry.items()))
        hi = max(n - 1, sum(int(t[keep[d]].max()) for d, t in entry.items()))
        border.append(-lo)
        padded.append(hi - lo + 1)
        far = sum(int(np.abs(t).max()) for t in entry.values()) + 2 * (hi - lo + 1)
        first = min(entry, default=-1)
        moved.append({d: np.where(keep[d], t, -far) - (lo if d == first else 0) for d, t in entry.items()})
    if math.prod(padded) > 1.5 * math.prod(in_shape) + 4096:
        return None
    return border, tuple(padded), moved


def _padded(ctx: Context, x: Value, border: list[int], shape: tuple[int, ...], flip: int, fill: int) -> Value:
    """The input, XORed, with `fill` around it."""
    out = ctx.temp(shape, x.dtype)
    inside = x.vars()
    for axis, (before, size) in enumerate(zip(border, x.shape, strict=True)):
        for start, end in ((0, before), (before + size, shape[axis])):
            if start < end:
                variables = [Var.new(end - start if k == axis else n) for k, n in enumerate(shape)]
                at = [Index.of(v) + (start if k == axis else 0) for k, v in enumerate(variables)]
                ctx.assign(out, variables, const(fill & 0xFF, "u8").to(x.dtype), at)
    value = ctx.read(x, [Index.of(v) for v in inside])
    ctx.assign(out, inside, value ^ flip if flip else value, [Index.of(v) + b for v, b in zip(inside, border)])
    return out


def _by_lookup(
    ctx: Context, x: Value, out: Value, shape: tuple[int, ...], tables: Tables, block: int, flip: int, fill: int
) -> None:
    """Writes a Relayout by look-ups of its tables, element by element. `shape` is the shape of the tables."""
    variables = [Var.new(n) for n in shape]
    coordinates: list[Index] = []
    inside: Expr = const(1, "b")
    for k, n in enumerate(x.shape):
        at = Index(0)
        for d, t in tables[k].items():
            at = at + lookup([int(v) for v in t], Index.of(variables[int(d)]))
        lo, hi = at.range()
        if lo < 0:
            inside = inside & (index_value(at) >= 0)
        if hi >= n:
            inside = inside & (index_value(at) < n)
        coordinates.append(at)
    assert x.buffer is not None
    value = load(x.buffer, linear(coordinates, x.shape)).to("i8")
    value = value ^ flip if flip else value
    target = [Index.of(v) for v in variables]
    if block:
        target = [target[0], target[-1] // block, *target[1:-1], target[-1] % block]
    ctx.assign(out, variables, guard(inside, value, fill).to(out.dtype), target)


@op("PackMatMulParams")
def pack_matmul_params(ctx: Context) -> None:
    """Computes per output column the bias that removes the zero points, and the scale's bits."""
    b = ctx.stored(ctx.input())
    *batch, k, n = b.shape
    flip = int(ctx.attr("xor", 0)) & 0xFF
    za, zb = int(ctx.attr("a_zero_point", 0)), int(ctx.attr("b_zero_point", 0))
    lanes = int(ctx.attr("lanes"))
    scale = int(np.float32(ctx.attr("scale")).view(np.int32))
    shape = ctx.out_shape()
    blocks = -(-n // lanes)
    out = ctx.temp(shape, "i32")
    sums = ctx.temp((*batch, n), "i32")
    variables = sums.vars()
    row = Var.new(k)
    idx = [Index.of(v) for v in variables]
    value = ctx.read(b, [*idx[:-1], Index.of(row), idx[-1]])
    value = (value.to("i8") ^ ((flip ^ 0x80) - 0x80)) if flip else value
    ctx.assign(sums, variables, reduce("add", [row], value.to("i32"), 0))
    flat = Value((*batch, blocks * lanes, 2), "i32", out.buffer)
    bias = const(k * za * zb, "i32") - ctx.read(sums, idx) * za
    ctx.assign(flat, variables, bias, [*idx, Index(0)])
    ctx.assign(flat, variables, const(scale, "i32"), [*idx, Index(1)])
    if blocks * lanes > n:
        rest = [Var.new(s) for s in (*batch, blocks * lanes - n, 2)]
        at = [Index.of(v) for v in rest]
        at[-2] = at[-2] + n
        ctx.assign(flat, rest, const(0, "i32"), at)
    ctx.bind(out)
