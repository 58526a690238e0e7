"""Names from strangers' files, made fit for files of ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.common.text import MAX_NAME, is_plain, mathtext_escaped, plain, printable, suggest


@pytest.mark.medium
@given(st.text())
def test_nothing_that_a_script_reads_is_left(name: str) -> None:
    made = plain(name)
    assert len(made) <= MAX_NAME and not set(made) & set("\n\r\t\\\"'`${}[]();#&|<>*/!?~%")
    assert plain(made) == made and is_plain(made) == bool(made)


def test_usual_names_stay() -> None:
    for name in ("resnet18", "my chip 2", "16x4", "a-b_c.d+e,f=g"):
        assert plain(name) == name and is_plain(name)
    assert not is_plain("") and not is_plain(" a") and plain("a\nb") == "a_b"


@pytest.mark.medium
@given(st.text())
def test_nothing_that_a_terminal_acts_upon_is_left(text: str) -> None:
    made = printable(text)
    assert len(made) == len(text) and made.replace("\n", "").replace("\t", "").isprintable()
    made.encode()


@given(st.text())
def test_formulas_are_text(text: str) -> None:
    assert mathtext_escaped(text).count("$") == mathtext_escaped(text).count(r"\$") == text.count("$")


def test_what_was_meant() -> None:
    known = ["base", "small", "resnet8", "resnet18"]
    assert suggest("bsae", known) == " (did you mean base?)"
    assert suggest("BASE", known) == " (did you mean base?)"
    assert suggest("resnet", known).startswith(" (did you mean resnet8 or resnet18")
    assert suggest("x", known) == suggest("", known) == suggest("base", []) == ""
