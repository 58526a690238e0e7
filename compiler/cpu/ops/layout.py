"""The operators at the border of the NPU: Relayout and PackMatMulParams.

`Relayout` is given by tables, so it is analysed here: the output is partitioned into boxes in which every lane (index
of the last dimension) is either copied or filled, the tables of a box are factored into affine loops, and boxes
that are byte transpositions use the register kernel. Channel blocking, its inverse and the gather of a few-channel
image all end there. One that only copies a stretch of bytes is computed by whatever reads it.

With the attribute `block` the tables describe channels on the last axis, [N, H, W, C], and the result has them in
blocks, [N, C / block, H, W, block].
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.cpu.expr import Buffer, Expr, Index, Var, const, guard, index_value, linear, load, lookup, reduce, unravel
from compiler.cpu.ir.writer import Number, Operand, pointer_to
from compiler.cpu.loops.function import Function
from compiler.cpu.microkernels.transpose import BLOCK, Bytes, Rows, transpose_block
from compiler.cpu.ops.rules import op
from compiler.cpu.stages.context import Context
from compiler.cpu.stages.value import Value

MAX_BOXES = 48  # above this the tables are looked up element by element
MIN_PADDED = 4  # boxes from which on a border around the input is tried, which leaves fewer
MIN_TABLE = 3  # blocks of lanes from which on one piece of code reads their offsets from a table


@dataclass
class Loop:
    """One affine loop of a copy: strides in elements of input and output."""

    extent: int
    read: int
    write: int


@dataclass
class Box:
    """A part of the output: loops, the last dimension's input offsets, which of its lanes are copied."""

    loops: list[Loop]
    read: int
    write: int
    lanes: np.ndarray
    valid: np.ndarray


