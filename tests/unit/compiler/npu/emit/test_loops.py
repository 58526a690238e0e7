"""Levels of loop nests are joined, and the rows a nest touches are covered."""

from __future__ import annotations

import itertools
import random

import pytest

from compiler.npu.emit.loops import fold_loops, spans


def test_loops_that_walk_on_are_joined() -> None:
    assert fold_loops([(4, 1, 2), (3, 4, 8), (1, 7, 7), (2, 20, 24)]) == [(12, 1, 2), (2, 20, 24)]


def test_loops_of_unequal_walks_stay() -> None:
    assert fold_loops([(4, 1, 2), (3, 4, 7)]) == [(4, 1, 2), (3, 4, 7)]


def touched(base: int, dims: list[tuple[int, int]], grain: int) -> set[int]:
    rows = set()
    for index in itertools.product(*(range(count) for count, _ in dims)):
        start = base + sum(i * stride for i, (_, stride) in zip(index, dims, strict=True))
        rows |= set(range(start, start + grain))
    return rows


@pytest.mark.parametrize("seed", range(50))
def test_spans_cover_every_row(seed: int) -> None:
    rng = random.Random(seed)
    dims = [(rng.randint(1, 6), rng.choice([0, 1, 2, 5, 16, 40, -3])) for _ in range(rng.randint(0, 4))]
    grain = rng.randint(1, 3)
    covered = {row for s in spans("act", 500, dims, grain) for row in range(s.start, s.start + s.length)}
    assert touched(500, dims, grain) <= covered


def test_spans_leave_gaps_out() -> None:
    assert [(s.start, s.length) for s in spans("act", 0, [(4, 1), (3, 100)])] == [(0, 4), (100, 4), (200, 4)]
    assert [(s.start, s.length) for s in spans("act", 0, [(4, 1), (100, 100)])] == [(0, 9904)]  # too many: one hull
