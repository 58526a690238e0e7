"""Rows that a layer which takes rows of another one needs, band by band."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from tilewright.compiler.npu.layers.take import TakeLayer


def test_rows_that_a_reflected_border_reads_again_stay() -> None:
    """Bands of one row: none begins before the one ahead of it, and each has the row it reads."""
    layer = cast(TakeLayer, SimpleNamespace(rows=(2, 1, 0, 1, 2, 3, 2, 1)))
    spans = [TakeLayer.input_rows(layer, (y, y + 1)) for y in range(8)]
    assert spans == [(0, 3), (0, 3), (0, 3), (1, 3), (1, 3), (1, 4), (1, 4), (1, 4)]
    assert all(first <= layer.rows[y] < end for y, (first, end) in enumerate(spans))
