"""Objects show themselves in a short line and in a table that a strange name cannot break."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.common.shown import MAX_ENTRIES, Shown, listed


class Thing(Shown):
    def __init__(self, **facts: Any) -> None:
        self._facts = facts

    def facts(self) -> dict[str, Any]:
        return self._facts

    def table(self) -> list[list[str]]:
        return [["layer", "cycles"], ["<b>", "1"]] if self._facts.get("rows") else []


def test_a_line() -> None:
    assert repr(Thing(name="net", macs=1234567, ok=True, ratio=0.25)) == (
        "Thing(name='net', macs=1,234,567, ok=True, ratio=0.25)"
    )
    long = repr(Thing(name="x" * 10_000, inputs=listed(range(1000))))
    assert len(long) < 300 and "…" in long and f"and {1000 - MAX_ENTRIES} more" in long
    assert listed([]) == "" and listed("ab") == "a, b"


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a\x1b]0;b", "\x00\u202e", "'\"&"])
def test_strange_names(name: str) -> None:
    thing = Thing(name=name, rows=1)
    assert repr(thing).isprintable()
    page = thing._repr_html_()
    assert "<script" not in page and "\x1b" not in page and "\u202e" not in page and "<b>" not in page
    assert page.count("<table>") == page.count("</table>") == 2
