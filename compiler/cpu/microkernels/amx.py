"""The int8 tile in the matrix registers of AMX: up to 32 rows by 32 columns, 64 bytes of k at a time.

Registers 0..3 hold the sums of 16 x 16 elements, 4 and 5 rows of A (16 x 64 bytes), 6 and 7 columns of B (16 groups of
four k, 16 columns). Operands are those of `tile.ByteProduct` with A's rows contiguous.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.cpu.ir.module import Module
from tilewright.compiler.cpu.ir.writer import Operand, Writer, i64, pointer_to
from tilewright.compiler.cpu.microkernels.tile import HEAD, A, B, C, K, Tile

ROWS = 16  # of a register
GROUPS = 16  # of four k that one product takes
COLUMNS = 32  # of the tile
_STEM = "tilea"


def _configuration() -> np.ndarray:
    """Palette 1: eight registers of 16 rows of 64 bytes (Intel 64 manual, LDTILECFG)."""
    data = np.zeros(64, np.uint8)
    data[0] = 1
    data[16:32].view(np.uint16)[:] = 64
    data[48:56] = ROWS
    return data


def define_amx_tile(module: Module, tile: Tile, a_signed: bool) -> str:
    """Defines the function of a tile of 16 or 32 rows. Returns its name.

    Args:
        tile: the tile, with a stride for B; its `a_k` and `vectors` are fixed here.
        a_signed: A is signed and B unsigned, or the other way round.
    """
    assert tile.b_row is not None
    w = Writer(module, indent="")
    register = lambda n: Operand(str(n), "i8")

    def run(name: str, *args: Operand) -> None:
        w.run(w.declared(f"@llvm.x86.{name}", "void", *(a.type for a in args)), args)

    halves = tile.rows // ROWS
    sums = [(2 * r + v, r, v) for r in range(halves) for v in range(2)]
    run("ldtilecfg", pointer_to(module.data(_configuration())))
    for t, _, _ in sums:
        run("tilezero", register(t))
    w.jump("loop")
    w.label("loop")
    k = w.phi("i64", [(0, "entry"), ("%next", "loop")], "kk")
    a_offset = w.mul(k, 4, "", "ao")
    b_offset = w.mul(k, tile.b_row, "", "bo")
    a, b = w.at("i8", A, a_offset, "a0"), w.at("i8", B, b_offset, "b0")
    rows = [a, w.at("i8", a, ROWS * tile.a_row, "a1")]
    columns = [b, w.at("i8", b, 64, "b1")]
    for r in range(halves):
        run("tileloadd64", register(4 + r), rows[r], i64(tile.a_row))
    for v in range(2):
        run("tileloadd64", register(6 + v), columns[v], i64(tile.b_row))
    for t, r, v in sums:
        run("tdpbsud" if a_signed else "tdpbusd", register(t), register(4 + r), register(6 + v))
    following = w.add(k, GROUPS, "nuw nsw", "next")
    w.branch(w.icmp("slt", following, K, "more"), "loop", "exit")
    w.label("exit")
    for t, r, v in sums:
        run("tilestored64", register(t), w.at("i8", C, r * ROWS * tile.c_row + v * 64, f"c{t}"), i64(tile.c_row))
    run("tilerelease")
    return module.define(w.text(HEAD), _STEM)
