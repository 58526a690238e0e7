"""Index tables of conversions, compared with numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.npu.blocks.tables import OUTSIDE, IndexTable, out_of_bounds, pack_tables, unpack_tables
from tilewright.isa.program import Layout

SHAPES = [
    ((2, 5, 3, 4), Layout.CHANNELS_FIRST),
    ((2, 5, 3), Layout.CHANNELS_FIRST),
    ((2, 5), Layout.CHANNELS_FIRST),
    ((2, 3, 4, 5), Layout.CHANNELS_LAST),
    ((3, 5), Layout.CHANNELS_LAST),
    ((5,), Layout.CHANNELS_LAST),
]


def relayout(source: np.ndarray, shape: tuple[int, ...], tables: list[IndexTable]) -> np.ndarray:
    """Returns the result of a `Relayout`: for each axis of the source its table's indices add up; 0 is outside."""
    result = np.zeros(shape, source.dtype)
    for at in np.ndindex(*shape):
        index = tuple(sum(int(values[at[axis]]) for axis, values in table.items()) for table in tables)
        if all(0 <= i < size for i, size in zip(index, source.shape, strict=True)):
            result[at] = source[index]
    return result


@pytest.mark.parametrize(("shape", "layout"), SHAPES)
def test_there_and_back(shape: tuple[int, ...], layout: Layout) -> None:
    plain = np.arange(1, 1 + np.prod(shape)).reshape(shape)
    blocks, tables = pack_tables(shape, layout, 4)
    packed = relayout(plain, blocks, tables)
    channels_last = plain if layout is Layout.CHANNELS_LAST else np.moveaxis(plain, 1, -1)
    n, cb, h, w, block = blocks
    vectors = np.moveaxis(packed, 1, 3).reshape(n * h * w, cb * block)
    np.testing.assert_array_equal(vectors[:, :5], channels_last.reshape(n * h * w, 5))
    assert not vectors[:, 5:].any()
    np.testing.assert_array_equal(relayout(packed, shape, unpack_tables(shape, layout, 4)), plain)


@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 32))
def test_how_far_a_source_is_read_beyond_its_ends(seed: int) -> None:
    """`out_of_bounds` equals the extremes of all sums of a table's indices."""
    rng = np.random.default_rng(seed)
    entry = {axis: rng.integers(-4, 6, rng.integers(1, 5)).astype(np.int32) for axis in range(rng.integers(1, 4))}
    size = int(rng.integers(1, 8))
    every = sum(np.ix_(*entry.values()))
    before, behind = max(0, -int(np.min(every))), max(0, int(np.max(every)) - (size - 1))
    entry[0] = np.append(entry[0], np.int32(OUTSIDE))  # the fill value is read nowhere
    assert out_of_bounds(entry, size) == (before, behind)
