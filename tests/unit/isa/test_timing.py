"""Values that `MemoryTiming` accepts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tilewright.isa.timing import MemoryTiming


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
