"""TreeEnsemble: decision trees walked node by node."""

from __future__ import annotations

import math

from tilewright.compiler.cpu.expr import const, select
from tilewright.compiler.cpu.ir.casts import cast
from tilewright.compiler.cpu.ir.writer import Operand
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context

COMPARISONS = ("ole", "olt", "oge", "ogt", "oeq", "une")  # by mode; as in the standard's list


@op("TreeEnsemble")
def tree_ensemble(ctx: Context) -> None:
    """Evaluates trees: x [rows, features] -> [rows, targets], sums, minima or maxima of the weights of the leaves
    reached.

    Inputs behind x describe the nodes of all trees: feature, mode (position in `COMPARISONS`), split, next node if the
    comparison holds and if not (leaves lead to themselves), 1 if it holds for NaN, first weight (one more entry than
    nodes). Then follow target and value of every weight, and the root of every tree. Attributes: depth, kind (add, min,
    max).
    """
    x, *arrays = (ctx.stored(ctx.input(k)) for k in range(11))
    kind, depth = str(ctx.attr("kind")), int(ctx.attr("depth"))
    rows, targets = ctx.out_shape()
    dtype = "f64" if x.dtype == "f64" else "f32"
    totals = ctx.temp((rows, targets), dtype)
    memory, nodes = ctx.buffer(totals), [ctx.buffer(v) for v in arrays]
    start = {"add": 0.0, "min": math.inf, "max": -math.inf}[kind]
    i_feature, i_mode, i_split, i_yes, i_no, i_missing, i_first, i_target, i_weight, i_roots = range(10)
    source = ctx.buffer(x)
    columns = x.shape[1]

    def entry(f: Function, which: int, at: Operand) -> Operand:
        return f.convert("sext", f.read(nodes[which], at), "i64")

    def write(f: Function) -> None:
        place = f.alloca("i64", 1, 8)
        with f.loop(0, rows) as row:
            base = f.mul(row, targets)
            with f.loop(0, targets) as t:
                f.write(memory, f.add(base, t), f.value(const(start, dtype)))
            with f.loop(0, arrays[-1].size) as tree:
                f.store(entry(f, i_roots, tree), place)
                with f.loop(0, depth):
                    node = f.load("i64", place)
                    v = f.read(source, f.add(f.mul(row, columns), entry(f, i_feature, node)))
                    v = v if x.dtype == dtype else cast(f, v, x.dtype, dtype)
                    limit = f.read(nodes[i_split], node)
                    how = f.read(nodes[i_mode], node)
                    holds = f.and_(f.fcmp("uno", v, v), f.read(nodes[i_missing], node))
                    for number, comparison in enumerate(COMPARISONS):
                        this = f.icmp("eq", how, number)
                        holds = f.or_(holds, f.and_(this, f.fcmp(comparison, v, limit)))
                    f.store(f.select(holds, entry(f, i_yes, node), entry(f, i_no, node)), place)
                leaf = f.load("i64", place)
                end = entry(f, i_first, f.add(leaf, 1))
                with f.loop(entry(f, i_first, leaf), end) as k:
                    at = f.add(base, entry(f, i_target, k))
                    f.write(memory, at, f.fold(kind, dtype, f.read(memory, at), f.read(nodes[i_weight], k), True))

    ctx.kernel(write, [totals])
    out = lambda idx: select(ctx.read(totals, idx).eq(start), const(0.0, dtype), ctx.read(totals, idx))
    ctx.define((rows, targets), ctx.out_dtype(), lambda idx: out(idx).to(ctx.out_dtype()), 2)
