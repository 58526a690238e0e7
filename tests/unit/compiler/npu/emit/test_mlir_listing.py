"""Tile programs as MLIR: every operation with all its fields, and xDSL takes them."""

from __future__ import annotations

import pytest

from tilewright.compiler.npu.emit.mlir_listing import TileWriter
from tilewright.compiler.npu.emit.tile_program import Operation
from tilewright.isa.codes import CodeMode
from tilewright.isa.instructions import Memory, Rounding, RowFunction, Source, WideByte
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION

LEVELS, LEVELS_TEXT = (2, 3, 4, 1, 0, 0), "levels = [array<i64: 2, 3, 4>, array<i64: 1, 0, 0>]"
POST = (1, 0, 1, 2, 3, 4, 5, 6)
POST_TEXT = "post = {zp = 0, lo = 1, hi = 2, add_lo = 3, add_hi = 4, za = 5, zb = 6}"
OPERATIONS = [
    (
        (Operation.LOAD, ARENA_REGION, 64, Memory.ACT, 1, 2, *LEVELS, 1, 2, 3, 4, -5),
        f'load"() {{region = "arena", offset = 64, memory = "act", row = 1, count = 2, {LEVELS_TEXT}, '
        "pad = array<i64: 1, 2, 3, 4>, pad_value = -5}",
    ),
    (
        (Operation.LOAD_CODED, CONSTANT_REGION, 8, CodeMode.WEIGHTS, 1, 2, 3),
        'load_coded"() {region = "constants", offset = 8, mode = "weights", row = 1, '
        "count = 2, beats = 3}",
    ),
    (
        (Operation.FILL, 1, 2, -128, 2, 3, 4, 5, 6),
        'fill"() {row = 1, run = 2, value = -128, levels = [array<i64: 3, 4>, array<i64: 5, 6>]}',
    ),
    (
        (Operation.STORE, 9, 64, 1, 2, *LEVELS),
        f'store"() {{region = 9, offset = 64, row = 1, count = 2, {LEVELS_TEXT}}}',
    ),
    (
        (Operation.GEMM, 1, 2, 3, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9),
        'gemm"() {act = 1, wgt = 2, acc = 3, accumulate = true, sum = [array<i64: 2, 3, 4, 5>], '
        "over = [array<i64: 6, 7, 8, 9>]}",
    ),
    (
        (Operation.DEPTHWISE, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 1, 2, 3, 4, 5),
        'depthwise"() {act = 1, wgt = 2, acc = 3, start_along = 4, step_along = 5, start_across = 6, step_across = 7, '
        "slice = 8, delay = 9, accumulate = false, sum = [], over = [array<i64: 2, 3, 4, 5>]}",
    ),
    (
        (Operation.VECTOR, Source.ACC, 1, 2, 3, 4, 1, -1, Rounding.EVEN, *POST, 1, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6),
        'vector"() {source = "acc", a = 1, b = 2, dst = 3, prm = 4, add = true, table = -1, rounding = "even", '
        f"{POST_TEXT}, constants = {{ma = 6, mb = 7, c = 8, shift = 9}}, sum = [], "
        "over = [array<i64: 2, 3, 4, 5, 6>]}",
    ),
    (
        (Operation.VECTOR_WIDE, WideByte.LOW, 1, 2, 3, -4, 5, 0, 0),
        'vector_wide"() {byte = "low", a = 1, dst = 2, prm = 3, low = -4, high = 5, '
        "sum = [], over = []}",
    ),
    (
        (Operation.ROW, RowFunction.MAXIMUM, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0),
        'row"() {function = "maximum", a = 1, prm = 2, table = 3, dst = 4, tail = 5, '
        "number = 6, exponent = 7, sum = [], over = []}",
    ),
    (
        (Operation.RUN, 1, -2, 3, 1, 4, 1, 2, *range(15)),
        'run"() {engine = 1, low = -2, high = 3, movable = true, work = 4, reads = [array<i64: 0, 1, 2, 3, 4>], '
        "writes = [array<i64: 5, 6, 7, 8, 9>, array<i64: 10, 11, 12, 13, 14>]}",
    ),
]  # fmt: skip


def test_operations_have_all_their_fields() -> None:
    writer = TileWriter()
    tape = [int(number) for numbers, _ in OPERATIONS for number in numbers]
    lines = list(writer.lines(tape, [(1, "a\nb")]))
    assert lines[0] == '"func.func"() ({' and lines[2] == "  // a b"
    operations = [line for line in lines if "tilewright." in line]
    assert operations == [f'  "tilewright.{text} : () -> ()' for _, text in OPERATIONS]
    assert {numbers[0] for numbers, _ in OPERATIONS} == set(Operation) - {Operation.LOAD_PACKED}  # which is as LOAD

    pytest.importorskip("xdsl")
    from tilewright.compiler.importer.tosa.reading import parse

    module, _ = parse("\n".join([*lines, *writer.lines([])]), ())
    module.verify()
    assert [op.sym_name.data for op in module.walk() if op.name == "func.func"] == ["step_0", "step_1"]
