"""Einsum: products of two float32 operands become a matmul, everything else a reduction."""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import Struct

from tilewright.compiler.cpu.expr import Expr, Index, Var, linear, reduce, unravel
from tilewright.compiler.cpu.ops.elementwise import widen
from tilewright.compiler.cpu.ops.matmul import matmul_value
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value
from tilewright.compiler.graph.macs import einsum_labels


def _fits(operands: list[list[str]], result: list[str], values: list[Value]) -> bool:
    known = {label for labels in operands for label in labels}
    ranks = [len(labels) for labels in operands] == [v.rank for v in values]
    return ranks and len(set(result)) == len(result) and known.issuperset(result)


@op("Einsum")
def einsum(ctx: Context) -> None:
    values, shape = [ctx.stored(v) for v in ctx.inputs()], ctx.out_shape()
    equation = ctx.attr("equation")
    operands, result = einsum_labels(equation, [v.rank for v in values])
    if not _fits(operands, result, values):
        raise ctx.unsupported(
            f"equation {equation!r}", "a label for every dimension, and those of the operands in the result"
        )
    sizes: dict[str, int] = {}
    for labels, v in zip(operands, values):
        for l, n in zip(labels, v.shape):
            sizes[l] = max(sizes.get(l, 1), n)

    def at(k: int, place: dict[str, Index]) -> Expr:
        v = values[k]
        return widen(ctx.read(v, [Index(0) if n == 1 else place[l] for l, n in zip(operands[k], v.shape)]))

    if len(values) == 2 and values[0].dtype == "f32" and all(len(set(o)) == len(o) for o in operands):
        a, b = (set(o) for o in operands)
        batch = [l for l in result if l in a and l in b]
        rows, cols = [l for l in result if l in a and l not in b], [l for l in result if l in b and l not in a]
        inner = [l for l in operands[0] if l in b and l not in result]
        if set(batch + rows + inner) == a and set(batch + cols + inner) == b and inner:
            _as_matmul(ctx, at, Contraction(sizes, batch, rows, cols, inner, result))
            return
    summed = [l for l in sizes if l not in result]

    def fn(idx: list[Index]) -> Expr:
        place = dict(zip(result, idx))
        over = [Var.new(sizes[l]) for l in summed]
        place.update((l, Index.of(v)) for l, v in zip(summed, over))
        e = at(0, place)
        for k in range(1, len(values)):
            e = e * at(k, place)
        return (reduce("add", over, e, 0) if over else e).to(values[0].dtype)

    ctx.define(shape, values[0].dtype, fn, 20 + math.prod(sizes[l] for l in summed))


class Contraction(Struct, frozen=True):
    """An einsum of two operands that is a matrix product: its labels by role.

    Attributes:
        sizes: sizes of the dimensions, by label.
        batch: labels in both operands and the result.
        rows, cols: labels in the first or second operand and the result.
        inner: labels in both operands, summed over.
        result: all labels of the result, in order.
    """

    sizes: dict[str, int]
    batch: list[str]
    rows: list[str]
    cols: list[str]
    inner: list[str]
    result: list[str]


def _as_matmul(ctx: Context, at: Callable[[int, dict[str, Index]], Expr], c: Contraction) -> None:
    """Computes a contraction by the product's kernel; `at` reads an element of an operand."""
    sizes, batch, rows, cols, inner, result = c.sizes, c.batch, c.rows, c.cols, c.inner, c.result
    lead = tuple(sizes[l] for l in batch)
    m, n, k = (math.prod(sizes[l] for l in group) for group in (rows, cols, inner))

    def operand(which: int, first: list[str], second: list[str]) -> Value:
        def fn(idx: list[Index]) -> Expr:
            place = dict(zip(batch, idx))
            for group, i in ((first, idx[-2]), (second, idx[-1])):
                place.update(zip(group, unravel(i, [sizes[l] for l in group])))
            return at(which, place)

        shape = (*lead, math.prod(sizes[l] for l in first), math.prod(sizes[l] for l in second))
        return ctx.lazy(shape, "f32", fn, 3)

    y = ctx.stored(matmul_value(ctx, operand(0, rows, inner), operand(1, inner, cols), (*lead, m, n), None))
    assert k

    def fn(idx: list[Index]) -> Expr:
        place = dict(zip(result, idx))
        row = linear([place[l] for l in rows], [sizes[l] for l in rows])
        col = linear([place[l] for l in cols], [sizes[l] for l in cols])
        return ctx.read(y, [*(place[l] for l in batch), row, col])

    ctx.define(ctx.out_shape(), "f32", fn, 1)
