"""Converts between tensors as the model has them and the bytes of their buffers, which may be channel-blocked.

Blocked buffers have the shape [N, ceil(C / block), H, W, block]; lanes beyond C hold whatever the machine left there.
Tensors of 16 bits have the blocks of their high bytes and behind them those of their low bytes less 128.
See `tilewright.isa.program.BlockedLayout` and `Layout`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.isa.program import BlockedLayout, Layout, TensorInfo

#: What is flipped in the high and in the low bytes of values of 16 bits.
_XOR_OF_BYTES = (0, 128)


def dtype_of(info: TensorInfo) -> np.dtype[Any]:
    """The numpy type of a tensor; small float types come from ml_dtypes."""
    try:
        return np.dtype(info.dtype)
    except TypeError:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, info.dtype))
        return found


def nbytes_of(info: TensorInfo) -> int:
    """Bytes of the tensor in its buffer."""
    if info.relayout is not None:
        return math.prod(info.relayout.shape)
    return math.prod(info.shape) * dtype_of(info).itemsize


def _planes(info: TensorInfo, blocks: BlockedLayout) -> tuple[int, int, int, int]:
    """Sizes (N, C, H, W) of a blocked tensor, where images side by side are one."""
    n, _, h, w, _ = blocks.shape
    return n, math.prod(info.shape) // (n * h * w), h, w


def _heads(info: TensorInfo, blocks: BlockedLayout) -> tuple[int, int, int, int]:
    """Sizes (N, images side by side, rows, channels of one) of a tensor with its channels last."""
    n, _, h, w, _ = blocks.shape
    channels = info.shape[-1]
    return n, math.prod(info.shape) // (n * h * w * channels), h * w, channels


def _is_last(blocks: BlockedLayout) -> bool:
    return blocks.convention is Layout.CHANNELS_LAST


def to_tensor(raw: np.ndarray, info: TensorInfo) -> np.ndarray:
    """The tensor whose buffer holds the bytes `raw`; a fresh array."""
    raw, blocks = raw[: nbytes_of(info)], info.relayout
    if blocks is None:
        return raw.copy().view(dtype_of(info)).reshape(info.shape)
    source, dtype = raw.view(np.uint8).reshape(blocks.shape), dtype_of(info)
    if dtype == np.float32:
        steps = _bytes_of(source, info, blocks, blocks.xor).view(np.uint8 if blocks.xor else np.int8)
        assert isinstance(info.scale, float) and isinstance(info.zero_point, int)
        return (steps.astype(np.float32) - np.float32(info.zero_point)) * np.float32(info.scale)
    if dtype.itemsize == 1:
        return _bytes_of(source, info, blocks, blocks.xor).view(dtype)
    high, low = (
        _bytes_of(half, info, blocks, xor) for half, xor in zip(np.split(source, 2, axis=1), _XOR_OF_BYTES, strict=True)
    )
    both: np.ndarray = (high.astype(np.uint16) << 8 | low).view(dtype)
    return both


def _bytes_of(source: np.ndarray, info: TensorInfo, blocks: BlockedLayout, xor: int) -> np.ndarray:
    """A byte of every value, uint8 in the tensor's shape."""
    planes = np.empty(_planes(info, blocks), np.uint8)
    for first in range(0, planes.shape[1], blocks.block):
        part = planes[:, first : first + blocks.block]
        part[...] = np.moveaxis(source[:, first // blocks.block, ..., : part.shape[1]], -1, 1)
    planes ^= np.uint8(xor)
    if _is_last(blocks):
        n, beside, rows, channels = _heads(info, blocks)
        planes = np.moveaxis(planes, 1, -1).reshape(n, rows, beside, channels)
        planes = np.ascontiguousarray(planes.swapaxes(1, 2))
    return planes.reshape(info.shape)


def put_tensor(raw: np.ndarray, info: TensorInfo, value: np.ndarray) -> None:
    """Writes `value` into the buffer bytes `raw` in place; lanes beyond the channels keep their bytes."""
    raw, blocks = raw[: nbytes_of(info)], info.relayout
    flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    if blocks is None:
        raw[...] = flat
        return
    target = raw.view(np.uint8).reshape(blocks.shape)
    if dtype_of(info).itemsize == 1:
        _put_bytes(target, blocks, info, flat ^ np.uint8(blocks.xor))
        return
    values = np.ascontiguousarray(value).reshape(-1).view(np.uint16)
    for half, shift, xor in zip(np.split(target, 2, axis=1), (8, 0), _XOR_OF_BYTES, strict=True):
        _put_bytes(half, blocks, info, (values >> shift & 255).astype(np.uint8) ^ np.uint8(xor))


def _put_bytes(target: np.ndarray, blocks: BlockedLayout, info: TensorInfo, flat: np.ndarray) -> None:
    """Writes a byte of every value, uint8 in the tensor's order."""
    n, c, h, w = _planes(info, blocks)
    if _is_last(blocks):
        flat = flat.reshape(_heads(info, blocks)).swapaxes(1, 2)
    planes = np.moveaxis(flat.reshape(n, h, w, c), -1, 1) if _is_last(blocks) else flat.reshape(n, c, h, w)
    for first in range(0, c, blocks.block):
        part = planes[:, first : first + blocks.block]
        target[:, first // blocks.block, ..., : part.shape[1]] = np.moveaxis(part, 1, -1)
