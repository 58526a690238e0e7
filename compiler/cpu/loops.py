"""Loop nests: assignments over rectangular domains, reductions, rows of both.

The innermost loop is written in vectors where its accesses are contiguous, with the ragged end under a mask (or, on
targets without masks, element by element). Everything else stays loops over scalars with `noalias` pointers and
constant strides, which LLVM's vectoriser takes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from compiler.cpu.expr import FLOATS, SIZES, Buffer, Expr, Index, Rewriter, Var, indices, load, merge, walk
from compiler.cpu.llvm_types import literal, llvm_type
from compiler.cpu.microkernels.square import transpose_square
from compiler.cpu.schedule import LoopSchedule

if TYPE_CHECKING:
    from compiler.cpu.lower import Function

ACC_TILE = 2048  # elements of an in-cache accumulator row
LINE = 64  # bytes of a cache line
STREAM_BYTES = 16 << 20  # results from this size on are not worth keeping in caches
STREAM_OPERATIONS = 22  # per element; with more the processor does not run far enough ahead for it to pay
SQUARE = 16  # elements of a side of the blocks that are transposed in registers
_BLOCKS = (8192, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16)  # elements of a loop's blocks that threads share
_MIN_EXTENT = 4  # a shorter innermost loop is not worth vectors
Part = tuple[list[Var], Expr, Buffer, Index]  # buffer[index] = expression over the variables' domain
_VECTOR_OPS = {"const", "load", "index", "add", "sub", "mul", "div", "neg", "and", "or", "xor", "shl", "shr", "cmp",
               "select", "bitcast", "cast", "call", "fold"}  # fmt: skip
_VECTOR_TYPES = {"f32", "f64", "b", *(f"{s}{n}" for s in "iu" for n in (8, 16, 32, 64))}


def lanes_for(
    f: Function, schedule: LoopSchedule, lane: Var, exprs: Sequence[Expr], offset: Index | None = None
) -> int:
    """Elements of a vector for the loop over `lane`; 0 where these expressions cannot be written in vectors."""
    target = f.module.target
    if not (schedule.vectorise and target.explicit_vectors) or lane.extent < _MIN_EXTENT:
        return 0
    if offset is not None and offset.coefficient(lane) != 1:
        return 0
    widest = 1
    for e in (x for root in exprs for x in walk(root)):
        if e.op not in _VECTOR_OPS or e.dtype not in _VECTOR_TYPES:
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
    f: Function,
    lane: Var,
    lanes: int,
    schedule: LoopSchedule,
    bound: str | None,
    body: Callable[[int], None],
    scalar: Callable[[], None],
) -> None:
    """The loop over `lane` in vectors.

    Args:
        bound: run-time extent, None for the variable's own.
        body: writes the body in vector mode; its argument counts the copies of an unrolled loop.
        scalar: writes the body for one element, for the ends of loops on targets without masks.
    """
    step = lanes * schedule.unroll
    whole: int | str
    rest: int | str
    ends: str
    extent = lane.extent if bound is None else int(bound) if bound.isdigit() else None
    if extent is not None:
        bound, whole, rest = None, extent // step * step, extent // lanes * lanes
        ends = "" if extent % lanes == 0 else str(extent)
    else:
        whole = f.op(f"sub nsw i64 {bound}, {f.op(f'urem i64 {bound}, {step}')}")
        rest = f.op(f"sub nsw i64 {bound}, {f.op(f'urem i64 {bound}, {lanes}')}")
        assert bound is not None
        ends = bound

    def run(low: str | int, high: str | int, by: int, copies: int) -> None:
        with f.loop(low, high, by) as i:
            for u in range(copies):
                f.variables[lane] = f.op(f"add nuw nsw i64 {i}, {u * lanes}") if u else i
                with f.vector(lane, lanes):
                    body(u)

    if bound is not None or whole:
        run(0, whole, step, schedule.unroll)
    if schedule.unroll > 1 and (bound is not None or whole != rest):
        run(whole, rest, lanes, 1)
    if not ends:
        return
    if not f.module.target.has_masks:
        with f.loop(rest, ends) as i:
            f.variables[lane] = i
            scalar()
        return
    if extent is not None:
        mask = f"<{', '.join('i1 true' if k < extent % lanes else 'i1 false' for k in range(lanes))}>"
        f.variables[lane] = str(rest)
        with f.vector(lane, lanes, mask):
            body(0)
        return
    with f.when(f.op(f"icmp slt i64 {rest}, {bound}")):
        f.variables[lane] = str(rest)
        with f.vector(lane, lanes):
            left = f.splat(f.op(f"trunc i64 {f.op(f'sub nsw i64 {bound}, {rest}')} to i32"), "i32")
            count = f"<{lanes} x i32>"
            iota = f"<{', '.join(f'i32 {k}' for k in range(lanes))}>"
            f.mask = f.op(f"icmp ult {count} {iota}, {left}")
            body(0)


def emit_assign(
    f: Function,
    variables: list[Var],
    body: Expr,
    buffer: Buffer,
    offset: Index,
    bounds: dict[Var, str] | None = None,
) -> None:
    """`buffer[offset] = body` over the variables' domain, by the function's schedule.

    Args:
        bounds: run-time extents of variables, which are then not merged.
    """
    schedule = f.schedule
    if any(v.extent == 0 for v in variables):
        return
    if bounds is None:
        variables, (body,), offset = merge(variables, [body], offset)
    if f.module.threads > 1 and not f.shared:
        _divide(f, variables, body, buffer, offset, bounds)
        return
    folds = [e for e in walk(body) if e.op == "reduce"]
    if len(folds) == 1 and variables and _column_wise(folds[0], variables[-1]):
        _assign_by_rows(f, variables, body, folds[0], buffer, offset)
        return
    if bounds is None and emit_transpose(f, variables, body, buffer, offset):
        return
    lanes = lanes_for(f, schedule, variables[-1], [body], offset) if variables else 0
    if not lanes:
        f.plain = f.plain or bool(variables)
        with f.loops(variables, bounds):
            f.store(buffer, f.index(offset), f.value(body))
        return
    store = lambda: f.store(buffer, f.index(offset), f.value(body))
    lane = variables[-1]

    def nest() -> None:
        with f.loops(variables[:-1], bounds):
            over_lanes(f, lane, lanes, schedule, (bounds or {}).get(lane), lambda _: store(), store)

    operations = sum(e.op not in ("const", "load") for e in set(walk(body)))
    if bounds is None and operations <= STREAM_OPERATIONS and streams(f, buffer, offset, lane, lanes):
        either_way(f, buffer, nest)
    else:
        nest()


def _divide(
    f: Function,
    variables: list[Var],
    body: Expr,
    buffer: Buffer,
    offset: Index,
    bounds: dict[Var, str] | None,
) -> None:
    """The same with one loop outermost and shared among the threads: blocks of the longest loop, where it has such."""
    longest = max(variables, key=lambda v: v.extent, default=None)
    block = next((b for b in _BLOCKS if longest is not None and longest.extent % b == 0), 0)
    if longest is None or bounds is not None or longest.extent < 2 or (not block and longest is variables[-1]):
        with f.alone():
            emit_assign(f, variables, body, buffer, offset, bounds)
        return
    if block and longest.extent > block:
        outer, inner = Var.new(longest.extent // block), Var.new(block)
        change = Rewriter({longest: Index.of(outer) * block + Index.of(inner)})
        body, offset = change(body), change.index(offset)
        rest = [inner if v is longest else v for v in variables]
    else:
        outer, rest = longest, [v for v in variables if v is not longest]
    with f.divided(outer.extent) as i:
        f.variables[outer] = i
        emit_assign(f, rest, body, buffer, offset)


def either_way(f: Function, buffer: Buffer, nest: Callable[[], None]) -> None:
    """`nest` with stores past the caches where `buffer` starts at a line of theirs, else with plain ones."""
    address = f.op(f"ptrtoint ptr {f.pointer(buffer)} to i64")
    aligned = f.op(f"icmp eq i64 {f.op(f'and i64 {address}, {LINE - 1}')}, 0")
    with f.when(aligned):
        f.streaming = f.streamed = True
        nest()
        f.streaming = False
    with f.when(f.op(f"xor i1 {aligned}, true")):
        nest()


def streams(f: Function, buffer: Buffer, offset: Index, lane: Var, lanes: int) -> bool:
    """The result is larger than caches and every vector one of their lines: written past them, it costs no read."""
    size = SIZES[buffer.dtype]
    steps = [c for atom, c in offset.terms if atom != lane]
    return (
        buffer.role == "output"
        and buffer.nbytes >= STREAM_BYTES
        and lanes * size == LINE == f.module.target.vector_bits // 8
        and all(n * size % LINE == 0 for n in (offset.const, *steps))
    )


def emit_transpose(f: Function, variables: list[Var], body: Expr, buffer: Buffer, offset: Index) -> bool:
    """A copy that is contiguous along another loop than its source: square blocks turned in registers.

    Returns:
        Whether it is such a copy.
    """
    target, size, schedule = f.module.target, SIZES[body.dtype], f.schedule
    n = min(target.vector_bits // 8 // size, SQUARE)
    if body.op != "load" or not target.explicit_vectors or body.dtype not in _VECTOR_TYPES or size == 1:
        return False
    source, at = body.value
    lane = variables[-1] if variables else None
    along = [v for v in variables[:-1] if at.coefficient(v) == 1]
    if lane is None or not along or offset.coefficient(lane) != 1 or min(lane.extent, along[-1].extent) < n // 2:
        return False
    row = along[-1]
    if at.coefficient(lane) in (None, 0, 1) or offset.coefficient(row) is None:
        return False
    outer = [v for v in variables[:-1] if v is not row]

    def block(rows: int, columns: int) -> None:
        """From `row` and `lane` on, `rows` of the n rows of the result, `columns` of its n columns."""
        transpose_square(f, (source, at, row, rows), (buffer, offset, lane, columns), n, body.dtype)

    def nest() -> None:
        tall, wide = (max(x // n, 1) * n for x in (schedule.tile_rows, schedule.tile_columns))
        with f.loops(outer):
            for r_low, r_high, r_step, rows in _pieces(row.extent, tall, n):
                with f.loop(r_low, r_high, r_step) as r0:
                    for c_low, c_high, c_step, columns in _pieces(lane.extent, wide, n):
                        with f.loop(c_low, c_high, c_step) as c0:
                            r_end = f.op(f"add nsw i64 {r0}, {r_step}")
                            c_end = f.op(f"add nsw i64 {c0}, {c_step}")
                            across, down = (c0, c_end, n), (r0, r_end, n)
                            order = (across, down) if schedule.rows_first else (down, across)
                            with f.loop(*order[0]) as one, f.loop(*order[1]) as two:
                                c, r = (one, two) if schedule.rows_first else (two, one)
                                f.variables[row], f.variables[lane] = r, c
                                block(rows, columns)

    if streams(f, buffer, offset, lane, n):
        either_way(f, buffer, nest)
    else:
        nest()
    return True


def _pieces(extent: int, tile: int, n: int) -> list[tuple[int, int, int, int]]:
    """Loops (low, high, step, elements of a block) that cover an extent: whole tiles, whole blocks, the ragged end."""
    tiles, blocks = extent // tile * tile, extent // n * n
    pieces = [(0, tiles, tile, n), (tiles, blocks, n, n), (blocks, extent, n, extent - blocks)]
    return [p for p in pieces if p[0] < p[1]]


def emit_rows(f: Function, outer: list[Var], parts: list[Part]) -> None:
    """For every point of `outer` the parts in order; buffers of the role `local` hold one point's values."""
    for _, _, buffer, _ in parts:
        if buffer.role == "local":
            f.locals[buffer] = f.alloca(llvm_type(buffer.dtype, True), buffer.size)
    longest = max(outer, key=lambda v: v.extent, default=None)
    with f.loops(outer, divide=longest) if longest is not None else f.alone():
        for part in parts:
            emit_assign(f, *part)


