"""Writes the innermost loop in vectors where that is possible, with its ragged end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.compiler.cpu.expr import FLOATS, SIZES, Expr, Index, Var, walk
from tilewright.compiler.cpu.ir.emitter import Emitter
from tilewright.compiler.cpu.ir.writer import Number, Operand, i64
from tilewright.compiler.cpu.schedule import LoopSchedule
from tilewright.compiler.cpu.target import Target

_MIN_EXTENT = 4  # a shorter innermost loop is not worth vectors
_VECTOR_OPS = {"const", "load", "index", "add", "sub", "mul", "div", "neg", "and", "or", "xor", "shl", "shr", "cmp",
               "select", "bitcast", "cast", "call", "fold"}  # fmt: skip
VECTOR_TYPES = {"f32", "f64", "b", *(f"{s}{n}" for s in "iu" for n in (8, 16, 32, 64))}


def lanes_for(
    target: Target, schedule: LoopSchedule, lane: Var, exprs: Sequence[Expr], offset: Index | None = None
) -> int:
    """Elements of a vector for the loop over `lane`; 0 where these expressions cannot be written in vectors."""
    if not (schedule.vectorise and target.explicit_vectors) or lane.extent < _MIN_EXTENT:
        return 0
    if offset is not None and offset.coefficient(lane) != 1:
        return 0
    widest = 1
    for e in (x for root in exprs for x in walk(root)):
        if e.op not in _VECTOR_OPS or e.dtype not in VECTOR_TYPES:
            return 0
        if e.op == "div" and e.dtype not in FLOATS:
            return 0  # lanes behind the end would divide by zero
        if e.op == "load" and e.value[1].coefficient(lane) not in (0, 1):
            return 0
        if e.op == "index" and e.value.coefficient(lane) is None:
            return 0
        if e.op != "const" and not (e.op == "index" and e.value.coefficient(lane) == 0):
            widest = max(widest, SIZES[e.dtype])
    return target.vector_bits // 8 // widest


def over_lanes(
    f: Emitter,
    lane: Var,
    lanes: int,
    unroll: int,
    bound: Number | None,
    body: Callable[[int], None],
    scalar: Callable[[], None],
) -> None:
    """Writes the loop over `lane` in vectors.

    Args:
        unroll: vectors per iteration.
        bound: extent, None for the variable's own.
        body: writes the body in vector mode; its argument counts the copies of an unrolled loop.
        scalar: writes the body for one element, for the ends of loops on targets without masks.
    """
    step = lanes * unroll
    extent = lane.extent if bound is None else bound

    def run(low: Number, high: Number, by: int, copies: int) -> None:
        with f.loop(low, high, by) as i:
            for u in range(copies):
                f.variables[lane] = f.add(i, u * lanes, "nuw nsw") if u else i
                with f.vector(lane, lanes):
                    body(u)

    if isinstance(extent, int):
        whole, rest = extent // step * step, extent // lanes * lanes
        if whole:
            run(0, whole, step, unroll)
        if whole != rest:
            run(whole, rest, lanes, 1)
        if extent == rest:
            return
        if f.module.target.has_masks:
            f.variables[lane] = i64(rest)
            with f.vector(lane, lanes, first_lanes(extent % lanes, lanes)):
                body(0)
            return
        end: Number = rest
    else:
        whole_end = f.sub(extent, f.urem(extent, step))
        end = f.sub(extent, f.urem(extent, lanes))
        run(0, whole_end, step, unroll)
        if unroll > 1:
            run(whole_end, end, lanes, 1)
        if f.module.target.has_masks:
            _last_vector(f, lane, lanes, end, extent, body)
            return
    with f.loop(end, extent) as i:
        f.variables[lane] = i
        scalar()


def _last_vector(
    f: Emitter, lane: Var, lanes: int, rest: Operand, extent: Operand, body: Callable[[int], None]
) -> None:
    """Writes the elements from `rest` to `extent`, less than a vector of them, if there are any."""
    with f.when(f.icmp("slt", rest, extent)):
        f.variables[lane] = rest
        with f.vector(lane, lanes):
            left = f.splat(f.convert("trunc", f.sub(extent, rest), "i32"), lanes)
            iota = Operand(f"<{', '.join(f'i32 {k}' for k in range(lanes))}>", left.type)
            f.mask = f.icmp("ult", iota, left)
            body(0)


def first_lanes(count: int, lanes: int) -> Operand:
    """A mask of the first `count` lanes."""
    bits = ", ".join("i1 true" if k < count else "i1 false" for k in range(lanes))
    return Operand(f"<{bits}>", f"<{lanes} x i1>")
