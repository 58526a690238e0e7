"""Offsets of buffers, and the check that finds wrong ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.errors import CompileError
from tilewright.compiler.stages.memory_plan import MemoryPlan

LIVES = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 9), st.integers(0, 9)), max_size=12)


@pytest.mark.medium
@given(LIVES)
def test_whatever_lives_together_lies_apart(lives: list[tuple[int, int, int]]) -> None:
    plan = MemoryPlan()
    spans = {}
    for number, (nbytes, first, last) in enumerate(lives):
        spans[str(number)] = nbytes, min(first, last), max(first, last)
        plan.need(str(number), *spans[str(number)])
    plan.place()
    plan.verify("memory")
    for a, (bytes_a, first_a, last_a) in spans.items():
        for b, (bytes_b, first_b, last_b) in spans.items():
            if a != b and first_a <= last_b and first_b <= last_a:
                assert plan.offsets[a] + bytes_a <= plan.offsets[b] or plan.offsets[b] + bytes_b <= plan.offsets[a]
    assert plan.size <= plan.total and all(at % 64 == 0 for at in plan.offsets.values())


def test_what_lives_apart_shares_bytes() -> None:
    plan = MemoryPlan()
    plan.need("a", 64, 0, 1)
    plan.need("b", 64, 2, 3)
    plan.place()
    assert plan.offsets == {"a": 0, "b": 0} and plan.size == 64
    plan = MemoryPlan()
    plan.need("a", 64, 0, 1)
    plan.need("b", 64, 2, 3)
    plan.need("a", 64, 2, 2)  # a wider life
    plan.place()
    assert plan.offsets == {"a": 0, "b": 64}


def test_verify() -> None:
    plan = MemoryPlan()
    plan.need("a", 128, 0, 1)
    plan.need("b", 64, 1, 2)
    plan.place()
    plan.offsets["b"] = 64
    with pytest.raises(CompileError, match="arena broken: 'b' and 'a' share bytes while both are needed"):
        plan.verify("arena")
    plan.offsets["b"] = 192
    with pytest.raises(CompileError, match="'b' lies outside its 192 bytes"):
        plan.verify("arena")
