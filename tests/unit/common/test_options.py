"""Keyword arguments as the fields of a dataclass."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

import pytest

import tilewright as tw
from tilewright.api.options import ProgramOptions
from tilewright.common.options import collect, keywords
from tilewright.isa.timing import MemoryTiming


@dataclass(frozen=True, kw_only=True)
class Options:
    effort: int = 1
    host: str | None = None
    derived: bool = field(init=False, default=False)


@keywords(Options)
def function(model: str, host: str | None = None, **options: Any) -> Options:
    return collect(Options, options | {"host": host}, "function")


def test_arguments_are_fields() -> None:
    assert function("m", effort=2) == Options(effort=2)
    assert collect(Options, {"host": "h"}, "function", Options(effort=3)) == Options(effort=3, host="h")
    assert (
        str(inspect.signature(function))
        == "(model: 'str', host: 'str | None' = None, *, effort: 'int' = 1) -> 'Options'"
    )
    with pytest.raises(TypeError, match=r"function\(\) got an unexpected keyword argument 'efort'.*effort"):
        function("m", efort=2)
    with pytest.raises(TypeError, match="derived"):
        function("m", derived=True)


def test_all_choices_reach_the_key_of_the_cache() -> None:
    """Each field but those that cannot change the program, are in the key by other ways, or leave the cache out."""
    other: dict[str, Any] = {
        "keep": "all", "effort": 2, "cpu_only": True, "host": "aarch64-linux", "memory": MemoryTiming(read_latency=99),
        "threads": 2, "constants": {"x": 1}, "states": "auto", "entries": {"a": {"x": [1]}}, "batch": 2,
        "objective": "energy", "keep_weights": True, "rising": ("x",), "last": ("x",),
    }  # fmt: skip
    keys = [repr(ProgramOptions().key()), *(repr(ProgramOptions(**{n: v}).key()) for n, v in other.items())]
    keys.append(repr(ProgramOptions(host="aarch64-linux", clock_mhz=50).key()))
    assert len(set(keys)) == len(keys)
    without = {"print_after", "print_form", "staged", "cache", "tuning", "progress", "kernels", "schedule"}
    assert set(inspect.signature(tw.compile_program).parameters) == {
        "model", "config", "shapes", "chosen", "clock_mhz", *other, *without,
    }  # fmt: skip
