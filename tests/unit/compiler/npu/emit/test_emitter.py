"""Loop nests: joined, split to fit, and the rows they touch."""

from __future__ import annotations

import itertools
import random

import pytest

from compiler.npu.emit.emitter import Emitter, fold_loops, spans
from isa.assembler import disassemble
from isa.config import PRESETS


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
    covered = {row for s in spans("act", 500, dims, grain) for row in range(s.start, s.start + s.count)}
    assert touched(500, dims, grain) <= covered


def test_spans_leave_gaps_out() -> None:
    assert [(s.start, s.count) for s in spans("act", 0, [(4, 1), (3, 100)])] == [(0, 4), (100, 4), (200, 4)]
    assert [(s.start, s.count) for s in spans("act", 0, [(4, 1), (100, 100)])] == [(0, 9904)]  # too many: one hull


def test_nest_with_too_many_levels_is_split() -> None:
    emitter = Emitter(PRESETS["tiny"].with_(gemm_loops=5), 0)
    outer = [(2, 3 * 10**i, 0, 2**i) for i in range(4)]
    emitter.gemm(0, 0, 0, [(2, 10, 1, 0)], [*outer, (2, 7, 0, 100)])
    emitter.end_step()
    runs = [line for line in disassemble(emitter.image).splitlines() if "LOOP" not in line]
    assert runs == ["GEMM reduce=1", "GEMM act=7 acc=100 reduce=1", "END"]


def test_products_that_do_not_fit_one_nest_accumulate() -> None:
    emitter = Emitter(PRESETS["tiny"].with_(gemm_loops=5), 0)
    inner = [(2, 3 * 10**i, 2**i, 0) for i in range(5)]
    emitter.gemm(0, 0, 0, [*inner, (2, 7, 100, 0)], [])
    emitter.end_step()
    runs = [line for line in disassemble(emitter.image).splitlines() if "LOOP" not in line]
    assert runs == ["GEMM reduce=5", "GEMM act=7 wgt=100 reduce=5 accumulate=1", "END"]


def test_dry_emission_counts_the_same_work() -> None:
    counts = []
    for dry in (False, True):
        emitter = Emitter(PRESETS["tiny"], 0, dry=dry)
        emitter.fill(5, [(300, 9)], 600, 1)
        emitter.gemm(0, 0, 0, [(2, 10, 1, 0)], [(3, 1, 0, 1)])
        counts.append(emitter.work)
    assert counts[0] == counts[1]
    assert emitter.position == 0
