"""Reductions, ArgMax and ArgMin, cumulative sums, TopK."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.compiler.cpu.expr import FLOATS, Expr, Index, Var, call, const, index_value, int_range, reduce, select
from tilewright.compiler.cpu.expr import mathlib as m
from tilewright.compiler.cpu.ir.casts import cast, constant
from tilewright.compiler.cpu.ir.types import llvm_type
from tilewright.compiler.cpu.ir.writer import Operand, i64
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.ops.elementwise import widen
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value


def lowest(dtype: str) -> Expr:
    return const(-math.inf if dtype in FLOATS else 0 if dtype == "b" else int_range(dtype)[0], dtype)


def highest(dtype: str) -> Expr:
    return const(math.inf if dtype in FLOATS else 1 if dtype == "b" else int_range(dtype)[1], dtype)


def reduced(
    ctx: Context,
    x: Value,
    axes: Sequence[int],
    kind: str,
    init: Expr,
    element: Callable[[Expr], Expr] = lambda e: e,
    finish: Callable[[Expr], Expr] = lambda e: e,
    strict: bool = False,
) -> Value:
    """Folds `x` over `axes`, keeping them as dimensions of 1; lazy."""
    if x.acc is not None or x.cost > 20:
        ctx.buffer(x)
    shape = tuple(1 if k in axes else n for k, n in enumerate(x.shape))

    def fn(idx: list[Index]) -> Expr:
        over = [Var.new(x.shape[a]) for a in axes]
        at = list(idx)
        for a, v in zip(axes, over):
            at[a] = Index.of(v)
        e = element(widen(ctx.read(x, at)))
        return finish(reduce(kind, over, e, init, strict) if axes else e)

    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    return ctx.lazy(shape, init.dtype, fn, 3 + count)


def _sum_of(name: str) -> tuple[Callable[[Expr], Expr], Callable[[Expr], Expr]]:
    same = lambda e: e
    square = lambda e: e * e

    def magnitude(e: Expr) -> Expr:
        return call("fabs", e) if e.dtype in FLOATS else e if e.dtype[0] == "u" else call("abs", e)

    def root(e: Expr) -> Expr:
        return call("sqrt", e) if e.dtype in FLOATS else call("sqrt", e.to("f64")).to(e.dtype)

    def log(e: Expr) -> Expr:
        return m.log(e) if e.dtype in FLOATS else m.log(e.to("f64")).to(e.dtype)

    return {
        "ReduceSum": (same, same),
        "ReduceMean": (same, same),
        "ReduceL1": (magnitude, same),
        "ReduceL2": (square, root),
        "ReduceSumSquare": (square, same),
        "ReduceLogSum": (same, log),
    }[name]


@op(
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
)
def reduction(ctx: Context) -> None:
    x, name = ctx.input(), ctx.node.op
    given = ctx.const_input(1)
    axes = [] if given is None else sorted(int(a) % x.rank for a in given.reshape(-1))
    if not axes and not ctx.attr("noop_with_empty_axes", 0):
        axes = list(range(x.rank))
    dtype = ctx.out_dtype()
    kind = "f32" if dtype in ("f16", "bf16") else dtype
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    if name in ("ReduceMax", "ReduceMin"):
        bound = lowest(kind) if name == "ReduceMax" else highest(kind)
        fold = {"b": {"max": "or", "min": "and"}}.get(kind, {}).get(name[6:].lower(), name[6:].lower())
        y = reduced(ctx, x, axes, fold, bound)
    elif name == "ReduceProd":
        y = reduced(ctx, x, axes, "mul", const(1, kind))
    elif name == "ReduceLogSumExp":
        source = ctx.stored(x)
        top = ctx.stored(reduced(ctx, source, axes, "max", lowest(kind)))

        def peak(idx: list[Index]) -> Expr:
            t = ctx.read_broadcast(top, idx)
            return select(call("fabs", t) < math.inf, t, 0.0) if kind in FLOATS else t

        wide = kind if kind in FLOATS else "f64"
        moved = ctx.lazy(
            x.shape, wide, lambda idx: m.exp(widen(ctx.read(source, idx)).to(wide) - peak(idx).to(wide)), 12
        )
        total = ctx.stored(reduced(ctx, moved, axes, "add", const(0, wide)))
        y = ctx.lazy(total.shape, kind, lambda idx: (m.log(ctx.read(total, idx)) + peak(idx).to(wide)).to(kind), 14)
    else:
        element, finish = _sum_of(name)
        if name == "ReduceMean":
            # Division, as onnxruntime does, not multiplication by a rounded reciprocal.
            finish = lambda e: e / max(count, 1)
        y = reduced(ctx, x, axes, "add", const(0, kind), element, finish)
    out = ctx.out_shape()
    z = y if kind == dtype else ctx.lazy(y.shape, dtype, lambda idx: ctx.read(y, idx).to(dtype), y.cost + 1)
    ctx.alias(z, out)


@op("ArgMax", "ArgMin")
def arg_extremum(ctx: Context) -> None:
    """Finds the extremum first, then the first (or last) index that has it."""
    x = ctx.stored(ctx.input())
    axis, last = ctx.axis(0, x.rank), bool(ctx.attr("select_last_index", 0))
    kind = "f32" if x.dtype in ("f16", "bf16") else x.dtype
    high = ctx.node.op == "ArgMax"
    best = ctx.stored(reduced(ctx, x, [axis], "max" if high else "min", lowest(kind) if high else highest(kind)))
    n = x.shape[axis]

    def fn(idx: list[Index]) -> Expr:
        v = Var.new(n)
        at = [Index.of(v) if k == axis else i for k, i in enumerate(idx)]
        hit = widen(ctx.read(x, at)).eq(ctx.read(best, [Index(0) if k == axis else i for k, i in enumerate(idx)]))
        none = const(-1 if last else n, "i64")
        found = reduce("max" if last else "min", [v], select(hit, index_value(Index.of(v)), none), none)
        return select(found < n, found, 0) if not last else found

    ctx.alias(ctx.lazy(best.shape, "i64", fn, 3 + n), ctx.out_shape())


@op("CumSum", "CumProd")
def cumulative_sum(ctx: Context) -> None:
    x = ctx.stored(ctx.input(0))
    given = ctx.const_input(1)
    assert given is not None
    axis = int(given.reshape(-1)[0]) % max(x.rank, 1)
    exclusive, backwards = bool(ctx.attr("exclusive", 0)), bool(ctx.attr("reverse", 0))
    out = ctx.temp(x.shape, x.dtype)
    n, inner = x.shape[axis], math.prod(x.shape[axis + 1 :])
    outer = math.prod(x.shape[:axis])
    source, target = ctx.buffer(x), ctx.buffer(out)
    kind = "f32" if x.dtype in ("f16", "bf16") else x.dtype
    t, product = llvm_type(kind), ctx.node.op == "CumProd"

    def write(f: Function) -> None:
        slot = f.alloca(t, 1, 8)
        with f.loop(0, outer) as o, f.loop(0, inner) as i:
            f.store(constant(1 if product else 0, kind, 0), slot)
            with f.loop(0, n) as k:
                if backwards:
                    k = f.sub(n - 1, k)
                at = f.add(f.mul(f.add(f.mul(o, n), k), inner), i)
                v = f.read(source, at)
                v = v if kind == x.dtype else cast(f, v, x.dtype, kind)
                old = f.load(t, slot)
                new = f.fold("mul" if product else "add", kind, old, v, True)
                f.store(new, slot)
                result = old if exclusive else new
                f.write(target, at, result if kind == x.dtype else cast(f, result, kind, x.dtype))

    ctx.kernel(write, [out])
    ctx.bind(out)


@op("TopK")
def top_k(ctx: Context) -> None:
    """Inserts into a sorted list of k: stable, and fast for the small k of classifiers."""
    x = ctx.stored(ctx.input(0))
    axis, largest = ctx.axis(-1, x.rank), bool(ctx.attr("largest", 1))
    shape = ctx.out_shape()
    values, places = ctx.temp(shape, x.dtype), ctx.temp(shape, "i64")
    n, k, inner = x.shape[axis], shape[axis], math.prod(x.shape[axis + 1 :])
    outer = math.prod(x.shape[:axis])
    source, out, index = ctx.buffer(x), ctx.buffer(values), ctx.buffer(places)
    if x.dtype in ("bf16", "b"):
        raise ctx.unsupported(f"input type {x.dtype}", "float16, float32, float64, integers")
    sign = "o" if x.dtype in FLOATS else "u" if x.dtype[0] == "u" else "s"
    better = f"{sign}{'gt' if largest else 'lt'}"

    def write(f: Function) -> None:
        with f.loop(0, outer) as o, f.loop(0, inner) as i, f.loop(0, n) as j:

            def at(length: int, position: Operand) -> Operand:
                return f.add(f.mul(f.add(f.mul(o, length), position), inner), i)

            compare = f.fcmp if x.dtype in FLOATS else f.icmp
            v = f.read(source, at(n, j))
            filled = f.intrinsic("smin", j, k)
            # The place to insert: behind every element that is at least as good.
            slot = f.alloca("i64", 1, 8)
            f.store(i64(0), slot)
            with f.loop(0, filled) as p:
                beaten = compare(better, v, f.read(out, at(k, p)))
                behind = f.select(beaten, i64(0), i64(1))
                f.store(f.add(f.load("i64", slot), behind, ""), slot)
            place = f.load("i64", slot)
            with f.when(f.icmp("slt", place, k)):
                last = f.intrinsic("smin", filled, k - 1)
                with f.loop(0, f.sub(last, place)) as s:
                    to = f.sub(last, s)
                    origin = f.sub(to, 1)
                    for kept in (out, index):
                        f.write(kept, at(k, to), f.read(kept, at(k, origin)))
                f.write(out, at(k, place), v)
                f.write(index, at(k, place), j)

    ctx.kernel(write, [values, places])
    ctx.bind(values, 0)
    ctx.bind(places, 1)


@op("Hardmax")
def hardmax(ctx: Context) -> None:
    """Writes 1 at the first maximum of every row, 0 elsewhere."""
    x = ctx.stored(ctx.input())
    axis = ctx.axis(-1, x.rank)
    kind = "f32" if x.dtype in ("f16", "bf16") else x.dtype
    best = ctx.stored(reduced(ctx, x, [axis], "max", lowest(kind)))
    moved = lambda idx, i: [i if k == axis else own for k, own in enumerate(idx)]

    def first(idx: list[Index]) -> Expr:
        v, none = Var.new(x.shape[axis]), const(x.shape[axis], "i64")
        hit = widen(ctx.read(x, moved(idx, Index.of(v)))).eq(ctx.read(best, moved(idx, Index(0))))
        return reduce("min", [v], select(hit, index_value(Index.of(v)), none), none)

    place = ctx.stored(ctx.lazy(best.shape, "i64", first, 50))

    def fn(idx: list[Index]) -> Expr:
        return select(index_value(idx[axis]).eq(ctx.read(place, moved(idx, Index(0)))), const(1, x.dtype), 0)

    ctx.define(x.shape, x.dtype, fn, 3)
