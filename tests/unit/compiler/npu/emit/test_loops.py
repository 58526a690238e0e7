"""Loop nests: levels are joined where strides allow, and accesses cover the rows a nest touches."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.spaces import SPACES
from tilewright.compiler.npu.emit.tile_program import Place
from tilewright.isa.config import PRESETS
from tilewright.isa.encoding import from_bytes
from tilewright.isa.instructions import Memory
from tilewright.isa.program import ARENA_REGION
from verification.programs.accesses import Access, accesses_of, rows_of

CONFIG = PRESETS["base"]


def levels(*loops: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Returns the levels that a GEMM with these loops sets, as (count, act, acc)."""
    emitter = Emitter(CONFIG, 0)
    emitter.gemm(0, 0, 0, [], [(count, act, 0, acc) for count, act, acc in loops])
    emitter.end_step()
    found = [o for o in from_bytes(bytes(emitter.image)) if o.name == "GEMM_LOOP"]
    return [(o["count"], o["act_stride"], o["acc_stride"]) for o in found]


def spans(base: int, dims: list[tuple[int, int]]) -> list[Access]:
    """Returns the accesses to ACT of a GEMM whose loops are (count, stride)."""
    emitter = Emitter(CONFIG.with_(gemm_loops=8), 0)
    emitter.gemm(base, 0, 0, [(count, stride, 0, 0) for count, stride in dims], [])
    ((reads, _),) = accesses_of(emitter.machine, emitter.tape)
    return [access for access in reads if access.space == "act"]


def test_loops_that_walk_on_are_joined() -> None:
    assert levels((4, 1, 2), (3, 4, 8), (1, 7, 7), (2, 20, 24)) == [(12, 1, 2), (2, 20, 24)]


def test_loops_of_unequal_walks_stay() -> None:
    assert levels((4, 1, 2), (3, 4, 7)) == [(4, 1, 2), (3, 4, 7)]


def touched(base: int, dims: list[tuple[int, int]]) -> set[int]:
    """Returns the rows that a nest of (count, stride) touches."""
    return {
        base + sum(i * stride for i, (_, stride) in zip(index, dims, strict=True))
        for index in itertools.product(*(range(count) for count, _ in dims))
    }


def covered(accesses: list[Access]) -> set[int]:
    """Returns the rows that accesses cover."""
    return set().union(*map(rows_of, accesses))


def random_nest(rng: random.Random, strides: list[int], deepest: int = 4) -> list[tuple[int, int]]:
    """Returns up to `deepest` random loops (count, stride)."""
    return [(rng.randint(1, 6), rng.choice(strides)) for _ in range(rng.randint(0, deepest))]


@settings(max_examples=50)
@given(seed=st.integers(0, 1 << 32))
def test_spans_cover_every_row(seed: int) -> None:
    dims = random_nest(random.Random(seed), [0, 1, 2, 5, 16, 40, -3])
    assert touched(500, dims) <= covered(spans(500, dims))


@settings(max_examples=50)
@given(seed=st.integers(0, 1 << 32))
def test_spans_of_few_levels_cover_no_other_rows(seed: int) -> None:
    dims = random_nest(random.Random(seed), [1, 4, 7, 50, -9], deepest=3)
    assert touched(500, dims) == covered(spans(500, dims))


def test_spans_of_memory_are_single_pieces() -> None:
    row = CONFIG.block_in
    emitter = Emitter(CONFIG, 1 << 20)
    emitter.load(Place(ARENA_REGION, 64), Memory.ACT, 0, 2, y=(2, 9, 4 * row), z=(3, 50, 1000 * row))
    ((reads, _),) = accesses_of(emitter.machine, emitter.tape)
    assert reads == [Access("memory", 64 + 1000 * row * i, 6 * row) for i in range(3)]


def test_a_level_that_leaves_gaps_out_is_one_access() -> None:
    assert spans(0, [(4, 1), (3, 100)]) == [Access("act", 0, 4, 3, 100)]
    assert spans(0, [(4, 1), (100, 7), (2, 800)]) == [Access("act", at, 4, 100, 7) for at in (0, 800)]


def test_of_too_many_pieces_gaps_count() -> None:
    assert spans(0, [(70, 5), (80, 400)]) == [Access("act", 0, 346, 80, 400)]


def test_spaces_are_numbered_as_the_table_says() -> None:
    assert SPACES == ("act", "wgt", "prm", "lut", "acc", "memory")
