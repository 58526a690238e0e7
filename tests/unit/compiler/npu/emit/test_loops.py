"""Levels of loop nests are joined, and the rows a nest touches are covered."""

from __future__ import annotations

import itertools
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.npu.emit.hazards import Access
from tilewright.compiler.npu.emit.loops import fold_loops, spans


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


def covered(accesses: list[Access]) -> set[int]:
    """The rows of scratchpad accesses, found by writing them."""
    rows = np.zeros(2000, np.int32)
    for access in accesses:
        access.of(rows)[...] = 1
    return set(np.flatnonzero(rows))


def random_nest(rng: random.Random, strides: list[int], deepest: int = 4) -> tuple[list[tuple[int, int]], int]:
    return [(rng.randint(1, 6), rng.choice(strides)) for _ in range(rng.randint(0, deepest))], rng.randint(1, 3)


@settings(max_examples=50)
@given(seed=st.integers(0, 1 << 32))
def test_spans_cover_every_row(seed: int) -> None:
    dims, grain = random_nest(random.Random(seed), [0, 1, 2, 5, 16, 40, -3])
    assert touched(500, dims, grain) <= covered(spans("act", 500, dims, grain))


@settings(max_examples=50)
@given(seed=st.integers(0, 1 << 32))
def test_spans_of_few_levels_cover_no_other_rows(seed: int) -> None:
    dims, grain = random_nest(random.Random(seed), [1, 4, 7, 50, -9], deepest=3)
    assert touched(500, dims, grain) == covered(spans("act", 500, dims, grain))


def test_spans_of_memory_are_single_pieces() -> None:
    assert spans("memory", 64, [(4, 16), (3, 1000)], 16) == [Access("memory", 64 + 1000 * i, 64) for i in range(3)]


def test_a_level_that_leaves_gaps_out_is_one_access() -> None:
    assert spans("act", 0, [(4, 1), (3, 100)]) == [Access("act", 0, 4, 3, 100)]
    assert spans("act", 0, [(4, 1), (100, 7), (2, 800)]) == [Access("act", at, 4, 100, 7) for at in (0, 800)]


def test_of_too_many_pieces_gaps_count() -> None:
    assert spans("act", 0, [(70, 5), (80, 400)]) == [Access("act", 0, 346, 80, 400)]
