"""Index tables of the `Relayout` op, which moves a tensor between its plain form and the NPU's blocks.

There is one table per axis of the source: {axis of the result: the source's index for every index along it}. Where
several axes of the result walk along one axis of the source, their indices add up.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.npu.views import channel_axis, planes_of
from tilewright.isa.program import Layout

#: One axis of the source.
Table = dict[int, np.ndarray]


def pack_tables(shape: tuple[int, ...], layout: Layout, block: int) -> tuple[tuple[int, ...], list[Table]]:
    """From a plain tensor of `shape` to the blocks of its dense view.

    Returns:
        ([N, CB, H, W, block], tables).
    """
    n, c, h, w = planes_of(shape, layout)
    cb = -(-c // block)
    channels = {1: _count(cb) * block, 4: _count(block)}
    if layout is Layout.CHANNELS_LAST:
        index = np.unravel_index(np.arange(n), shape[:-2]) if shape[:-2] else ()
        tables: list[Table] = [{0: i.astype(np.int32)} for i in index]
        if len(shape) > 1:
            tables.append({3: _count(w)})
        tables.append(channels)
    else:
        tables = [{0: _count(n)}, channels]
        if len(shape) == 4:
            tables.append({2: _count(h)})
        if len(shape) > 2:
            tables.append({3: _count(w)})
    return (n, cb, h, w, block), tables


def unpack_tables(shape: tuple[int, ...], layout: Layout, block: int) -> list[Table]:
    """From the blocks of a dense view [N, CB, H, W, block] back to the plain tensor of `shape`."""
    n, c, h, w = planes_of(shape, layout)
    rank = len(shape)
    c_axis = channel_axis(rank, layout)
    tables: list[Table] = [{}, {c_axis: _count(c) // block}, {}, {}, {c_axis: _count(c) % block}]
    if layout is Layout.CHANNELS_LAST:
        stride = 1
        for axis in range(rank - 3, -1, -1):
            tables[0][axis] = _count(shape[axis]) * stride
            stride *= shape[axis]
        if rank > 1:
            tables[3][rank - 2] = _count(w)
        return tables
    tables[0][0] = _count(n)
    if rank == 4:
        tables[2][2] = _count(h)
    if rank > 2:
        tables[3][rank - 1] = _count(w)
    return tables


def with_bytes(tables: list[Table]) -> list[Table]:
    """Tables for a source that has an axis of two bytes in front, whose result has each image (axis 0) twice: of the
    first bytes, then of the second ones."""
    images = max((len(entry[0]) for entry in tables if 0 in entry), default=1)
    twice: list[Table] = [{0: np.tile(_count(2), images)}]
    return twice + [{axis: np.repeat(t, 2) if axis == 0 else t for axis, t in entry.items()} for entry in tables]


def from_bytes(tables: list[Table], blocks: int) -> list[Table]:
    """Tables of a result with an axis of two bytes in front, from a source whose blocks (axis 1) of the second byte lie
    behind those of the first.

    Args:
        tables: without the bytes.
        blocks: of a byte.
    """
    behind: list[Table] = [{axis + 1: t for axis, t in entry.items()} for entry in tables]
    behind[1][0] = _count(2) * blocks
    return behind


#: Beyond every axis: what is read there is filled.
OUTSIDE = 1 << 20


def reach(entry: Table, size: int) -> tuple[int, int]:
    """Returns the elements that are read before the first and behind the last of an axis of the source, `OUTSIDE` left
    out."""
    values = [t[t < OUTSIDE] for t in entry.values()]
    low, high = (sum(int(end(t)) for t in values) for end in (np.min, np.max))
    return max(0, -low), max(0, high - size + 1)


def shifted(entry: Table, by: int) -> Table:
    """The table of an axis with so many more elements in front."""
    return {axis: t + by if number == 0 else t for number, (axis, t) in enumerate(entry.items())}


def _count(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.int32)
