"""Ops whose result size is only known at run time: they fill a buffer from its start and return the count.

See `tilewright.compiler.importer.onnx.bounded` for shapes.
"""

from __future__ import annotations

import math

from tilewright.compiler.cpu.expr import Expr, Index, Var, const, maximum, minimum, select
from tilewright.compiler.cpu.ir.writer import Operand, i64
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value


class _Count:
    """The number of rows filled so far, kept in the count output."""

    def __init__(self, ctx: Context) -> None:
        self.value = ctx.temp((), "i64")
        self.buffer = ctx.buffer(self.value)

    def reset(self, f: Function) -> None:
        f.write(self.buffer, 0, i64(0))

    def take(self, f: Function) -> Operand:
        """Allocates the next free row."""
        row = f.read(self.buffer, 0)
        f.write(self.buffer, 0, f.add(row, 1))
        return row


@op("BoundedNonZero")
def non_zero(ctx: Context) -> None:
    """Writes indices in row-major order, one column each; row k holds those of axis k."""
    x, out, count = ctx.stored(ctx.input()), ctx.temp(ctx.out_shape(), "i64"), _Count(ctx)
    target, variables = ctx.buffer(out), x.vars()
    hit = ctx.read(x, [Index.of(v) for v in variables]).ne(0)

    def write(f: Function) -> None:
        count.reset(f)
        with f.loops(variables), f.when(f.value(hit)):
            column = count.take(f)
            for k, v in enumerate(variables):
                f.write(target, f.add(k * x.size, column), f.variables[v])

    ctx.kernel(write, [out, count.value])
    ctx.bind(out, 0)
    ctx.bind(count.value, 1)


@op("BoundedCompress")
def compress(ctx: Context) -> None:
    """Copies slices along the axis, or elements, where the condition holds; the buffer has room for all of them."""
    x, condition = ctx.stored(ctx.input(0)), ctx.stored(ctx.input(1))
    shape, count = ctx.out_shape(), _Count(ctx)
    axis = None if ctx.attr("axis") is None else ctx.axis(None, x.rank)
    if axis is None:
        x, axis = Value((x.size,), x.dtype, ctx.buffer(x)), 0
    out = ctx.temp(shape, x.dtype)
    source, target = ctx.buffer(x), ctx.buffer(out)
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    along = Var.new(condition.size)
    hit = ctx.read(condition, [Index.of(along)])

    def write(f: Function) -> None:
        count.reset(f)
        with f.loops([along]), f.when(f.value(hit)):
            row = count.take(f)
            with f.loop(0, outer) as o, f.loop(0, inner) as i:

                def at(length: int, position: Operand) -> Operand:
                    return f.add(f.mul(f.add(f.mul(o, length), position), inner), i)

                f.write(target, at(shape[axis], row), f.read(source, at(x.shape[axis], f.variables[along])))

    ctx.kernel(write, [out, count.value])
    ctx.bind(out, 0)
    ctx.bind(count.value, 1)


@op("BoundedNonMaxSuppression")
def non_max_suppression(ctx: Context) -> None:
    """Selects, per batch and class, the best remaining box again and again, dropping those that overlap it too much.

    Among equal scores the first box wins. A box without area overlaps nothing.
    """
    boxes, scores = ctx.stored(ctx.input(0)), ctx.stored(ctx.input(1))
    batches, classes, n = scores.shape
    shape, count = ctx.out_shape(), _Count(ctx)
    out, left, best = ctx.temp(shape, "i64"), ctx.temp((n,), "u8"), ctx.temp((1,), "i64")
    target, alive, chosen = (ctx.buffer(v) for v in (out, left, best))
    scalar = lambda k, otherwise: (
        ctx.read(ctx.stored(ctx.input(k)), [Index(0)] * ctx.input(k).rank) if ctx.has(k) else otherwise
    )
    limit = minimum(maximum(scalar(2, const(0, "i64")), 0), shape[0] // max(batches * classes, 1))
    b, c, i, j = Var.new(batches), Var.new(classes), Var.new(max(n, 1)), Var.new(max(n, 1))
    score = ctx.read(scores, [Index.of(v) for v in (b, c, j)])
    worth = score > scalar(4, const(-math.inf, "f32"))
    overlaps = _overlap(ctx, boxes, b, i, j) > scalar(3, const(0.0, "f32"))
    best_score = ctx.read(scores, [Index.of(v) for v in (b, c, i)])

    dead = Operand("0", "i8")

    def write(f: Function) -> None:
        count.reset(f)
        rounds = f.value(limit)
        with f.loops([b, c]):
            with f.loops([j]):
                f.write(alive, f.variables[j], f.convert("zext", f.value(worth), "i8"))
            with f.loop(0, rounds):
                f.write(chosen, 0, i64(-1))
                with f.loops([j]), f.when(f.icmp("ne", f.read(alive, f.variables[j]), 0)):
                    so_far = f.read(chosen, 0)
                    f.variables[i] = f.intrinsic("smax", so_far, 0)
                    better = f.fcmp("ogt", f.value(score), f.value(best_score))
                    take = f.or_(better, f.icmp("slt", so_far, 0))
                    f.write(chosen, 0, f.select(take, f.variables[j], so_far))
                found = f.read(chosen, 0)
                with f.when(f.icmp("sge", found, 0)):
                    start = f.mul(count.take(f), 3)
                    for k, value in enumerate((f.variables[b], f.variables[c], found)):
                        f.write(target, f.add(start, k), value)
                    f.write(alive, found, dead)
                    f.variables[i] = found
                    with f.loops([j]), f.when(f.value(overlaps)):
                        f.write(alive, f.variables[j], dead)

    ctx.kernel(write, [out, count.value, left, best])
    ctx.bind(out, 0)
    ctx.bind(count.value, 1)


def _overlap(ctx: Context, boxes: Value, b: Var, i: Var, j: Var) -> Expr:
    """Intersection over union of boxes i and j of batch b; 0 where there is no intersection or no area."""

    def edges(box: Var, axis: int) -> tuple[Expr, Expr]:
        p, q = (ctx.read(boxes, [Index.of(b), Index.of(box), Index(k)]) for k in (axis, axis + 2))
        if ctx.attr("center_point_box", 0):
            return p - q / 2.0, p + q / 2.0
        return minimum(p, q), maximum(p, q)

    (y0, y1), (x0, x1) = edges(i, 0), edges(i, 1)
    (v0, v1), (u0, u1) = edges(j, 0), edges(j, 1)
    height, width = minimum(y1, v1) - maximum(y0, v0), minimum(x1, u1) - maximum(x0, u0)
    common = maximum(height, 0.0) * maximum(width, 0.0)
    one, other = (y1 - y0) * (x1 - x0), (v1 - v0) * (u1 - u0)
    union = one + other - common
    sound = (common > 0.0) & (one > 0.0) & (other > 0.0) & (union > 0.0)
    return select(sound, common / select(sound, union, 1.0), 0.0)