def emit_reduce(f: Function, e: Expr) -> str:
    """The value of a reduction: partial sums in vectors along the last variable where that is contiguous."""
    kind, variables, strict = e.value
    schedule = f.schedule
    variables, (body,), _ = merge(list(variables), [e.args[0]], Index(0))
    t = llvm_type(e.dtype)
    slot = f.alloca(t, 1, 8)
    f.do(f"store {t} {f.value(e.args[1])}, ptr {slot}")
    saved = dict(f.memo)
    lanes = lanes_for(f, schedule, variables[-1], [body]) if variables and not (strict and e.dtype in FLOATS) else 0
    if lanes:
        _fold_lanes(f, schedule, kind, e.dtype, variables, body, lanes, slot)
    else:
        f.plain = True
        with f.loops(variables):
            _fold_into(f, kind, e.dtype, slot, f.value(body), strict)
    f.memo = saved
    return f.op(f"load {t}, ptr {slot}")


def _fold_into(f: Function, kind: str, dtype: str, slot: str, value: str, strict: bool = False) -> None:
    t = f.type(dtype)
    old = f.op(f"load {t}, ptr {slot}")
    f.do(f"store {t} {f.fold(kind, dtype, old, value, strict)}, ptr {slot}")


_START = {"add": 0, "mul": 1, "or": 0, "and": -1}


