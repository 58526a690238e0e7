"""Index tables of the `Relayout` op, which moves a tensor between its plain form and the NPU's blocks.

There is one table per axis of the source: {axis of the result: the source's index for every index along it}, int32.
Where several axes of the result have a table for one axis of the source, their indices add up.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.npu.views import channel_axis, planes_of
from tilewright.isa.program import Layout

#: The indices into one axis of the source, int32, by axis of the result.
IndexTable = dict[int, np.ndarray]


def pack_tables(shape: tuple[int, ...], layout: Layout, block: int) -> tuple[tuple[int, ...], list[IndexTable]]:
    """Returns the shape and tables that turn a plain tensor of `shape` into the blocks of its dense view.

    Returns:
        ([N, CB, H, W, block], tables).
    """
    n, c, h, w = planes_of(shape, layout)
    cb = -(-c // block)
    channels = {1: _indices(cb) * block, 4: _indices(block)}
    if layout is Layout.CHANNELS_LAST:
        index = np.unravel_index(np.arange(n), shape[:-2]) if shape[:-2] else ()
        tables: list[IndexTable] = [{0: i.astype(np.int32)} for i in index]
        if len(shape) > 1:
            tables.append({3: _indices(w)})
        tables.append(channels)
    else:
        tables = [{0: _indices(n)}, channels]
        if len(shape) == 4:
            tables.append({2: _indices(h)})
        if len(shape) > 2:
            tables.append({3: _indices(w)})
    return (n, cb, h, w, block), tables


def unpack_tables(shape: tuple[int, ...], layout: Layout, block: int) -> list[IndexTable]:
    """Returns the tables that turn the blocks of a dense view, [N, CB, H, W, block], into a plain tensor of `shape`."""
    n, c, h, w = planes_of(shape, layout)
    rank = len(shape)
    c_axis = channel_axis(rank, layout)
    tables: list[IndexTable] = [{}, {c_axis: _indices(c) // block}, {}, {}, {c_axis: _indices(c) % block}]
    if layout is Layout.CHANNELS_LAST:
        stride = 1
        for axis in range(rank - 3, -1, -1):
            tables[0][axis] = _indices(shape[axis]) * stride
            stride *= shape[axis]
        if rank > 1:
            tables[3][rank - 2] = _indices(w)
        return tables
    tables[0][0] = _indices(n)
    if rank == 4:
        tables[2][2] = _indices(h)
    if rank > 2:
        tables[3][rank - 1] = _indices(w)
    return tables


def split_bytes_tables(tables: list[IndexTable]) -> list[IndexTable]:
    """Returns tables for a source with an axis of two bytes in front, whose result has each image (axis 0) twice.

    The first copy has the image's first bytes, the second one its second bytes.
    """
    images = max((len(entry[0]) for entry in tables if 0 in entry), default=1)
    twice: list[IndexTable] = [{0: np.tile(_indices(2), images)}]
    return twice + [{axis: np.repeat(t, 2) if axis == 0 else t for axis, t in entry.items()} for entry in tables]


def join_bytes_tables(tables: list[IndexTable], blocks: int) -> list[IndexTable]:
    """Returns tables of a result with an axis of two bytes in front.

    The source's channel blocks (axis 1) of the second byte lie behind those of the first.

    Args:
        tables: tables of a value of one byte.
        blocks: channel blocks of one byte.
    """
    behind: list[IndexTable] = [{axis + 1: t for axis, t in entry.items()} for entry in tables]
    behind[1][0] = _indices(2) * blocks
    return behind


#: An index beyond every axis: `Relayout` writes its fill value there.
OUTSIDE = 1 << 20


def out_of_bounds(entry: IndexTable, size: int) -> tuple[int, int]:
    """Returns the numbers of elements that a table reads before and behind an axis of `size`, without `OUTSIDE`."""
    values = [t[t < OUTSIDE] for t in entry.values()]
    low, high = (sum(int(end(t)) for t in values) for end in (np.min, np.max))
    return max(0, -low), max(0, high - size + 1)


def shifted(entry: IndexTable, by: int) -> IndexTable:
    """Returns the table of an axis that has `by` more elements in front."""
    return {axis: t + by if number == 0 else t for number, (axis, t) in enumerate(entry.items())}


def _indices(size: int) -> np.ndarray:
    """Returns 0..size-1, int32."""
    return np.arange(size, dtype=np.int32)
