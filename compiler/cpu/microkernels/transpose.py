"""Transposition of byte matrices in registers: 16 x 16 blocks, four blocks at a time where there are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.cpu.lower import Function

BLOCK = 16


def _mask(high: bool, groups: int) -> str:
    """Interleaves the low (or high) halves of every 16-byte group of two vectors."""
    n = BLOCK * groups
    picks = []
    for g in range(groups):
        for i in range(8):
            k = g * BLOCK + i + (8 if high else 0)
            picks += [k, n + k]
    return f"<{n} x i32> <{', '.join(f'i32 {p}' for p in picks)}>"


def transpose_registers(f: Function, rows: Sequence[str], groups: int) -> list[str]:
    """16 vectors of `groups` 16-byte groups; within each group, the 16 x 16 bytes are transposed."""
    vec = f"<{BLOCK * groups} x i8>"
    low, high = _mask(False, groups), _mask(True, groups)
    cur = list(rows)
    for _ in range(4):
        following = []
        for i in range(8):
            for mask in (low, high):
                following.append(f.op(f"shufflevector {vec} {cur[i]}, {vec} {cur[i + 8]}, {mask}"))
        cur = following
    return cur


def transpose_block(
    f: Function,
    source: Callable[[int], str],
    target: Callable[[int], str],
    groups: int,
    wide_rows: bool,
    valid: Sequence[bool],
    flip: int,
    fill: int,
    step: int = 1,
    group_stride: int = 0,
) -> None:
    """One 16 x 16 block, or `groups` of them.

    Args:
        source: pointer to row i of the block.
        target: pointer to column j of the block, where the 16 transposed bytes go.
        wide_rows: the groups lie along the source rows (`source(i)` is read 16 * groups wide and group g of column j
            goes to `target(16 * g + j)`); otherwise along the target rows (row i of group g is `source(16 * g + i)`
            and `target(j)` is written 16 * groups wide).
        valid: which rows exist; the others are `fill`.
        flip: XORed onto every byte read.
        step: distance of neighbours within a source row, bytes.
    """
    n = BLOCK * groups
    vec, one = f"<{n} x i8>", f"<{BLOCK} x i8>"

    def read(p: str, count: int) -> str:
        if step == 1:
            return f.op(f"load <{count} x i8>, ptr {p}, align 1")
        wide = count * step - (step - 1)
        v = f.op(f"load <{wide} x i8>, ptr {p}, align 1")
        picks = ", ".join(f"i32 {i * step}" for i in range(count))
        return f.op(f"shufflevector <{wide} x i8> {v}, <{wide} x i8> poison, <{count} x i32> <{picks}>")

    rows = []
    for i in range(BLOCK):
        if not valid[i]:
            rows.append(f"splat (i8 {fill})")
            continue
        if wide_rows:
            v = read(source(i), n)
        else:
            parts = [read(source(BLOCK * g + i), BLOCK) for g in range(groups)]
            v = _concatenate(f, parts)
        rows.append(f.op(f"xor {vec} {v}, splat (i8 {flip})") if flip else v)
    for j, v in enumerate(transpose_registers(f, rows, groups)):
        if not wide_rows:
            f.do(f"store {vec} {v}, ptr {target(j)}, align 1")
            continue
        for g in range(groups):
            part = v
            if groups > 1:
                picks = ", ".join(f"i32 {g * BLOCK + i}" for i in range(BLOCK))
                part = f.op(f"shufflevector {vec} {v}, {vec} poison, <{BLOCK} x i32> <{picks}>")
            f.do(f"store {one} {part}, ptr {target(BLOCK * g + j)}, align 1")


def _concatenate(f: Function, parts: list[str]) -> str:
    width = BLOCK
    while len(parts) > 1:
        picks = ", ".join(f"i32 {i}" for i in range(2 * width))
        vec = f"<{width} x i8>"
        parts = [
            f.op(f"shufflevector {vec} {a}, {vec} {b}, <{2 * width} x i32> <{picks}>")
            for a, b in zip(parts[::2], parts[1::2])
        ]
        width *= 2
    return parts[0]