def neutral(kind: str, dtype: str) -> float:
    """What changes nothing when folded."""
    if kind in _START:
        return bool(_START[kind]) if dtype == "b" else _START[kind]
    if dtype in FLOATS:
        return float("-inf") if kind in ("max", "top") else float("inf")
    bits, signed = 8 * SIZES[dtype], dtype[0] == "i"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return low if kind == "max" else high


def _fold_lanes(
    f: Function, schedule: LoopSchedule, kind: str, dtype: str, variables: list[Var], body: Expr, lanes: int, slot: str
) -> None:
    """Several vectors of partial results, joined at the end."""
    lane = variables[-1]
    count = max(1, min(schedule.partial, lane.extent // lanes))
    vec, start = f"<{lanes} x {llvm_type(dtype)}>", literal(neutral(kind, dtype), dtype)
    parts = [f.alloca(vec, 1, 64) for _ in range(count)]
    for p in parts:
        f.do(f"store {vec} splat ({llvm_type(dtype)} {start}), ptr {p}")

    def fold(copy: int) -> None:
        value = f.value(body)
        if f.mask:
            value = f.op(f"select <{lanes} x i1> {f.mask}, {vec} {value}, {vec} splat ({llvm_type(dtype)} {start})")
        _fold_into(f, kind, dtype, parts[copy], value)

    with f.loops(variables[:-1]):
        over_lanes(
            f, lane, lanes, replace(schedule, unroll=count), None, fold,
            lambda: _fold_into(f, kind, dtype, slot, f.value(body)),
        )  # fmt: skip
    values = [f.op(f"load {vec}, ptr {p}") for p in parts]
    f.lanes = lanes
    while len(values) > 1:
        values = [f.fold(kind, dtype, a, b, False) for a, b in zip(values[::2], values[1::2])] + values[
            len(values) // 2 * 2 :
        ]
    f.lanes = 0
    _fold_into(f, kind, dtype, slot, f.across(kind, dtype, values[0], lanes))


def _column_wise(fold: Expr, inner: Var) -> bool:
    """The loop variable, not the reduction's, walks memory contiguously."""
    last = fold.value[1][-1]
    reads = list(indices(fold.args[0]))
    if inner.extent < 4 or any(inner in i.terms for i in reads):
        return False
    along = [i.coefficient(inner) for i in reads]
    return any(c is not None and 0 < abs(c) <= 4 for c in along) and not any(i.coefficient(last) == 1 for i in reads)


def _assign_by_rows(f: Function, variables: list[Var], body: Expr, fold: Expr, buffer: Buffer, offset: Index) -> None:
    """Keeps a row of accumulators, so that the innermost loop is the contiguous one."""
    kind, over, strict = fold.value
    inner, outer = variables[-1], variables[:-1]
    width = min(inner.extent, ACC_TILE)
    acc = Buffer("acc", fold.dtype, width, "local")
    f.locals[acc] = f.alloca(llvm_type(fold.dtype, True), width)
    start, j = Var.new(inner.extent), Var.new(width)
    moved = Rewriter({inner: Index.of(start) + Index.of(j)})
    inside, init = moved(fold.args[0]), moved(fold.args[1])
    here = load(acc, Index.of(j))
    after = Rewriter(moved.variables, lambda e: here if e is fold else None)(body)
    with f.loops(outer), f.loop(0, inner.extent, width) as s:
        f.variables[start] = s
        left = f.op(f"sub nsw i64 {inner.extent}, {s}")
        ragged = inner.extent % width != 0
        bounds = {j: f.intrinsic("smin", "i64", left, str(width))} if ragged else {}
        at = Index.of(j)
        emit_assign(f, [j], init, acc, at, bounds)
        emit_assign(f, [*over, j], Expr("fold", (here, inside), fold.dtype, (kind, strict)), acc, at, bounds)
        emit_assign(f, [j], after, buffer, moved.index(offset), bounds)