class Analysis:
    """Partition of the output of a Relayout into boxes; with `block` no box has lanes of two blocks."""

    def __init__(
        self, in_shape: tuple[int, ...], shape: tuple[int, ...], tables: list[dict[int, np.ndarray]], block: int = 0
    ) -> None:
        self.in_shape, self.shape = in_shape, shape
        self.block = block or shape[-1]
        self.tables = [{int(d): np.asarray(t, np.int64) for d, t in entry.items()} for entry in tables]
        self.in_strides = [math.prod(in_shape[k + 1 :]) for k in range(len(in_shape))]
        self.plane = math.prod(shape[1:-1]) * self.block  # elements of a block of channels
        self.out_strides = [math.prod(shape[d + 1 : -1]) * self.block for d in range(len(shape) - 1)]
        if block:
            self.out_strides[0] = self.plane * (shape[-1] // block)
        self.boxes: list[Box] = []

    def run(self) -> bool:
        """False where the tables are too irregular."""
        around = [(0, n) for n in self.shape[:-1]]
        starts = range(0, self.shape[-1], self.block)
        return all(self._partition([*around, (start, start + self.block)]) for start in starts)

    def _status(self, k: int, box: list[tuple[int, int]], skip: int) -> tuple[int, int]:
        """Range of coordinate k over a box without dimension `skip`."""
        lo = hi = 0
        for d, t in self.tables[k].items():
            if d != skip:
                part = t[slice(*box[d])]
                lo, hi = lo + int(part.min()), hi + int(part.max())
        return lo, hi

    def _partition(self, box: list[tuple[int, int]]) -> bool:
        if len(self.boxes) > MAX_BOXES:
            return False
        last = len(self.shape) - 1
        lanes = slice(*box[last])
        count = box[last][1] - box[last][0]
        valid, mixed_by = np.ones(count, bool), None
        outside = np.zeros(count, bool)
        for k, n in enumerate(self.in_shape):
            lo, hi = self._status(k, box, last)
            t = self.tables[k].get(last)
            t = np.zeros(count, np.int64) if t is None else t[lanes]
            inside = (t + lo >= 0) & (t + hi < n)
            out = (t + hi < 0) | (t + lo >= n)
            valid &= inside
            outside |= out
            if not np.all(inside | out):
                mixed_by = k if mixed_by is None else mixed_by
        if np.all(valid | outside):
            return self._factor(box, valid)
        assert mixed_by is not None
        return self._cut(box, mixed_by, last)

    def _cut(self, box: list[tuple[int, int]], k: int, last: int) -> bool:
        """Splits the box along a dimension of coordinate k where the coordinate enters or leaves the input."""
        best: tuple[int, list[int]] | None = None
        for d in (d for d in self.tables[k] if d != last and box[d][1] - box[d][0] > 1):
            edges = self._edges(box, k, d)
            if len(edges) > 2 and (best is None or len(edges) < len(best[1])):
                best = d, edges
        if best is None or len(best[1]) > MAX_BOXES:
            return False
        d, edges = best
        start = box[d][0]
        return all(
            self._partition([*box[:d], (start + a, start + b), *box[d + 1 :]]) for a, b in itertools.pairwise(edges)
        )

    def _edges(self, box: list[tuple[int, int]], k: int, d: int) -> list[int]:
        """Where to cut dimension d so that coordinate k is inside or outside; undecided indices are alone."""
        lo, hi = self._status(k, box, d)
        t = self.tables[k][d][slice(*box[d])]
        n = self.in_shape[k]
        kind = np.where((t + lo >= 0) & (t + hi < n), 1, np.where((t + hi < 0) | (t + lo >= n), 2, 0))
        return [0, *(int(i) + 1 for i in np.flatnonzero((kind[1:] != kind[:-1]) | (kind[1:] == 0))), len(t)]

    def _factor(self, box: list[tuple[int, int]], valid: np.ndarray) -> bool:
        """Turns the tables of a box into loops; a dimension that is not a nest of loops is cut again."""
        loops: list[Loop] = []
        last = len(self.shape) - 1
        blocks, lane = divmod(box[last][0], self.block)
        read, write = 0, blocks * self.plane + lane + sum(s * b[0] for s, b in zip(self.out_strides, box))
        lanes = self._offsets(last, box)
        for d in range(last):
            offsets = self._offsets(d, box)
            nest = _nest(offsets) if valid.any() else [(len(offsets), 0)]
            if nest is None:
                run = _run(offsets)
                cut = len(offsets) // run * run if len(offsets) // run > 1 and len(offsets) % run else run
                a, b = box[d]
                return self._partition([*box[:d], (a, a + cut), *box[d + 1 :]]) and self._partition(
                    [*box[:d], (a + cut, b), *box[d + 1 :]]
                )
            read += int(offsets[0])
            inner = self.out_strides[d]
            part: list[Loop] = []
            for extent, stride in reversed(nest):
                part.append(Loop(extent, stride, inner))
                inner *= extent
            loops += part[::-1]
        self.boxes.append(Box(_joined(loops), read, write, lanes, valid))
        return len(self.boxes) <= MAX_BOXES

    def _offsets(self, d: int, box: list[tuple[int, int]]) -> np.ndarray:
        total = np.zeros(box[d][1] - box[d][0], np.int64)
        for k, s in enumerate(self.in_strides):
            if d in self.tables[k]:
                total += s * self.tables[k][d][slice(*box[d])]
        return total


def _run(v: np.ndarray) -> int:
    """Length of the affine start of a vector."""
    steps = np.diff(v)
    breaks = np.flatnonzero(steps != steps[0])
    return int(breaks[0]) + 1 if len(breaks) else len(v)


def _nest(v: np.ndarray) -> list[tuple[int, int]] | None:
    """(extent, stride) loops, outermost first, that walk v - v[0]."""
    if len(v) == 1:
        return [(1, 0)]
    run = _run(v)
    if run == len(v):
        return [(run, int(v[1] - v[0]))]
    if run < 2 or len(v) % run:
        return None
    rows = v.reshape(-1, run)
    if not np.array_equal(rows - rows[:, :1], np.broadcast_to(rows[0] - rows[0, 0], rows.shape)):
        return None
    outer = _nest(rows[:, 0])
    return None if outer is None else [*outer, (run, int(v[1] - v[0]))]


def _joined(loops: list[Loop]) -> list[Loop]:
    out: list[Loop] = []
    for l in loops:
        if l.extent == 1:
            continue
        if out and out[-1].read == l.read * l.extent and out[-1].write == l.write * l.extent:
            out[-1] = Loop(out[-1].extent * l.extent, l.read, l.write)
        else:
            out.append(l)
    return out


@dataclass(frozen=True)
class Move:
    """From where to where the bytes go, and what happens to them."""

    source: Buffer
    target: Buffer
    content: Bytes


def emit_box(f: Function, box: Box, move: Move) -> None:
    """Writes the part of the output that a box is."""
    lanes = _nest(box.lanes) if box.valid.all() else None
    affine = lanes is not None and len(lanes) == 1
    loops = box.loops
    along = [k for k, l in enumerate(loops) if 1 <= l.read <= 4]
    contiguous = affine and lanes is not None and lanes[0][1] in (0, 1)
    if not contiguous and along and box.valid.any() and (len(box.lanes) >= BLOCK or not affine):
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


@dataclass
class Run:
    """Lanes that a nest of loops walks: all filled, or all copied."""

    loops: list[Loop]
    read: int
    write: int
    valid: bool


def lane_runs(box: Box) -> list[Run]:
    """The lanes as few nests: stretches of one stride, then equal stretches at equal distances, and so on."""
    runs, i, n = [], 0, len(box.lanes)
    while i < n:
        j, step = i + 1, 0
        while j < n and box.valid[j] == box.valid[i]:
            d = int(box.lanes[j] - box.lanes[j - 1])
            if box.valid[i] and j > i + 1 and d != step:
                break
            step = d
            j += 1
        valid = bool(box.valid[i])
        runs.append(Run([Loop(j - i, step if valid else 0, 1)], int(box.lanes[i]) if valid else 0, i, valid))
        i = j
    while True:
        joined: list[Run] = []
        i = 0
        while i < len(runs):
            first, j = runs[i], i + 1
            pace = (runs[j].read - first.read, runs[j].write - first.write) if j < len(runs) else (0, 0)
            while (
                j < len(runs)
                and (runs[j].loops, runs[j].valid) == (first.loops, first.valid)
                and (runs[j].read - runs[j - 1].read, runs[j].write - runs[j - 1].write) == pace
            ):
                j += 1
            loops = [Loop(j - i, *pace), *first.loops] if j > i + 1 else first.loops
            joined.append(Run(loops, first.read, first.write, first.valid))
            i = j
        if len(joined) == len(runs):
            return runs
        runs = joined


@contextlib.contextmanager
def _nested(f: Function, loops: Sequence[Loop], read: Number, write: Number) -> Iterator[tuple[Number, Number]]:
    """A nest of affine loops; gives the offsets in input and output."""
    with contextlib.ExitStack() as stack:
        for l in loops:
            i = stack.enter_context(f.loop(0, l.extent))
            read = f.add(read, f.mul(i, l.read))
            write = f.add(write, f.mul(i, l.write))
        yield read, write


def _transposed(f: Function, box: Box, k: int, move: Move) -> None:
    """Lanes (contiguous in the output) against loop k (contiguous in the input)."""
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
    """Many lanes in regular steps (a plane read from blocked channels): vectors along the lanes."""
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


@op("Relayout")
def relayout(ctx: Context) -> None:
    x = ctx.input()
    shape, tables, block = ctx.out_shape(), ctx.attr("tables"), int(ctx.attr("block", 0))
    flip, fill = int(ctx.attr("xor", 0)) & 0xFF, int(ctx.attr("fill", 0))
    flip, fill = (flip ^ 0x80) - 0x80, ((fill & 0xFF) ^ 0x80) - 0x80
    if len(tables) != x.rank:
        raise ctx.unsupported(f"{len(tables)} tables for {x.rank} input dimensions", "one per input dimension")
    usable = bool(x.size and math.prod(shape) and shape)
    plain = shape if not block else (shape[0], *shape[2:-1], shape[1] * block)
    analysis = Analysis(x.shape, plain, tables, block) if usable else None
    if analysis is not None and not analysis.run():
        analysis = None
    start = None if analysis is None else _stretch(analysis)
    if start is not None:
        moved = lambda i: ctx.read(x, unravel(linear(i, shape) + start, x.shape)).to("i8")
        ctx.define(
            shape, ctx.out_dtype(), lambda i: (moved(i) ^ flip if flip else moved(i)).to(ctx.out_dtype()), x.cost
        )
        return
    out = ctx.temp(shape, ctx.out_dtype())
    assert out.buffer is not None
    target = out.buffer
    if usable and (analysis is None or len(analysis.boxes) >= MIN_PADDED):
        found = _padding(x.shape, plain, tables)
        if found is not None:
            border, padded, moved_tables = found
            other = Analysis(padded, plain, moved_tables, block)
            if other.run() and (analysis is None or len(other.boxes) < len(analysis.boxes)):
                x, flip, analysis = _padded(ctx, x, border, padded, flip, fill), 0, other
    buffer = ctx.buffer(x)
    if analysis is not None:
        boxes = analysis.boxes

        def write(f: Function) -> None:
            for box in boxes:
                emit_box(f, box, Move(buffer, target, Bytes(flip, fill)))

        ctx.kernel(write, [out], label="Relayout")
    else:
        _by_lookup(ctx, x, out, plain, tables, block, flip, fill)
    ctx.bind(out)


def _stretch(analysis: Analysis) -> int | None:
    """Where the input begins that the output is a copy of, byte after byte; None if it is none."""
    if len(analysis.boxes) != 1:
        return None
    box = analysis.boxes[0]
    count = len(box.lanes)
    if not box.valid.all() or not np.array_equal(box.lanes, np.arange(count)):
        return None
    inner = [Loop(count, 1, 1)] if count > 1 else []
    loops = _joined([*box.loops, *inner])
    return box.read if all((l.read, l.write) == (1, 1) for l in loops) and len(loops) <= 1 else None


Tables = list[dict[int, np.ndarray]]


def _padding(
    in_shape: tuple[int, ...], shape: tuple[int, ...], tables: Tables
) -> tuple[list[int], tuple[int, ...], Tables] | None:
    """How far a border around the input would have to reach for every read to be inside: the border before each
    dimension, the padded shape and the tables for it. Entries that are outside whatever the others are stay outside.

    None where the padded input would be much larger.
    """
    border, padded, moved = [], [], []
    for k, n in enumerate(in_shape):
        entry = {int(d): np.asarray(t, np.int64) for d, t in tables[k].items()}
        keep = {d: np.ones(len(t), bool) for d, t in entry.items()}
        for d, t in entry.items():
            others = [entry[e] for e in entry if e != d]
            lo, hi = sum(int(t.min()) for t in others), sum(int(t.max()) for t in others)
            keep[d] = (t + hi >= 0) & (t + lo < n)
            if not keep[d].any():
                return None
        lo = min(0, sum(int(t[keep[d]].min()) for d, t in entry.items()))
        hi = max(n - 1, sum(int(t[keep[d]].max()) for d, t in entry.items()))
        border.append(-lo)
        padded.append(hi - lo + 1)
        far = sum(int(np.abs(t).max()) for t in entry.values()) + 2 * (hi - lo + 1)
        first = min(entry, default=-1)
        moved.append({d: np.where(keep[d], t, -far) - (lo if d == first else 0) for d, t in entry.items()})
    if math.prod(padded) > 1.5 * math.prod(in_shape) + 4096:
        return None
    return border, tuple(padded), moved


def _padded(ctx: Context, x: Value, border: list[int], shape: tuple[int, ...], flip: int, fill: int) -> Value:
    """The input, XORed, with `fill` around it."""
    out = ctx.temp(shape, x.dtype)
    inside = x.vars()
    for axis, (before, size) in enumerate(zip(border, x.shape, strict=True)):
        for start, end in ((0, before), (before + size, shape[axis])):
            if start < end:
                variables = [Var.new(end - start if k == axis else n) for k, n in enumerate(shape)]
                at = [Index.of(v) + (start if k == axis else 0) for k, v in enumerate(variables)]
                ctx.assign(out, variables, const(fill & 0xFF, "u8").to(x.dtype), at)
    value = ctx.read(x, [Index.of(v) for v in inside])
    ctx.assign(out, inside, value ^ flip if flip else value, [Index.of(v) + b for v, b in zip(inside, border)])
    return out


def _by_lookup(
    ctx: Context, x: Value, out: Value, shape: tuple[int, ...], tables: Tables, block: int, flip: int, fill: int
) -> None:
    """Args:
    shape: that the tables describe.
    """
    variables = [Var.new(n) for n in shape]
    coordinates: list[Index] = []
    inside: Expr = const(1, "b")
    for k, n in enumerate(x.shape):
        at = Index(0)
        for d, t in tables[k].items():
            at = at + lookup([int(v) for v in t], Index.of(variables[int(d)]))
        lo, hi = at.range()
        if lo < 0:
            inside = inside & (index_value(at) >= 0)
        if hi >= n:
            inside = inside & (index_value(at) < n)
        coordinates.append(at)
    assert x.buffer is not None
    value = load(x.buffer, linear(coordinates, x.shape)).to("i8")
    value = value ^ flip if flip else value
    target = [Index.of(v) for v in variables]
    if block:
        target = [target[0], target[-1] // block, *target[1:-1], target[-1] % block]
    ctx.assign(out, variables, guard(inside, value, fill).to(out.dtype), target)


@op("PackMatMulParams")
def pack_matmul_params(ctx: Context) -> None:
    """Per output column the bias that removes the zero points, and the scale's bits."""
    b = ctx.stored(ctx.input())
    *batch, k, n = b.shape
    flip = int(ctx.attr("xor", 0)) & 0xFF
    za, zb = int(ctx.attr("a_zero_point", 0)), int(ctx.attr("b_zero_point", 0))
    lanes = int(ctx.attr("lanes"))
    scale = int(np.float32(ctx.attr("scale")).view(np.int32))
    shape = ctx.out_shape()
    blocks = -(-n // lanes)
    out = ctx.temp(shape, "i32")
    sums = ctx.temp((*batch, n), "i32")
    variables = sums.vars()
    row = Var.new(k)
    idx = [Index.of(v) for v in variables]
    value = ctx.read(b, [*idx[:-1], Index.of(row), idx[-1]])
    value = (value.to("i8") ^ ((flip ^ 0x80) - 0x80)) if flip else value
    ctx.assign(sums, variables, reduce("add", [row], value.to("i32"), 0))
    flat = Value((*batch, blocks * lanes, 2), "i32", out.buffer)
    bias = const(k * za * zb, "i32") - ctx.read(sums, idx) * za
    ctx.assign(flat, variables, bias, [*idx, Index(0)])
    ctx.assign(flat, variables, const(scale, "i32"), [*idx, Index(1)])
    if blocks * lanes > n:
        rest = [Var.new(s) for s in (*batch, blocks * lanes - n, 2)]
        at = [Index.of(v) for v in rest]
        at[-2] = at[-2] + n
        ctx.assign(flat, rest, const(0, "i32"), at)
    ctx.bind(out)
