"""Dataclasses out of JSON that may be anything."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.common.typed import from_json


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Inner:
    pair: tuple[int, float]
    colour: Colour = Colour.RED


@dataclass
class Outer:
    name: str
    sizes: list[int]
    inner: Inner | None = None
    shape: tuple[int, ...] = ()
    names: dict[str, list[str]] = field(default_factory=dict)


WHOLE = {
    "name": "x", "sizes": [1, 2], "inner": {"pair": [1, 0.5], "colour": "blue"}, "shape": [3], "names": {"a": ["b"]},
}  # fmt: skip


def test_everything_becomes_what_it_is() -> None:
    found = from_json(Outer, WHOLE, "file")
    assert found == Outer("x", [1, 2], Inner((1, 0.5), Colour.BLUE), (3,), {"a": ["b"]})
    assert from_json(Outer, {"name": "x", "sizes": []}, "file") == Outer("x", [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "file.name must be a text, not 3"),
        ({"sizes": [1, "2"]}, r"file.sizes\[1\] must be an integer, not '2'"),
        ({"sizes": [True]}, r"file.sizes\[0\] must be an integer, not True"),
        ({"sizes": {}}, "file.sizes must be a list"),
        ({"inner": {"pair": [1]}}, "file.inner.pair must have 2 elements, not 1"),
        ({"inner": {"pair": [1, 2], "colour": "green"}}, "file.inner.colour must be one of red, blue, not 'green'"),
        ({"inner": {}}, "file.inner lacks the field 'pair'"),
        ({"names": {"a": [1]}}, r"file.names\['a'\]\[0\] must be a text"),
        ({"more": 1}, "file has an unknown field 'more'"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        from_json(Outer, WHOLE | change, "file")


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WHOLE, "pair"]), inner, max_size=5),
))  # fmt: skip
def test_anything_else_is_a_value_error_of_one_line(values: Any) -> None:
    try:
        found = from_json(Outer, values, "file")
    except ValueError as error:
        assert "\n" not in str(error).replace("\\n", "")
    else:
        assert json.dumps(found.sizes) == json.dumps(values["sizes"])
