"""The int8 tile in the matrix registers of AMX: up to 32 rows by 32 columns, 64 bytes of k at a time.

Registers 0..3 hold the sums of 16 x 16 elements, 4 and 5 rows of A (16 x 64 bytes), 6 and 7 columns of B (16 groups of
four k, 16 columns). Operands are those of `tile.tile_i8` with A's rows contiguous.
"""

from __future__ import annotations

import numpy as np

from compiler.cpu.module import Module

ROWS = 16  # of a register
GROUPS = 16  # of four k that one product takes
COLUMNS = 32  # of the tile


def _configuration() -> np.ndarray:
    """Palette 1: eight registers of 16 rows of 64 bytes (Intel 64 manual, LDTILECFG)."""
    data = np.zeros(64, np.uint8)
    data[0] = 1
    data[16:32].view(np.uint16)[:] = 64
    data[48:56] = ROWS
    return data


def tile_amx(module: Module, rows: int, a_row: int, ldb: int, ldc: int, a_signed: bool) -> str:
    """A function `(a, b, c, k, table)` like the other tiles.

    Args:
        rows: 16 or 32.
        a_row: stride of A along rows, bytes.
        ldb: stride of B along groups of four k, in groups; ldc: of C, elements.
        a_signed: A is signed and B unsigned, or the other way round.
    """
    configuration = module.data(_configuration())
    product = "tdpbsud" if a_signed else "tdpbusd"
    for name, arguments in (
        ("ldtilecfg", "ptr"), ("tilezero", "i8"), ("tileloadd64", "i8, ptr, i64"), ("tilestored64", "i8, ptr, i64"),
        (product, "i8, i8, i8"), ("tilerelease", ""),
    ):  # fmt: skip
        module.declare(f"@llvm.x86.{name}", f"declare void @llvm.x86.{name}({arguments})")
    halves = rows // ROWS
    sums = [(2 * r + v, r, v) for r in range(halves) for v in range(2)]
    lines = [
        "define hidden void @NAME(ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %k, ptr noalias %table) #0 {",
        "entry:",
        f"call void @llvm.x86.ldtilecfg(ptr {configuration})",
        *(f"call void @llvm.x86.tilezero(i8 {t})" for t, _, _ in sums),
        "br label %loop",
        "loop:",
        "%kk = phi i64 [ 0, %entry ], [ %next, %loop ]",
        "%ao = mul i64 %kk, 4",
        f"%bo = mul i64 %kk, {4 * ldb}",
        "%a0 = getelementptr i8, ptr %a, i64 %ao",
        "%b0 = getelementptr i8, ptr %b, i64 %bo",
        f"%a1 = getelementptr i8, ptr %a0, i64 {ROWS * a_row}",
        "%b1 = getelementptr i8, ptr %b0, i64 64",
        *(f"call void @llvm.x86.tileloadd64(i8 {4 + r}, ptr %a{r}, i64 {a_row})" for r in range(halves)),
        *(f"call void @llvm.x86.tileloadd64(i8 {6 + v}, ptr %b{v}, i64 {4 * ldb})" for v in range(2)),
        *(f"call void @llvm.x86.{product}(i8 {t}, i8 {4 + r}, i8 {6 + v})" for t, r, v in sums),
        f"%next = add nuw nsw i64 %kk, {GROUPS}",
        "%more = icmp slt i64 %next, %k",
        "br i1 %more, label %loop, label %exit",
        "exit:",
    ]
    for t, r, v in sums:
        lines.append(f"%c{t} = getelementptr i8, ptr %c, i64 {r * ROWS * ldc * 4 + v * 64}")
        lines.append(f"call void @llvm.x86.tilestored64(i8 {t}, ptr %c{t}, i64 {4 * ldc})")
    lines += ["call void @llvm.x86.tilerelease()", "ret void", "}\n"]
    return module.define_text("\n".join(lines), "tilea")
