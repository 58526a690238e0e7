"""Copies contiguous along another loop than their source: square blocks transposed in registers."""

from __future__ import annotations

from msgspec import Struct

from tilewright.compiler.cpu.expr import SIZES, Assignment, Buffer, Index, Var
from tilewright.compiler.cpu.ir.types import llvm_type, vector
from tilewright.compiler.cpu.ir.writer import Operand, Writer
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.loops.lanes import VECTOR_TYPES, first_lanes
from tilewright.compiler.cpu.loops.streaming import emit_past_caches, streams

SQUARE = 16  # most elements of a side of a block


class Side(Struct, frozen=True):
    """The source or the destination of the copy of a block.

    Attributes:
        buffer: memory.
        index: index of an element.
        along: the loop along which the memory is contiguous.
        count: number of the block's elements along it.
    """

    buffer: Buffer
    index: Index
    along: Var
    count: int


def emit_transpose(f: Function, what: Assignment) -> bool:
    """Writes the assignment if it is such a copy.

    Returns:
        True if it is one.
    """
    variables, body, buffer, offset = what
    target, size, schedule = f.module.target, SIZES[body.dtype], f.schedule
    n = min(target.vector_bits // 8 // size, SQUARE)
    if body.op != "load" or not target.explicit_vectors or body.dtype not in VECTOR_TYPES - {"b"}:
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

    def nest() -> None:
        tall, wide = (max(x // n, 1) * n for x in (schedule.tile_rows, schedule.tile_columns))
        with f.loops(outer):
            for r_low, r_high, r_step, rows in _pieces(row.extent, tall, n):
                with f.loop(r_low, r_high, r_step) as r0:
                    for c_low, c_high, c_step, columns in _pieces(lane.extent, wide, n):
                        with f.loop(c_low, c_high, c_step) as c0:
                            r_end = f.add(r0, r_step)
                            c_end = f.add(c0, c_step)
                            across, down = (c0, c_end, n), (r0, r_end, n)
                            order = (across, down) if schedule.rows_first else (down, across)
                            with f.loop(*order[0]) as one, f.loop(*order[1]) as two:
                                c, r = (one, two) if schedule.rows_first else (two, one)
                                f.variables[row], f.variables[lane] = r, c
                                _block(f, Side(source, at, row, rows), Side(buffer, offset, lane, columns), n)

    if streams(f, buffer, offset, lane, n):
        emit_past_caches(f, buffer, nest)
    else:
        nest()
    return True


def _pieces(extent: int, tile: int, n: int) -> list[tuple[int, int, int, int]]:
    """Loops (low, high, step, elements of a block) that cover an extent: whole tiles, whole blocks, the ragged end."""
    tiles, blocks = extent // tile * tile, extent // n * n
    pieces = [(0, tiles, tile, n), (tiles, blocks, n, n), (blocks, extent, n, extent - blocks)]
    return [p for p in pieces if p[0] < p[1]]


def _block(f: Function, source: Side, target: Side, n: int) -> None:
    """Copies a block of at most n x n elements, from the current values of both loop variables on."""
    outer = dict(f.variables)

    def shift(var: Var, by: int) -> None:
        f.variables[var] = f.add(outer[var], by, "nuw nsw") if by else outer[var]

    type_ = llvm_type(source.buffer.dtype, True)
    vectors = []
    for k in range(n):
        if k >= target.count:
            vectors.append(Operand("zeroinitializer", vector(type_, n)))
            continue
        shift(target.along, k)
        with f.vector(source.along, n, _mask(source.count, n)):
            vectors.append(f.read_vector(source.buffer, source.index))
    shift(target.along, 0)
    turned = _transpose_registers(f, vectors)
    for k in range(source.count):
        shift(source.along, k)
        with f.vector(target.along, n, _mask(target.count, n)):
            f.write(target.buffer, f.index(target.index), turned[k])
    shift(source.along, 0)


def _transpose_registers(w: Writer, rows: list[Operand]) -> list[Operand]:
    """Transposes n vectors of n elements: log2(n) rounds that interleave the upper with the lower half."""
    n = len(rows)
    for _ in range(n.bit_length() - 1):
        rows = [
            w.shuffle(a, b, _interleave(n, high))
            for a, b in zip(rows[: n // 2], rows[n // 2 :])
            for high in (False, True)
        ]
    return rows


def _interleave(n: int, high: bool) -> list[int]:
    """Shuffle picks that interleave the low or the high halves of two vectors."""
    first = n // 2 if high else 0
    return [k for i in range(n // 2) for k in (first + i, n + first + i)]


def _mask(count: int, n: int) -> Operand | None:
    """The mask of the first `count` of n lanes, None for all."""
    return None if count == n else first_lanes(count, n)
