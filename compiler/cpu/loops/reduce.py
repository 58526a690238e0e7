"""Reductions: partial results in vectors along the last variable where that is contiguous, else one after the other."""

from __future__ import annotations

from tilewright.compiler.cpu.expr import FLOATS, SIZES, Expr, Index, Var, merge
from tilewright.compiler.cpu.ir.casts import constant
from tilewright.compiler.cpu.ir.emitter import Emitter
from tilewright.compiler.cpu.ir.types import llvm_type, vector
from tilewright.compiler.cpu.ir.writer import Operand
from tilewright.compiler.cpu.loops.lanes import lanes_for, over_lanes
from tilewright.compiler.cpu.schedule import LoopSchedule

_START = {"add": 0, "mul": 1, "or": 0, "and": -1}


def neutral(kind: str, dtype: str) -> float:
    """The neutral element of a fold."""
    if kind in _START:
        return bool(_START[kind]) if dtype == "b" else _START[kind]
    if dtype in FLOATS:
        return float("-inf") if kind in ("max", "top") else float("inf")
    bits, signed = 8 * SIZES[dtype], dtype[0] == "i"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return low if kind == "max" else high


def emit_reduce(f: Emitter, e: Expr, schedule: LoopSchedule) -> tuple[Operand, bool]:
    """Writes a reduction; returns its value, and True if it became a loop over scalars."""
    kind, variables, strict = e.value
    variables, (body,), _ = merge(list(variables), [e.args[0]], Index(0))
    t = llvm_type(e.dtype)
    slot = f.alloca(t, 1, 8)
    f.store(f.value(e.args[1]), slot)
    with f.scope():
        lanes = 0
        if variables and not (strict and e.dtype in FLOATS):
            lanes = lanes_for(f.module.target, schedule, variables[-1], [body])
        if lanes:
            _fold_lanes(f, schedule, kind, e.dtype, variables, body, lanes, slot)
        else:
            with f.loops(variables):
                _fold_into(f, kind, e.dtype, slot, f.value(body), strict)
    return f.load(t, slot), not lanes


def _fold_into(f: Emitter, kind: str, dtype: str, slot: Operand, value: Operand, strict: bool = False) -> None:
    f.store(f.fold(kind, dtype, f.load(value.type, slot), value, strict), slot)


def _fold_lanes(
    f: Emitter, schedule: LoopSchedule, kind: str, dtype: str, variables: list[Var], body: Expr, lanes: int,
    slot: Operand,
) -> None:  # fmt: skip
    """Writes a reduction by several vectors of partial results, joined at the end."""
    lane = variables[-1]
    count = max(1, min(schedule.partial, lane.extent // lanes))
    vec, start = vector(llvm_type(dtype), lanes), constant(neutral(kind, dtype), dtype, lanes)
    parts = [f.alloca(vec, 1, 64) for _ in range(count)]
    for p in parts:
        f.store(start, p)

    def fold(copy: int) -> None:
        value = f.value(body)
        if f.mask is not None:
            value = f.select(f.mask, value, start)
        _fold_into(f, kind, dtype, parts[copy], value)

    with f.loops(variables[:-1]):
        over_lanes(f, lane, lanes, count, None, fold, lambda: _fold_into(f, kind, dtype, slot, f.value(body)))
    values = [f.load(vec, p) for p in parts]
    while len(values) > 1:
        pairs = [f.fold(kind, dtype, a, b, False) for a, b in zip(values[::2], values[1::2])]
        values = pairs + values[len(values) // 2 * 2 :]
    _fold_into(f, kind, dtype, slot, f.across(kind, dtype, values[0], lanes))
