"""Splits copies given by tables into boxes: parts of the output that affine loops walk.

In a box every lane (index of the last dimension) is either copied or filled, and its tables are factored into loops.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from msgspec import Struct

#: Above this many boxes the tables are looked up element by element.
MAX_BOXES = 48


class Loop(Struct):
    """One affine loop of a copy: strides in elements of input and output."""

    extent: int
    read: int
    write: int


class Box(Struct):
    """A part of the output: loops, the last dimension's input offsets, and the lanes that are copied."""

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
        """Computes the boxes. Returns False where the tables are too irregular."""
        around = [(0, n) for n in self.shape[:-1]]
        starts = range(0, self.shape[-1], self.block)
        return all(self._partition([*around, (start, start + self.block)]) for start in starts)

    def _coordinate_range(self, k: int, box: list[tuple[int, int]], skip: int) -> tuple[int, int]:
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
            lo, hi = self._coordinate_range(k, box, last)
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
            edges = self._cut_positions(box, k, d)
            if len(edges) > 2 and (best is None or len(edges) < len(best[1])):
                best = d, edges
        if best is None or len(best[1]) > MAX_BOXES:
            return False
        d, edges = best
        start = box[d][0]
        return all(
            self._partition([*box[:d], (start + a, start + b), *box[d + 1 :]]) for a, b in itertools.pairwise(edges)
        )

    def _cut_positions(self, box: list[tuple[int, int]], k: int, d: int) -> list[int]:
        """Positions to cut dimension d at, so that coordinate k is inside or outside; undecided indices are alone."""
        lo, hi = self._coordinate_range(k, box, d)
        t = self.tables[k][d][slice(*box[d])]
        n = self.in_shape[k]
        kind = np.where((t + lo >= 0) & (t + hi < n), 1, np.where((t + hi < 0) | (t + lo >= n), 2, 0))
        return [0, *(int(i) + 1 for i in np.flatnonzero((kind[1:] != kind[:-1]) | (kind[1:] == 0))), len(t)]

    def _factor(self, box: list[tuple[int, int]], valid: np.ndarray) -> bool:
        """Turns the tables of a box into loops; a dimension that is not a loop nest is cut again."""
        loops: list[Loop] = []
        last = len(self.shape) - 1
        blocks, lane = divmod(box[last][0], self.block)
        read, write = 0, blocks * self.plane + lane + sum(s * b[0] for s, b in zip(self.out_strides, box))
        lanes = self._offsets(last, box)
        for d in range(last):
            offsets = self._offsets(d, box)
            nest = affine(offsets) if valid.any() else [(len(offsets), 0)]
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
        self.boxes.append(Box(joined(loops), read, write, lanes, valid))
        return len(self.boxes) <= MAX_BOXES

    def _offsets(self, d: int, box: list[tuple[int, int]]) -> np.ndarray:
        total = np.zeros(box[d][1] - box[d][0], np.int64)
        for k, s in enumerate(self.in_strides):
            if d in self.tables[k]:
                total += s * self.tables[k][d][slice(*box[d])]
        return total


def _run(v: np.ndarray) -> int:
    """The length of the affine start of a vector."""
    steps = np.diff(v)
    breaks = np.flatnonzero(steps != steps[0])
    return int(breaks[0]) + 1 if len(breaks) else len(v)


def affine(v: np.ndarray) -> list[tuple[int, int]] | None:
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
    outer = affine(rows[:, 0])
    return None if outer is None else [*outer, (run, int(v[1] - v[0]))]


def joined(loops: list[Loop]) -> list[Loop]:
    """Joins loops of one walk: none of one iteration, and none that continues the one inside it."""
    out: list[Loop] = []
    for l in loops:
        if l.extent == 1:
            continue
        if out and out[-1].read == l.read * l.extent and out[-1].write == l.write * l.extent:
            out[-1] = Loop(out[-1].extent * l.extent, l.read, l.write)
        else:
            out.append(l)
    return out


class Run(Struct):
    """Lanes that a nest of loops walks, all filled or all copied."""

    loops: list[Loop]
    read: int
    write: int
    valid: bool


def lane_runs(box: Box) -> list[Run]:
    """Groups the lanes into few nests: stretches of one stride, then equal stretches at equal distances, and so on."""
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
