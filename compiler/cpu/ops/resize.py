"""Resize: source positions and weights are tables made at compile time.

Linear interpolation of two or three dimensions is one sum over the neighbours, in the order of onnxruntime's: a
rounding in float32 decides about the step of the next quantisation. Other resampling goes one dimension after the
other.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tilewright.compiler.cpu.expr import FLOATS, Expr, Index, call, clamp, const, index_value, int_range, lookup, select
from tilewright.compiler.cpu.ops.elementwise import widen
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value
from tilewright.compiler.graph.resampling import Resampling

_UNIT = 1024


def taps(x: np.ndarray, n: int, mode: str, a: float, exclude: bool, stretch: float) -> tuple[np.ndarray, np.ndarray]:
    """Input indices and weights [out, taps] of an interpolation; `stretch` > 1 widens the filter (antialias)."""
    support = (1.0 if mode == "linear" else 2.0) * stretch
    first = np.floor(x).astype(np.int64) - math.ceil(support) + 1
    count = 2 * math.ceil(support)
    if stretch > 1:
        first, count = first - 1, count + 2
    at = first[:, None] + np.arange(count)[None, :]
    d = np.abs(x[:, None].astype(np.float64) - at) / stretch
    if mode == "linear":
        w = np.maximum(1 - d, 0)
    else:
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        w = np.where(d <= 1, near, np.where(d < 2, far, 0))
    if exclude:
        w = np.where((at >= 0) & (at < n), w, 0)
    if exclude or stretch > 1:
        w = w / np.maximum(w.sum(1, keepdims=True), 1e-30)
    return np.clip(at, 0, n - 1), w.astype(np.float32)


@op("Resize")
def resize(ctx: Context) -> None:
    x, shape = ctx.input(), ctx.out_shape()
    mode = ctx.attr("mode")
    how = Resampling.of(ctx.graph, ctx.node)
    assert how is not None
    scales = how.scales
    y = ctx.stored(x)
    outside: list[tuple[int, np.ndarray]] = []
    together = _spatial(scales) if mode == "linear" and not ctx.attr("antialias", 0) and x.dtype != "f64" else []
    whole = together == [1, 2] and x.rank == 4 and x.dtype in ("i8", "u8")  # channels last
    places: list[_Neighbours] = []
    for a in range(x.rank):
        n, out = x.shape[a], shape[a]
        if a not in together and how.unchanged(a):
            continue
        at = (
            np.arange(n, dtype=np.float32) if a in together and scales[a] == 1.0 and not how.crops else how.positions(a)
        )
        if how.crops:
            outside.append((a, (at < 0) | (at > n - 1)))
        if a in together:
            places.append(_Neighbours.of(a, at, n, whole))
        elif mode == "nearest":
            y = _moved(ctx, y, a, out, [how.nearest(a)], None)
        else:
            widen_by = max(1.0 / scales[a], 1.0) if ctx.attr("antialias", 0) else 1.0
            if mode == "linear" and widen_by == 1.0:
                at = np.clip(at, 0, n - 1)
            index, weight = taps(
                at, n, mode, float(ctx.attr("cubic_coeff_a", -0.75)), bool(ctx.attr("exclude_outside", 0)), widen_by
            )
            if y.dtype not in FLOATS:
                y = _converted(ctx, y)
            y = _moved(ctx, y, a, out, list(index.T), weight)
    if places:
        y = _interpolated(ctx, y, shape, places)
    fill = float(ctx.attr("extrapolation_value", 0.0))
    dtype = x.dtype

    def fn(idx: list[Index]) -> Expr:
        e = ctx.read(y, idx)
        if dtype not in FLOATS and y.dtype in FLOATS:
            e = _to_integer(e, dtype)
        for a, table in outside:
            hit = index_value(lookup([int(v) for v in table], idx[a])).ne(0)
            e = select(hit, const(fill, e.dtype), e)
        return e.to(dtype)

    ctx.define(shape, dtype, fn, y.cost + 2)


class _Neighbours(Struct, frozen=True):
    """The two inputs along an axis that each output lies between, and their weights.

    Attributes:
        indices, weights: int64 and float32, or int32 in units of 1 / 1024, [2, out]: those of the lower input, then of
            the upper one.
    """

    axis: int
    indices: np.ndarray
    weights: np.ndarray

    @staticmethod
    def of(axis: int, at: np.ndarray, n: int, whole: bool) -> _Neighbours:
        """The neighbours of positions `at`; `whole`: positions and weights are whole numbers of 1 / 1024."""
        unit = np.float32(_UNIT if whole else 1)
        at = np.clip(at.astype(np.float32) * unit, np.float32(0), np.float32(n - 1) * unit)
        at = np.trunc(at) if whole else at
        lower = (at / unit).astype(np.int64)
        upper = np.minimum(lower + 1, n - 1)
        away = np.abs(np.stack([at - upper.astype(np.float32) * unit, at - lower.astype(np.float32) * unit]))
        weights = np.where(lower == upper, unit / 2, away)
        return _Neighbours(axis, np.stack([lower, upper]), weights.astype(np.int32 if whole else np.float32))


def _spatial(scales: Sequence[float]) -> list[int]:
    """The axes that onnxruntime interpolates together; none where it does not interpolate."""
    rank = len(scales)
    if rank in (2, 3):
        return list(range(rank))
    if rank in (4, 5) and scales[0] == scales[1] == 1.0:
        return list(range(2, rank))
    if rank == 4 and scales[0] == scales[3] == 1.0:
        return [1, 2]
    return []


def _interpolated(ctx: Context, y: Value, shape: Sequence[int], places: Sequence[_Neighbours]) -> Value:
    """Sum of the 4 or 8 neighbours, the last axis changing fastest, each times the product of its weights.

    Where several rows of the output read one of the input, both neighbours along it are first stored at the output's
    positions, once; the other neighbours then lie side by side.
    """
    last = places[-1]
    reads = math.prod(shape) / math.prod(y.shape[a] if a != last.axis else shape[a] for a in range(y.rank))
    sides: tuple[Value, ...] = (y, y)
    spread = last.axis == y.rank - 1 and len(places) > 1 and reads > 1
    if spread:
        sides = tuple(ctx.stored(_moved(ctx, y, last.axis, shape[last.axis], [at], None)) for at in last.indices)
    tables = [[ctx.constant(np.ascontiguousarray(w)) for w in p.weights] for p in places]

    def weight(which: Sequence[int], idx: list[Index]) -> Expr:
        parts = [
            ctx.read(table[side], [idx[p.axis] if table[side].size > 1 else Index(0)])
            for p, table, side in zip(places, tables, which)
        ]
        return functools.reduce(operator.mul, reversed(parts))

    def fn(idx: list[Index]) -> Expr:
        total: Expr | None = None
        for which in itertools.product((0, 1), repeat=len(places)):
            at = list(idx)
            for p, side in zip(places, which):
                if p is not last or not spread:
                    at[p.axis] = lookup([int(v) for v in p.indices[side]], idx[p.axis])
            term = weight(which, idx) * ctx.read(sides[which[-1]], at).to(kind)
            total = term if total is None else total + term
        assert total is not None
        if kind == "i32":
            return total.to("f64") / float(_UNIT ** len(places))  # cut off when it becomes an integer
        return total.to(dtype)

    kind = "i32" if places[0].weights.dtype == np.int32 else "f32"
    dtype = "f64" if kind == "i32" else y.dtype if y.dtype in FLOATS else "f32"
    return ctx.lazy(tuple(shape), dtype, fn, 6 << len(places))


def _converted(ctx: Context, y: Value) -> Value:
    return ctx.lazy(y.shape, "f32", lambda idx: ctx.read(y, idx).to("f32"), y.cost + 1)


def _to_integer(e: Expr, dtype: str) -> Expr:
    """Converts an interpolated value to `dtype`; integers are truncated, like onnxruntime's."""
    low, high = int_range(dtype)
    return clamp(call("trunc", e), low, high).to("i32").to(dtype) if dtype != "i64" else e.to(dtype)


def _moved(ctx: Context, y: Value, axis: int, out: int, tables: list[np.ndarray], weight: np.ndarray | None) -> Value:
    """Resamples one dimension: a read per tap, weighted."""
    shape = tuple(out if k == axis else n for k, n in enumerate(y.shape))

    def at(idx: list[Index], table: np.ndarray) -> list[Index]:
        return [lookup([int(v) for v in table], i) if k == axis else i for k, i in enumerate(idx)]

    if weight is None:
        return ctx.lazy(shape, y.dtype, lambda idx: ctx.read(y, at(idx, tables[0])), y.cost + 1)
    source = ctx.stored(y)
    weights = [ctx.constant(np.ascontiguousarray(weight[:, t])) for t in range(weight.shape[1])]

    def fn(idx: list[Index]) -> Expr:
        total: Expr | None = None
        for table, w in zip(tables, weights):
            e = widen(ctx.read(source, at(idx, table))) * ctx.read(w, [idx[axis] if w.size > 1 else Index(0)]).to(
                "f64" if y.dtype == "f64" else "f32"
            )
            total = e if total is None else total + e
        assert total is not None
        return total.to(y.dtype)

    return ctx.lazy(shape, y.dtype, fn, 4 * len(tables))
