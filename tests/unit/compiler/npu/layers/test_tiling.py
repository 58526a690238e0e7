"""Sizes of tiles: even parts of an axis, and bands of a plane."""

from __future__ import annotations

from tilewright.compiler.npu.layers.tiling import bands, even_parts


def test_even_parts() -> None:
    assert even_parts(7) == [7, 4, 3, 2, 1]


def test_bands_cut_rows_before_columns() -> None:
    assert list(bands(4, 9, [1, 2], [2, 4, 16])) == [(4, 9), (2, 9), (1, 9), (2, 5), (2, 3), (1, 5), (1, 3)]
