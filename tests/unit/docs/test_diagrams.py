"""The diagrams in docs/images say what the configuration and the contracts say today: `make pictures` draws them."""

from __future__ import annotations

import io
import re
import runpy

import matplotlib
import pytest

from tests.common.paths import PARTS, ROOT

DRAWN = runpy.run_path(str(ROOT / "examples" / "diagrams.py"))
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "tilewright"}


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


@pytest.mark.medium
@pytest.mark.parametrize("name", DRAWN["DIAGRAMS"])
def test_is_of_today(name: str) -> None:
    drawn = io.StringIO()
    with matplotlib.rc_context(STYLE):
        DRAWN["DIAGRAMS"][name]().savefig(drawn, format="svg")
    found = texts(drawn.getvalue())
    assert len(found) > 5
    assert texts((ROOT / "docs" / "images" / name).read_text(encoding="utf-8")) == found


def test_packages_are_those_of_the_contract() -> None:
    """All of them, the top floor first."""
    drawn = texts((ROOT / "docs" / "images" / "packages.svg").read_text(encoding="utf-8"))
    names = [text.removesuffix("/") for text in drawn if text.endswith("/")]
    below = [name.strip() for floor in DRAWN["contract"]()[2:] for name in floor.split("|")]
    assert names == ["additions", "tilewright", *below] and sorted(names) == sorted(("additions", "tilewright", *PARTS))
