"""How tensors look to the NPU: planes of channel vectors.

A view is [N][CB][H][W] vectors of `block` lanes (CB = ceil(C / block)), W contiguous, everything else by strides.
Two conventions say which model axis holds the channels: "c1" is axis 1 (convolutions, pooling), "last" the last axis
(matrix products: rows are W). uint8 values are stored moved by 128 so that the machine sees int8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


def plane_shape(shape: tuple[int, ...], convention: str) -> tuple[int, int, int, int] | None:
    """(N, C, H, W) of a model shape, None if it has no such view."""
    if any(d == 0 for d in shape):
        return None
    if convention == "last":
        if len(shape) < 1:
            return None
        rows = shape[-2] if len(shape) > 1 else 1
        return int(np.prod(shape[:-2], dtype=np.int64)), shape[-1], 1, rows
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    if len(shape) == 3:
        return shape[0], shape[1], 1, shape[2]
    if len(shape) == 2:
        return shape[0], shape[1], 1, 1
    return None


@dataclass(frozen=True)
class View:
    """Where a tensor lies in external memory and how it is walked. Strides and offset in bytes.

    Attributes:
        tensor: name of the model tensor.
        region: memory region.
        offset: first byte, relative to the buffer until `allocate` has placed it.
        buffer: name of the buffer (aliases share one).
        n, c, h, w: logical sizes; a broadcast axis has size 1 here.
        sn, sc, sh: bytes between images, channel blocks and rows; vectors of a row are contiguous.
    """

    tensor: str
    region: int
    buffer: str
    n: int
    c: int
    h: int
    w: int
    sn: int
    sc: int
    sh: int
    block: int
    offset: int = 0

    @property
    def cb(self) -> int:
        return -(-self.c // self.block)

    @property
    def nbytes(self) -> int:
        return self.n * self.cb * self.h * self.w * self.block

    def at(self, offset: int) -> View:
        return replace(self, offset=self.offset + offset)

    def address(self, n: int, cb: int, y: int, x: int) -> int:
        return self.offset + n * self.sn + cb * self.sc + y * self.sh + x * self.block


def packed(tensor: str, buffer: str, region: int, dims: tuple[int, int, int, int], block: int) -> View:
    """The dense view: [N][CB][H][W][block]."""
    n, c, h, w = dims
    cb = -(-c // block)
    sh = w * block
    sc = h * sh
    return View(tensor, region, buffer, n, c, h, w, cb * sc, sc, sh, block)


def relayout_tables(shape: tuple[int, ...], convention: str, block: int) -> tuple[tuple[int, ...], list[dict]]:
    """Output shape and index tables of the `Relayout` op that packs a plain tensor into its dense view.

    Returns:
        ([N, CB, H, W, block], one {output dim: int32 table} per axis of `shape`).
    """
    dims = plane_shape(shape, convention)
    assert dims is not None
    n, c, h, w = dims
    cb = -(-c // block)
    out = (n, cb, h, w, block)
    blocks = {1: np.arange(cb, dtype=np.int32) * block, 4: np.arange(block, dtype=np.int32)}
    if convention == "last":
        tables: list[dict] = _mixed_radix(shape[:-2], 0, n)
        if len(shape) > 1:
            tables.append({3: np.arange(w, dtype=np.int32)})
        tables.append(blocks)
        return out, tables
    tables = [{0: np.arange(n, dtype=np.int32)}, blocks]
    if len(shape) == 4:
        tables += [{2: np.arange(h, dtype=np.int32)}, {3: np.arange(w, dtype=np.int32)}]
    elif len(shape) == 3:
        tables += [{3: np.arange(w, dtype=np.int32)}]
    return out, tables


def _mixed_radix(shape: tuple[int, ...], dim: int, size: int) -> list[dict]:
    index = np.unravel_index(np.arange(size), shape) if shape else ()
    return [{dim: i.astype(np.int32)} for i in index]


def unpack_tables(shape: tuple[int, ...], convention: str, block: int) -> list[dict]:
    """Index tables of the `Relayout` op from the dense view [N, CB, H, W, block] back to the plain `shape`."""
    dims = plane_shape(shape, convention)
    assert dims is not None
    n, c, h, w = dims
    channel = np.arange(c, dtype=np.int32)
    rank = len(shape)
    c_axis = rank - 1 if convention == "last" else 1
    tables: list[dict] = [{}, {c_axis: channel // block}, {}, {}, {c_axis: channel % block}]
    if convention == "last":
        stride = 1
        for axis in range(rank - 3, -1, -1):
            tables[0][axis] = np.arange(shape[axis], dtype=np.int32) * stride
            stride *= shape[axis]
        if rank > 1:
            tables[3][rank - 2] = np.arange(w, dtype=np.int32)
        return tables
    tables[0][0] = np.arange(n, dtype=np.int32)
    if rank == 4:
        tables[2][2] = np.arange(h, dtype=np.int32)
        tables[3][3] = np.arange(w, dtype=np.int32)
    elif rank == 3:
        tables[3][2] = np.arange(w, dtype=np.int32)
    return tables
