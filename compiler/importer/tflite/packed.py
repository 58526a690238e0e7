"""Constants of a TFLite file that are stored with less than a byte an element, or without their zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.tflite.package import tflite

#: Bits of an element, by the number of the type in the schema; the `tflite` package has no name for 2 bits.
NARROW = {tflite.TensorType.INT4: 4, 19: 2}

Count = Callable[[int, str], int]


def unpacked(raw: bytes, bits: int, elements: int) -> np.ndarray:
    """Signed elements of `bits` bits as int8, the first one in the lowest bits. Raises CompileError: other length."""
    each = 8 // bits
    if len(raw) != -(-elements // each):
        raise CompileError(f"{len(raw)} bytes for {elements} elements of {bits} bits")
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(bits)
    spread = (np.frombuffer(raw, np.uint8)[:, None] >> shifts) << np.uint8(8 - bits)
    return (spread.view(np.int8) >> (8 - bits)).reshape(-1)[:elements]


def coordinates(sparsity: Any, shape: Sequence[int], count: Count) -> np.ndarray:
    """The positions of the stored elements of a sparse tensor: [elements, rank], in the order in which they are stored.

    The axes are walked in `traversal_order`, those of blocks behind those of the tensor. A dense axis has all its
    positions below each position of the axes before it, a sparse one the positions that its segment lists.

    Args:
        count: checks a length that the file gives.

    Raises:
        CompileError: axes or positions outside the tensor.
    """
    rank = len(shape)
    order = [int(sparsity.TraversalOrder(i)) for i in range(count(sparsity.TraversalOrderLength(), "axes"))]
    blocks = [int(sparsity.BlockMap(i)) for i in range(count(sparsity.BlockMapLength(), "blocks"))]
    if sorted(order) != list(range(rank + len(blocks))) or any(not 0 <= b < rank for b in blocks):
        raise CompileError(f"traversal order {order} and blocks {blocks} of rank {rank}")
    if sparsity.DimMetadataLength() != len(order) or sorted(order[:rank]) != list(range(rank)):
        raise CompileError(f"{sparsity.DimMetadataLength()} axes described in the order {order}")
    place, total = np.zeros(1, np.int64), int(np.prod(shape, dtype=object))
    walked: list[np.ndarray] = []
    sizes = [0] * len(order)
    for level, axis in enumerate(order):
        meta = sparsity.DimMetadata(level)
        if meta.Format() == tflite.DimensionType.DENSE:
            sizes[axis] = int(meta.DenseSize())
            if not 0 < sizes[axis] <= total or place.size * sizes[axis] > total:
                raise CompileError(f"axis {axis} of {sizes[axis]} positions")
            times = np.full(place.size, sizes[axis])
            here = np.tile(np.arange(sizes[axis]), place.size)
            place = np.repeat(place, times) * sizes[axis] + here
        else:
            segments = _values(meta.ArraySegmentsType(), meta.ArraySegments(), count)
            indices = _values(meta.ArrayIndicesType(), meta.ArrayIndices(), count)
            times = segments[place + 1] - segments[place]
            if np.any(times < 0) or int(times.sum()) > total:
                raise CompileError(f"segments of axis {axis}")
            starts = np.repeat(segments[place] - np.concatenate([[0], np.cumsum(times)[:-1]]), times)
            place = starts + np.arange(starts.size)
            here = indices[place]
        walked = [np.repeat(w, times) for w in walked] + [here]
    by_axis = dict(zip(order, walked))
    found = [by_axis[axis] for axis in range(rank)]
    for number, axis in enumerate(blocks):
        found[axis] = found[axis] * sizes[rank + number] + by_axis[rank + number]
    if any(f.size and (f.min() < 0 or f.max() >= n) for f, n in zip(found, shape)):
        raise CompileError(f"a position outside {list(shape)}")
    return np.stack(found, axis=1)


def _values(kind: int, table: Any, count: Count) -> np.ndarray:
    """The integers of a SparseIndexVector."""
    names = {v: k for k, v in vars(tflite.SparseIndexVector).items() if isinstance(v, int)}
    if table is None or names.get(kind, "NONE") == "NONE":
        raise CompileError("a sparse axis without positions")
    vector = getattr(tflite, names[kind])()
    vector.Init(table.Bytes, table.Pos)
    count(vector.ValuesLength(), "positions")
    return np.asarray(vector.ValuesAsNumpy(), np.int64).reshape(-1)
