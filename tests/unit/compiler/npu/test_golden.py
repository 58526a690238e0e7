"""Golden tests: the back end's texts for small graphs equal those kept in `golden/`."""

from __future__ import annotations

import difflib

import pytest

from tests.unit.compiler.npu.golden import FOLDER, cases


@pytest.mark.parametrize("name", sorted(cases()))
def test_golden(name: str) -> None:
    case = cases()[name]
    kept = case.path.read_text() if case.path.exists() else ""
    now = case.text()
    difference = difflib.unified_diff(kept.splitlines(), now.splitlines(), case.path.name, "now", lineterm="", n=2)
    if kept != now:
        pytest.fail("\n".join([*difference, "", "If this is meant: make golden"]), pytrace=False)


def test_no_text_without_case() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(cases())
