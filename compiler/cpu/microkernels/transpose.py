"""Transposition of byte matrices in registers: 16 x 16 blocks, four blocks at a time where there are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from tilewright.compiler.cpu.ir.types import vector
from tilewright.compiler.cpu.ir.writer import Operand, Writer

BLOCK = 16


class Bytes(Struct, frozen=True):
    """Transformation of the moved bytes.

    Attributes:
        flip: XORed onto every byte read.
        fill: value where nothing is read.
    """

    flip: int
    fill: int


class Rows(Struct, frozen=True):
    """The source rows of a block.

    Attributes:
        at: pointer to row i.
        step: distance of neighbours within a row, bytes.
        valid: True for rows that exist; the others are filled.
    """

    at: Callable[[int], Operand]
    step: int
    valid: Sequence[bool] = (True,) * BLOCK


def transpose_block(
    w: Writer, source: Rows, target: Callable[[int], Operand], groups: int, wide_rows: bool, content: Bytes
) -> None:
    """Transposes one 16 x 16 block, or `groups` of them.

    Args:
        target: pointer to column j of the block, destination of the 16 transposed bytes.
        wide_rows: the groups lie along the source rows: `source.at(i)` is read 16 * groups wide and group g of column j
            goes to `target(16 * g + j)`. Otherwise they lie along the target rows: row i of group g is `source.at(16 *
            g + i)` and `target(j)` is written 16 * groups wide.
    """
    full = vector("i8", BLOCK * groups)
    rows = []
    for i in range(BLOCK):
        if not source.valid[i]:
            rows.append(Operand(f"splat (i8 {content.fill})", full))
            continue
        if wide_rows:
            v = _row(w, source.at(i), BLOCK * groups, source.step)
        else:
            v = _concatenate(w, [_row(w, source.at(BLOCK * g + i), BLOCK, source.step) for g in range(groups)])
        rows.append(w.xor(v, Operand(f"splat (i8 {content.flip})", full)) if content.flip else v)
    for j, v in enumerate(_transpose_registers(w, rows, groups)):
        if not wide_rows:
            w.store(v, target(j), 1)
            continue
        for g in range(groups):
            part = v if groups == 1 else w.shuffle(v, None, range(g * BLOCK, (g + 1) * BLOCK))
            w.store(part, target(BLOCK * g + j), 1)


def _row(w: Writer, p: Operand, count: int, step: int) -> Operand:
    """Loads `count` bytes at distances of `step`."""
    if step == 1:
        return w.load(vector("i8", count), p, 1)
    wide = count * step - (step - 1)
    return w.shuffle(w.load(vector("i8", wide), p, 1), None, [i * step for i in range(count)])


def _transpose_registers(w: Writer, rows: Sequence[Operand], groups: int) -> list[Operand]:
    """Transposes the 16 x 16 bytes within each group of 16 vectors of `groups` 16-byte groups."""
    masks = [_interleave(high, groups) for high in (False, True)]
    current = list(rows)
    for _ in range(4):
        current = [w.shuffle(current[i], current[i + 8], mask) for i in range(8) for mask in masks]
    return current


def _interleave(high: bool, groups: int) -> list[int]:
    """Shuffle picks that interleave the low (or high) halves of every 16-byte group of two vectors."""
    n, first = BLOCK * groups, 8 if high else 0
    return [p for g in range(groups) for k in range(g * BLOCK + first, g * BLOCK + first + 8) for p in (k, n + k)]


def _concatenate(w: Writer, parts: list[Operand]) -> Operand:
    width = BLOCK
    while len(parts) > 1:
        parts = [w.shuffle(a, b, range(2 * width)) for a, b in zip(parts[::2], parts[1::2])]
        width *= 2
    return parts[0]
