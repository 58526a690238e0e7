"""Softmax, normalisations and their like: statistics of rows, and results computed from them.

A rule is written once, as a recipe over `Statistics`. Where the axes are the last ones (`Fused`), every row is finished
before the next: it stays in the first-level cache, and its epilogue is computed in its last pass. Otherwise (`Stored`)
each statistic is a tensor in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct, field

from tilewright.compiler.cpu.expr import (
    SIZES,
    Assignment,
    Buffer,
    Expr,
    Index,
    Rewriter,
    Var,
    linear,
    load,
    reduce,
    walk,
)
from tilewright.compiler.cpu.loops.streaming import LINE, STREAM_BYTES
from tilewright.compiler.cpu.stages.context import CHEAP, Context
from tilewright.compiler.cpu.stages.stage import RowStage, Stage
from tilewright.compiler.cpu.stages.value import ElementFn, Value
from tilewright.compiler.cpu.target import Target

MIN_ROW = 8  # elements; shorter rows are not worth a loop each


class Statistics(Protocol):
    """Operations available to a recipe; functions of an index of the whole tensor."""

    def keep(self, fn: ElementFn, dtype: str, cost: int) -> ElementFn:
        """`fn` computed once per row and kept."""

    def fold(self, kind: str, fn: ElementFn, init: Expr, finish: Callable[[Expr], Expr] = lambda e: e) -> ElementFn:
        """`finish` of the reduction of `fn` over the row."""


Recipe = Callable[[Statistics], ElementFn]


class Stored(Struct):
    """Statistics in memory, for any axes."""

    ctx: Context
    shape: tuple[int, ...]
    axes: Sequence[int]

    def keep(self, fn: ElementFn, dtype: str, cost: int) -> ElementFn:
        v = self.ctx.stored(self.ctx.lazy(self.shape, dtype, fn, cost))
        return lambda idx: self.ctx.read(v, idx)

    def fold(self, kind: str, fn: ElementFn, init: Expr, finish: Callable[[Expr], Expr] = lambda e: e) -> ElementFn:
        shape = tuple(1 if k in self.axes else n for k, n in enumerate(self.shape))

        def total(idx: list[Index]) -> Expr:
            over = [Var.new(self.shape[a]) for a in self.axes]
            at = list(idx)
            for a, v in zip(self.axes, over):
                at[a] = Index.of(v)
            return finish(reduce(kind, over, fn(at), init))

        count = math.prod(self.shape[a] for a in self.axes)
        v = self.ctx.stored(self.ctx.lazy(shape, init.dtype, total, 3 + count))
        return lambda idx: self.ctx.read(v, [Index(0) if k in self.axes else i for k, i in enumerate(idx)])


class Fused(Struct):
    """Statistics of one row at a time.

    Attributes:
        outer: the loops over rows.
        extents: the sizes of a row.
        result: destination of the row, if it may hold values of its type until then.
    """

    outer: list[Var]
    extents: Sequence[int]
    result: tuple[Buffer, Callable[[list[Index]], Index]] | None = None
    parts: list[Assignment] = field(default_factory=list)
    temps: list[Buffer] = field(default_factory=list)

    def inner(self) -> list[Var]:
        return [Var.new(n) for n in self.extents]

    def at(self, inner: Sequence[Var]) -> list[Index]:
        return [Index.of(v) for v in (*self.outer, *inner)]

    def keep(self, fn: ElementFn, dtype: str, cost: int) -> ElementFn:
        inner = self.inner()
        if self.result is not None and self.result[0].dtype == dtype:
            (row, place), self.result = self.result, None
        else:
            row = Buffer("", dtype, math.prod(self.extents), "temp", private=True)
            self.temps.append(row)
            place = lambda idx: linear(idx[len(self.outer) :], self.extents)
        self.parts.append(Assignment(inner, fn(self.at(inner)), row, place(self.at(inner))))
        return lambda idx: load(row, place(idx))

    def fold(self, kind: str, fn: ElementFn, init: Expr, finish: Callable[[Expr], Expr] = lambda e: e) -> ElementFn:
        inner = self.inner()
        slot = Buffer("", init.dtype, 1, "local")
        self.parts.append(Assignment([], finish(reduce(kind, inner, fn(self.at(inner)), init)), slot, Index(0)))
        value = load(slot, Index(0))
        return lambda idx: value


class Rows(Struct, eq=False):
    """A value whose rows are computed one by one, with their epilogue (see `value.Accumulator`)."""

    recipe: Recipe
    rank: int  # of a row

    def stage(self, acc: Value, what: Assignment, label: str, target: Target) -> Stage:
        variables, body, buffer, offset = what
        outer, inner = variables[: -self.rank], variables[-self.rank :]
        rows = Fused(outer, [v.extent for v in inner])
        row_bytes = math.prod(rows.extents) * SIZES[buffer.dtype]
        if body.op == "acc" and (buffer.nbytes < STREAM_BYTES or row_bytes % LINE):
            # Written early, the lines of the result are fetched while the rest is computed.
            rows.result = buffer, lambda idx: Rewriter(dict(zip(variables, idx))).index(offset)
        element = self.recipe(rows)
        here = element([Index.of(v) for v in variables])
        follow = Rewriter({}, lambda e: here if e.op == "acc" and e.value[0] is acc else None)
        rows.parts.append(Assignment(inner, follow(body), buffer, offset))
        return RowStage(f"{label}: rows", outer, rows.parts, rows.temps)


def by_rows(
    ctx: Context, x: Value, axes: Sequence[int], dtype: str, recipe: Callable[[ElementFn, Statistics], ElementFn]
) -> Value:
    """The value of a recipe over rows of `x`.

    Args:
        axes: axes of the rows.
        dtype: type of the result.
        recipe: function of x's elements and the statistics; returns the result's elements.
    """
    length = math.prod(x.shape[a] for a in axes)
    for e in walk(ctx.read(x, [Index.of(v) for v in x.vars()])):
        if e.op == "acc":
            ctx.buffer(e.value[0])
    trailing = sorted(axes) == list(range(x.rank - len(axes), x.rank))
    if not trailing or length < MIN_ROW or not axes:
        ctx.buffer(x)
        read = lambda idx: ctx.read(x, idx)
        return ctx.lazy(x.shape, dtype, recipe(read, Stored(ctx, x.shape, axes)), 6)

    def whole(rows: Statistics) -> ElementFn:
        read: ElementFn = lambda idx: ctx.read(x, idx)
        if x.buffer is None and x.cost > CHEAP:
            read = rows.keep(read, x.dtype, x.cost)
        return recipe(read, rows)

    return Value(x.shape, dtype, acc=Rows(whole, len(axes)), cost=6, label=ctx.node.op)
