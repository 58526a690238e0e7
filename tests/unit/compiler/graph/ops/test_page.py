"""Compares the table of quantised ops in `docs/compiler.md` with the compiler."""

from __future__ import annotations

import re

from tests.common.paths import ROOT
from tilewright.compiler.graph.ops import QUANTIZED_OPS
from tilewright.compiler.npu.ops import NPU_OPS

PAGE = (ROOT / "docs" / "compiler.md").read_text(encoding="utf-8")


def test_list_of_ops() -> None:
    sentence = re.search(r"They are ([^.]*)\.", PAGE)
    assert sentence is not None
    assert set(re.findall(r"Q\w+", sentence[1])) == set(QUANTIZED_OPS)


def test_where_they_run() -> None:
    rows = dict(re.findall(r"^\| (Q\w+) \| (.*) \|$", PAGE, flags=re.MULTILINE))
    conditions = {kind.name: how.condition for kind, how in NPU_OPS.items()}
    assert rows == {name: conditions.get(name, "never: CPU") for name in QUANTIZED_OPS}
