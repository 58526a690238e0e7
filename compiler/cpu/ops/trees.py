"""TreeEnsemble: decision trees walked node by node."""

from __future__ import annotations

import math

from compiler.cpu.expr import const, select
from compiler.cpu.fuse import Context
from compiler.cpu.lower import Function
from compiler.cpu.ops.registry import op

COMPARISONS = ("ole", "olt", "oge", "ogt", "oeq", "une")  # by mode; as in the standard's list


@op("TreeEnsemble")
def tree_ensemble(ctx: Context) -> None:
    """x [rows, features] -> [rows, targets]: sums, minima or maxima of the weights of the leaves reached.

    Inputs behind x describe the nodes of all trees: feature, mode (position in `COMPARISONS`), split, next node if the
    comparison holds and if not (leaves lead to themselves), whether it holds for NaN, first weight (one more entry than
    nodes); then target and value of every weight, and the root of every tree. Attributes: depth, kind (add, min, max).
    """
    x, *arrays = (ctx.stored(ctx.input(k)) for k in range(11))
    kind, depth = str(ctx.attr("kind")), int(ctx.attr("depth"))
    rows, targets = ctx.out_shape()
    dtype = "f64" if x.dtype == "f64" else "f32"
    totals = ctx.temp((rows, targets), dtype)
    memory, nodes = ctx.buffer(totals), [ctx.buffer(v) for v in arrays]
    start = {"add": 0.0, "min": math.inf, "max": -math.inf}[kind]
    type_ = "double" if dtype == "f64" else "float"
    i_feature, i_mode, i_split, i_yes, i_no, i_missing, i_first, i_target, i_weight, i_roots = range(10)
    source = ctx.buffer(x)
    columns = x.shape[1]

    def entry(f: Function, which: int, at: str) -> str:
        return f.op(f"sext i32 {f.load(nodes[which], at)} to i64")

    def write(f: Function) -> None:
        place = f.alloca("i64", 1, 8)
        with f.loop(0, rows) as row:
            base = f.op(f"mul nsw i64 {row}, {targets}")
            with f.loop(0, targets) as t:
                f.store(memory, f.op(f"add nsw i64 {base}, {t}"), f.value(const(start, dtype)))
            with f.loop(0, arrays[-1].size) as tree:
                f.do(f"store i64 {entry(f, i_roots, tree)}, ptr {place}")
                with f.loop(0, depth):
                    node = f.op(f"load i64, ptr {place}")
                    at = f.op(f"add nsw i64 {f.op(f'mul nsw i64 {row}, {columns}')}, {entry(f, i_feature, node)}")
                    v = f.load(source, at)
                    v = v if x.dtype == dtype else f.cast(v, x.dtype, dtype)
                    limit = f.load(nodes[i_split], node)
                    how = f.load(nodes[i_mode], node)
                    holds = f.op(f"fcmp uno {type_} {v}, {v}")
                    holds = f.op(f"and i1 {holds}, {f.load(nodes[i_missing], node)}")
                    for number, comparison in enumerate(COMPARISONS):
                        this = f.op(f"icmp eq i8 {how}, {number}")
                        found = f.op(f"fcmp {comparison} {type_} {v}, {limit}")
                        holds = f.op(f"or i1 {holds}, {f.op(f'and i1 {this}, {found}')}")
                    following = f.op(f"select i1 {holds}, i64 {entry(f, i_yes, node)}, i64 {entry(f, i_no, node)}")
                    f.do(f"store i64 {following}, ptr {place}")
                leaf = f.op(f"load i64, ptr {place}")
                end = entry(f, i_first, f.op(f"add nsw i64 {leaf}, 1"))
                with f.loop(entry(f, i_first, leaf), end) as k:
                    at = f.op(f"add nsw i64 {base}, {entry(f, i_target, k)}")
                    f.store(memory, at, f.fold(kind, dtype, f.load(memory, at), f.load(nodes[i_weight], k), True))

    ctx.kernel(write, [totals])
    out = lambda idx: select(ctx.read(totals, idx).eq(start), const(0.0, dtype), ctx.read(totals, idx))
    ctx.define((rows, targets), ctx.out_dtype(), lambda idx: out(idx).to(ctx.out_dtype()), 2)
