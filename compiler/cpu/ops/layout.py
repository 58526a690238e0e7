"""The operators at the border of the NPU: Relayout and PackMatMulParams.

`Relayout` is given by tables, so it is analysed here: the output is partitioned into boxes in which every lane (index
of the last dimension) is either copied or filled, the tables of a box are factored into affine loops, and boxes
that are byte transpositions use the register kernel. Channel blocking, its inverse and the gather of a few-channel
image all end there.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from compiler.cpu.expr import Buffer, Expr, Index, Var, const, guard, index_value, linear, load, lookup, reduce
from compiler.cpu.fuse import Context, Value
from compiler.cpu.lower import Function
from compiler.cpu.microkernels.transpose import BLOCK, transpose_block
from compiler.cpu.ops.registry import op

MAX_BOXES = 48  # above this the tables are looked up element by element


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
    """Partition of the output of a Relayout into boxes."""

    def __init__(self, in_shape: tuple[int, ...], shape: tuple[int, ...], tables: list[dict[int, np.ndarray]]) -> None:
        self.in_shape, self.shape = in_shape, shape
        self.tables = [{int(d): np.asarray(t, np.int64) for d, t in entry.items()} for entry in tables]
        self.in_strides = [math.prod(in_shape[k + 1 :]) for k in range(len(in_shape))]
        self.out_strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
        self.boxes: list[Box] = []

    def run(self) -> bool:
        """False where the tables are too irregular."""
        return self._partition([(0, n) for n in self.shape])

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
        dims = [d for d in self.tables[k] if d != last and box[d][1] - box[d][0] > 1]
        if not dims:
            return False
        d = max(dims, key=lambda d: box[d][1] - box[d][0])
        start, stop = box[d]
        lo, hi = self._status(k, box, d)
        if last in self.tables[k]:
            pass  # the range over the lanes is part of lo, hi
        t = self.tables[k][d][start:stop]
        n = self.in_shape[k]
        kind = np.where((t + lo >= 0) & (t + hi < n), 1, np.where((t + hi < 0) | (t + lo >= n), 2, 0))
        edges = [0, *(np.flatnonzero((kind[1:] != kind[:-1]) | (kind[1:] == 0)) + 1), len(t)]
        if len(edges) > MAX_BOXES:
            return False
        return all(
            self._partition([*box[:d], (start + int(a), start + int(b)), *box[d + 1 :]])
            for a, b in itertools.pairwise(edges)
        )

    def _factor(self, box: list[tuple[int, int]], valid: np.ndarray) -> bool:
        """Turns the tables of a box into loops; a dimension that is not a nest of loops is cut again."""
        loops: list[Loop] = []
        last = len(self.shape) - 1
        read, write = 0, sum(s * b[0] for s, b in zip(self.out_strides, box))
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


def emit_box(f: Function, box: Box, x: Buffer, out: Buffer, flip: int, fill: int) -> None:
    lanes = _nest(box.lanes) if box.valid.all() else None
    affine = lanes is not None and len(lanes) == 1
    loops = box.loops
    along = [k for k, l in enumerate(loops) if 1 <= l.read <= 4]
    contiguous = affine and lanes is not None and lanes[0][1] in (0, 1)
    if not contiguous and along and box.valid.any() and (len(box.lanes) >= BLOCK or not affine):
        k = min(along, key=lambda k: loops[k].read)
        if loops[k].extent >= BLOCK and len(box.lanes) >= BLOCK:
            _transposed(f, box, k, x, out, flip, fill)
            return
    runs = [(0, len(box.lanes), lanes[0][1])] if affine and lanes else _lane_runs(box)
    order = list(range(len(loops)))
    for start, count, step in runs:
        with _nested(f, [loops[k] for k in order], box.read, box.write) as (r, w), f.loop(0, count) as i:
            at = f.op(f"add nsw i64 {w}, {f.op(f'add nsw i64 {i}, {start}')}")
            if not box.valid[start]:
                f.store(out, at, str(fill))
                continue
            source = f.op(f"add nsw i64 {f.op(f'mul nsw i64 {i}, {step}')}, {int(box.lanes[start])}")
            v = f.load(x, f.op(f"add nsw i64 {r}, {source}"))
            f.store(out, at, f.op(f"xor i8 {v}, {flip}") if flip else v)


def _lane_runs(box: Box) -> list[tuple[int, int, int]]:
    """(start, count, step) stretches of lanes that are all filled, or copied with one stride."""
    runs, i, n = [], 0, len(box.lanes)
    while i < n:
        j, step = i + 1, 0
        while j < n and box.valid[j] == box.valid[i]:
            d = int(box.lanes[j] - box.lanes[j - 1])
            if box.valid[i] and j > i + 1 and d != step:
                break
            step = d
            j += 1
        runs.append((i, j - i, step))
        i = j
    return runs


class _nested:
    """A nest of affine loops as one context manager; gives the read and write offsets."""

    def __init__(self, f: Function, loops: list[Loop], read: int, write: int) -> None:
        self.f, self.loops, self.read, self.write = f, loops, str(read), str(write)
        self.open: list = []

    def __enter__(self) -> tuple[str, str]:
        f, r, w = self.f, self.read, self.write
        for l in self.loops:
            manager = f.loop(0, l.extent)
            i = manager.__enter__()
            self.open.append(manager)
            r = f.op(f"add nsw i64 {r}, {f.op(f'mul nsw i64 {i}, {l.read}')}")
            w = f.op(f"add nsw i64 {w}, {f.op(f'mul nsw i64 {i}, {l.write}')}")
        return r, w

    def __exit__(self, *error: object) -> None:
        for manager in reversed(self.open):
            manager.__exit__(None, None, None)


def _transposed(f: Function, box: Box, k: int, x: Buffer, out: Buffer, flip: int, fill: int) -> None:
    """Lanes (contiguous in the output) against loop k (contiguous in the input)."""
    across = box.loops[k]
    rest = [l for i, l in enumerate(box.loops) if i != k]
    lanes, n = box.lanes, len(box.lanes)
    steps = np.diff(lanes)
    regular = box.valid.all() and n > 4 * BLOCK and np.all(steps == steps[0])
    if regular:
        _transposed_wide(f, across, rest, box, int(steps[0]), x, out, flip, fill)
        return
    with _nested(f, rest, box.read, box.write) as (r, w):
        base_in, base_out = f.element(x, r), f.element(out, w)
        for first in [*range(0, n - BLOCK, BLOCK), n - BLOCK]:  # the last block may overlap its neighbour
            group = [int(v) for v in lanes[first : first + BLOCK]]
            valid = [bool(v) for v in box.valid[first : first + BLOCK]]

            def block(
                j: str, groups: int, group: list[int] = group, valid: list[bool] = valid, first: int = first
            ) -> None:
                a = _byte(f, base_in, f.op(f"mul nsw i64 {j}, {across.read}"))
                b = _byte(f, base_out, f.op(f"mul nsw i64 {j}, {across.write}"))
                transpose_block(
                    f,
                    lambda i: _byte(f, a, str(group[i])),
                    lambda j: _byte(f, b, str(j * across.write + first)),
                    groups,
                    True,
                    valid,
                    flip,
                    fill,
                    across.read,
                )

            _strips(f, across.extent, block)


def _transposed_wide(f, across, rest, box, step, x, out, flip, fill) -> None:  # type: ignore[no-untyped-def]
    """Many lanes in regular steps (a plane read from blocked channels): vectors along the lanes."""
    n = len(box.lanes)
    with _nested(f, rest, box.read + int(box.lanes[0]), box.write) as (r, w):
        base_in, base_out = f.element(x, r), f.element(out, w)
        for first in [*range(0, across.extent - BLOCK, BLOCK), across.extent - BLOCK]:

            def block(j: str, groups: int, first: int = first) -> None:
                a = _byte(f, base_in, f.op(f"mul nsw i64 {j}, {step}"))
                b = _byte(f, base_out, j)
                transpose_block(
                    f,
                    lambda i: _byte(f, a, str(i * step + first * across.read)),
                    lambda i: _byte(f, b, str((first + i) * across.write)),
                    groups,
                    False,
                    [True] * BLOCK,
                    flip,
                    fill,
                    across.read,
                )

            _strips(f, n, block)


def _strips(f: Function, extent: int, block) -> None:  # type: ignore[no-untyped-def]
    """Covers `extent` by strips of 64 and 16; the last strip overlaps where 16 does not divide."""
    wide = extent // (4 * BLOCK) * 4 * BLOCK
    if wide:
        with f.loop(0, wide, 4 * BLOCK) as j:
            block(j, 4)
    if extent > wide:
        with f.loop(wide, extent, BLOCK) as j:
            block(f.intrinsic("smin", "i64", j, str(extent - BLOCK)), 1)


def _byte(f: Function, p: str, offset: str) -> str:
    return f.op(f"getelementptr i8, ptr {p}, i64 {offset}")


@op("Relayout")
def relayout(ctx: Context) -> None:
    x = ctx.input()
    shape, tables = ctx.out_shape(), ctx.attr("tables")
    flip, fill = int(ctx.attr("xor", 0)) & 0xFF, int(ctx.attr("fill", 0))
    flip, fill = (flip ^ 0x80) - 0x80, ((fill & 0xFF) ^ 0x80) - 0x80
    if len(tables) != x.rank:
        raise ctx.unsupported(f"{len(tables)} tables for {x.rank} input dimensions", "one per input dimension")
    buffer, out = ctx.buffer(x), ctx.temp(shape, ctx.out_dtype())
    assert out.buffer is not None
    target = out.buffer
    analysis = Analysis(x.shape, shape, tables)
    if out.size and x.size and shape and analysis.run():

        def write(f: Function) -> None:
            for box in analysis.boxes:
                emit_box(f, box, buffer, target, flip, fill)

        ctx.kernel(write, [out], label="Relayout")
    else:
        _by_lookup(ctx, x, out, tables, flip, fill)
    ctx.bind(out)


def _by_lookup(ctx: Context, x: Value, out: Value, tables: list[dict[int, np.ndarray]], flip: int, fill: int) -> None:
    variables = out.vars()
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
    ctx.assign(out, variables, guard(inside, value, fill).to(out.dtype))


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
