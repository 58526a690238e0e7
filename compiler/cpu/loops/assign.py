"""Assignments over rectangular domains as loop nests, and rows of them.

The innermost loop is written in vectors where its accesses are contiguous, with the ragged end under a mask (or, on
targets without masks, element by element). Everything else stays loops over scalars with `noalias` pointers and
constant strides, left to LLVM's vectoriser.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.compiler.cpu.expr import Assignment, Buffer, Expr, Index, Rewriter, Var, indices, load, merge, walk
from tilewright.compiler.cpu.ir.types import llvm_type
from tilewright.compiler.cpu.ir.writer import Number
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.loops.lanes import lanes_for, over_lanes
from tilewright.compiler.cpu.loops.streaming import emit_past_caches, streams
from tilewright.compiler.cpu.loops.transpose import emit_transpose

ACC_TILE = 2048  # elements of an in-cache accumulator row
STREAM_OPERATIONS = 22  # per element; with more the processor does not run far enough ahead for it to pay
_BLOCKS = (8192, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16)  # elements of a loop's blocks that threads share
Bounds = Mapping[Var, Number]  # extents of loops where they are not the variables' own


def emit_assign(f: Function, what: Assignment, bounds: Bounds | None = None) -> None:
    """Writes `buffer[offset] = body` over the variables' domain, by the function's schedule.

    Args:
        bounds: extents of variables, which are then not merged.
    """
    if any(v.extent == 0 for v in what.variables):
        return
    if bounds is None:
        merged, (merged_body,), merged_offset = merge(what.variables, [what.body], what.offset)
        what = Assignment(merged, merged_body, what.buffer, merged_offset)
    variables, body, buffer, offset = what
    if f.sharing.is_parallel:
        _divide(f, what, bounds)
        return
    folds = [e for e in walk(body) if e.op == "reduce"]
    if len(folds) == 1 and variables and _column_wise(folds[0], variables[-1]):
        _assign_by_rows(f, what, folds[0])
        return
    if bounds is None and emit_transpose(f, what):
        return
    lanes = lanes_for(f.module.target, f.schedule, variables[-1], [body], offset) if variables else 0
    write = lambda: f.write(buffer, f.index(offset), f.value(body))
    if not lanes:
        f.plain = f.plain or bool(variables)
        with f.loops(variables, bounds):
            write()
        return
    lane = variables[-1]

    def nest() -> None:
        with f.loops(variables[:-1], bounds):
            over_lanes(f, lane, lanes, f.schedule.unroll, (bounds or {}).get(lane), lambda _: write(), write)

    operations = sum(e.op not in ("const", "load") for e in set(walk(body)))
    if bounds is None and operations <= STREAM_OPERATIONS and streams(f, buffer, offset, lane, lanes):
        emit_past_caches(f, buffer, nest)
    else:
        nest()


def _divide(f: Function, what: Assignment, bounds: Bounds | None) -> None:
    """Writes an assignment with an outermost loop shared among the threads: blocks of the longest one, if possible."""
    variables, body, buffer, offset = what
    longest = max(variables, key=lambda v: v.extent, default=None)
    block = next((b for b in _BLOCKS if longest is not None and longest.extent % b == 0), 0)
    if longest is None or bounds is not None or longest.extent < 2 or (not block and longest is variables[-1]):
        with f.sharing.single_thread():
            emit_assign(f, what, bounds)
        return
    if block and longest.extent > block:
        outer, inner = Var.new(longest.extent // block), Var.new(block)
        change = Rewriter({longest: Index.of(outer) * block + Index.of(inner)})
        body, offset = change(body), change.index(offset)
        rest = [inner if v is longest else v for v in variables]
    else:
        outer, rest = longest, [v for v in variables if v is not longest]
    with f.sharing.divided(outer.extent) as i:
        f.variables[outer] = i
        emit_assign(f, Assignment(rest, body, buffer, offset))


def emit_rows(f: Function, outer: list[Var], parts: list[Assignment]) -> None:
    """Writes the parts in order for every point of `outer`; buffers of the role `local` hold one point's values."""
    for _, _, buffer, _ in parts:
        if buffer.role == "local":
            f.locals[buffer] = f.alloca(llvm_type(buffer.dtype, True), buffer.size)
    longest = max(outer, key=lambda v: v.extent, default=None)
    with f.loops(outer, divide=longest) if longest is not None else f.sharing.single_thread():
        for part in parts:
            emit_assign(f, part)


def _column_wise(fold: Expr, inner: Var) -> bool:
    """True if the loop variable, not the reduction's, walks memory contiguously."""
    last = fold.value[1][-1]
    reads = list(indices(fold.args[0]))
    if inner.extent < 4:
        return False
    along = [i.coefficient(inner) for i in reads]
    return any(c is not None and 0 < abs(c) <= 4 for c in along) and not any(i.coefficient(last) == 1 for i in reads)


def _assign_by_rows(f: Function, what: Assignment, fold: Expr) -> None:
    """Keeps a row of accumulators, so that the innermost loop is the contiguous one."""
    kind, over, strict = fold.value
    inner, outer = what.variables[-1], what.variables[:-1]
    width = min(inner.extent, ACC_TILE)
    acc = Buffer("acc", fold.dtype, width, "local")
    f.locals[acc] = f.alloca(llvm_type(fold.dtype, True), width)
    start, j = Var.new(inner.extent), Var.new(width)
    moved = Rewriter({inner: Index.of(start) + Index.of(j)})
    inside, init = moved(fold.args[0]), moved(fold.args[1])
    at = Index.of(j)
    here = load(acc, at)
    after = Rewriter(moved.variables, lambda e: here if e is fold else None)(what.body)
    with f.loops(outer), f.loop(0, inner.extent, width) as s:
        f.variables[start] = s
        left = f.sub(inner.extent, s)
        bounds: Bounds = {j: f.intrinsic("smin", left, width)} if inner.extent % width else {}
        step = Expr("fold", (here, inside), fold.dtype, (kind, strict))
        emit_assign(f, Assignment([j], init, acc, at), bounds)
        emit_assign(f, Assignment([*over, j], step, acc, at), bounds)
        emit_assign(f, Assignment([j], after, what.buffer, moved.index(what.offset)), bounds)
