"""Transposition of square blocks of elements of 2, 4 or 8 bytes in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.cpu.expr import Buffer, Index, Var
from compiler.cpu.llvm_types import llvm_type

if TYPE_CHECKING:
    from compiler.cpu.lower import Function


def _interleave(n: int, high: bool) -> str:
    """Picks that interleave the low or the high halves of two vectors."""
    first = n // 2 if high else 0
    return ", ".join(f"i32 {k}" for i in range(n // 2) for k in (first + i, n + first + i))


def transpose_registers(f: Function, rows: list[str], type_: str) -> list[str]:
    """The columns of n vectors of n elements: log2(n) rounds that interleave the upper with the lower half."""
    n = len(rows)
    vec = f"<{n} x {type_}>"
    for _ in range(n.bit_length() - 1):
        rows = [
            f.op(f"shufflevector {vec} {a}, {vec} {b}, <{n} x i32> <{_interleave(n, high)}>")
            for a, b in zip(rows[: n // 2], rows[n // 2 :])
            for high in (False, True)
        ]
    return rows


def transpose_square(
    f: Function,
    source: tuple[Buffer, Index, Var, int],
    target: tuple[Buffer, Index, Var, int],
    n: int,
    dtype: str,
) -> None:
    """Copies n x n elements, from the current values of both loop variables on.

    Args:
        source: buffer, index, the loop along which it is contiguous, and how many of n elements exist there.
        target: the same of the result.
    """
    buffer, at, row, rows = source
    out, offset, lane, columns = target
    outer = dict(f.variables)

    def shifted(var: Var, by: int) -> None:
        f.variables[var] = f.op(f"add nuw nsw i64 {outer[var]}, {by}") if by else outer[var]

    vectors = []
    for k in range(n):
        if k >= columns:
            vectors.append("zeroinitializer")
            continue
        shifted(lane, k)
        with f.vector(row, n, _mask(rows, n)):
            vectors.append(f.load_vector(buffer, at))
    shifted(lane, 0)
    turned = transpose_registers(f, vectors, llvm_type(dtype, True))
    for k in range(rows):
        shifted(row, k)
        with f.vector(lane, n, _mask(columns, n)):
            f.store(out, f.index(offset), turned[k])
    shifted(row, 0)


def _mask(count: int, n: int) -> str:
    """The first `count` of n lanes, empty for all."""
    return "" if count == n else f"<{', '.join('i1 true' if k < count else 'i1 false' for k in range(n))}>"
