"""Copies boxes of bytes: lanes unchanged, or transposed by the register kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from tilewright.compiler.cpu.expr import Buffer
from tilewright.compiler.cpu.ir.writer import Number, Operand, pointer_to
from tilewright.compiler.cpu.loops.boxes import Box, Loop, affine, lane_runs
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.microkernels.transpose import BLOCK, Bytes, Rows, transpose_block

#: Blocks of lanes from which on one piece of code reads their offsets from a table.
MIN_TABLE = 3


class Move(Struct, frozen=True):
    """Source, destination and transformation of copied bytes."""

    source: Buffer
    target: Buffer
    content: Bytes


def emit_box(f: Function, box: Box, move: Move) -> None:
    """Writes the copy of a box of the output."""
    lanes = affine(box.lanes) if box.valid.all() else None
    one_stride = lanes is not None and len(lanes) == 1
    loops = box.loops
    along = [k for k, l in enumerate(loops) if 1 <= l.read <= 4]
    contiguous = one_stride and lanes is not None and lanes[0][1] in (0, 1)
    if not contiguous and along and box.valid.any() and (len(box.lanes) >= BLOCK or not one_stride):
        k = min(along, key=lambda k: loops[k].read)
        if loops[k].extent >= BLOCK and len(box.lanes) >= BLOCK:
            _transposed(f, box, k, move)
            return
    flip, fill = move.content.flip, Operand(str(move.content.fill), "i8")
    for run in lane_runs(box):
        with _nested(f, [*loops, *run.loops], box.read + run.read, box.write + run.write) as (r, w):
            if not run.valid:
                f.write(move.target, w, fill)
                continue
            v = f.read(move.source, r)
            f.write(move.target, w, f.xor(v, flip) if flip else v)


@contextlib.contextmanager
def _nested(f: Function, loops: Sequence[Loop], read: Number, write: Number) -> Iterator[tuple[Number, Number]]:
    """Writes a nest of affine loops; yields the offsets in input and output."""
    with contextlib.ExitStack() as stack:
        for l in loops:
            i = stack.enter_context(f.loop(0, l.extent))
            read = f.add(read, f.mul(i, l.read))
            write = f.add(write, f.mul(i, l.write))
        yield read, write


def _transposed(f: Function, box: Box, k: int, move: Move) -> None:
    """Copies lanes (contiguous in the output) against loop k (contiguous in the input), by the transposing kernel."""
    across = box.loops[k]
    rest = [l for i, l in enumerate(box.loops) if i != k]
    lanes, n = box.lanes, len(box.lanes)
    steps = np.diff(lanes)
    if box.valid.all() and n > 4 * BLOCK and np.all(steps == steps[0]):
        _transposed_wide(f, box, across, rest, move)
        return
    starts = [*range(0, n - BLOCK, BLOCK), n - BLOCK]  # the last block may overlap its neighbour
    whole = [first for first in starts if box.valid[first : first + BLOCK].all()]
    if len(whole) < MIN_TABLE:
        whole = []
    with _nested(f, rest, box.read, box.write) as (r, w):
        base_in, base_out = f.element(move.source, r), f.element(move.target, w)

        def block(first: Number, offsets: Sequence[Number], valid: Sequence[bool]) -> None:
            to = f.at("i8", base_out, first)

            def strip(j: Operand, groups: int) -> None:
                a = f.at("i8", base_in, f.mul(j, across.read))
                b = f.at("i8", to, f.mul(j, across.write))
                rows = Rows(lambda i: f.at("i8", a, offsets[i]), across.read, valid)
                transpose_block(f, rows, lambda j: f.at("i8", b, j * across.write), groups, True, move.content)

            _strips(f, across.extent, strip)

        if whole:  # one block of code for all, its offsets from a table
            table = pointer_to(f.module.data(np.asarray([[s, *lanes[s : s + BLOCK]] for s in whole], np.int64)))
            with f.loop(0, len(whole)) as g:
                row = f.at(f"[{BLOCK + 1} x i64]", table, g)
                entry = [f.at("i64", row, i) for i in range(BLOCK + 1)]
                first, *offsets = [f.load("i64", p, 8) for p in entry]
                block(first, offsets, [True] * BLOCK)
        for start in starts:
            if start not in whole:
                valid = [bool(v) for v in box.valid[start : start + BLOCK]]
                block(start, [int(v) for v in lanes[start : start + BLOCK]], valid)


def _transposed_wide(f: Function, box: Box, across: Loop, rest: Sequence[Loop], move: Move) -> None:
    """Copies many lanes in regular steps (a plane read from blocked channels) by vectors along the lanes."""
    n, step = len(box.lanes), int(box.lanes[1] - box.lanes[0])
    with _nested(f, rest, box.read + int(box.lanes[0]), box.write) as (r, w):
        base_in, base_out = f.element(move.source, r), f.element(move.target, w)
        for first in [*range(0, across.extent - BLOCK, BLOCK), across.extent - BLOCK]:

            def block(j: Operand, groups: int, first: int = first) -> None:
                a = f.at("i8", base_in, f.mul(j, step))
                b = f.at("i8", base_out, j)
                rows = Rows(lambda i: f.at("i8", a, i * step + first * across.read), across.read)
                to = lambda i: f.at("i8", b, (first + i) * across.write)
                transpose_block(f, rows, to, groups, False, move.content)

            _strips(f, n, block)


def _strips(f: Function, extent: int, block: Callable[[Operand, int], None]) -> None:
    """Covers `extent` by strips of 64 and 16; the last strip overlaps where 16 does not divide."""
    wide = extent // (4 * BLOCK) * 4 * BLOCK
    if wide:
        with f.loop(0, wide, 4 * BLOCK) as j:
            block(j, 4)
    if extent > wide:
        with f.loop(wide, extent, BLOCK) as j:
            block(f.intrinsic("smin", j, extent - BLOCK), 1)
