"""Values that `MemoryTiming` accepts, and steps of windows."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from tilewright.isa.timing import MemoryTiming, window_line_steps


@pytest.mark.parametrize(
    "field, value",
    [
        ("read_latency", 0), ("read_latency", 4097), ("write_latency", 2.5), ("read_latency", True),
        ("read_interval", 0.99), ("write_interval", 64.5), ("read_interval", math.nan), ("read_interval", "2"),
    ],
)  # fmt: skip
def test_what_no_memory_has(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{field} must be 1\.\.(4096|64) cycles, not {value!r}"):
        MemoryTiming(**{field: value})


def test_intervals_need_not_be_whole() -> None:
    assert MemoryTiming(read_interval=2.5, write_interval=64).read_interval == 2.5


def test_steps_of_a_line_of_pushes_are_those_counted_one_by_one() -> None:
    for pushes, start, step, emits, alone in itertools.product(
        range(1, 14), range(8), range(1, 6), (False, True), (False, True)
    ):
        steps = at = 0
        while at < pushes:
            silent = not (emits and at >= start and (at - start) % step == 0)
            at += 2 if silent and at + 1 < pushes and not (alone and at == 0) else 1
            steps += 1
        assert window_line_steps(pushes, start, step, emits, alone) == steps, (pushes, start, step, emits, alone)
